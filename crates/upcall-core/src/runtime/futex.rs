//! The user-level futex: threads wait for a word and are woken without the kernel.
//!
//! The semantics are those of futex(2) for words of one process (FUTEX_WAIT_BITSET, FUTEX_WAKE_BITSET,
//! FUTEX_CMP_REQUEUE). Waiters of a word hang in a bucket of a hash table, first come, first served; where
//! threads have ranks, the most urgent first.
//!
//! Protocol of a wait:
//! 1. Lock the bucket, compare the word, enter the bucket's queue: in state `Parking` with a deadline,
//!    which may be met at any time, else `Queued`.
//! 2. Leave the thread's stack; the lock is opened on the activation's own stack, so that a waker
//!    who finds the thread finds it saved.
//! 3. The caller that claims the thread makes it ready. A waker claims it in the queue and then takes it out.
//! 4. The thread, running again, leaves the queue if it is still in it (timeout, interruption) and
//!    takes its deadline back.

use core::sync::atomic::Ordering;

use crate::arch;
use crate::ending::{self, Ending};
use crate::kernel::Kernel;
use crate::list::{Chain, Chained, Linked};
use crate::lock::{Guard, SpinLock};
use crate::machine::Errno;
use crate::runtime::{After, Runtime, Transition, lone};
use crate::slot::Slot;
use crate::state::inside::{Entered, Inside};
use crate::state::ready::By;
use crate::state::thread::{Claim, Phase, Thread, WakeReason};
use crate::state::vp::Vp;
use crate::state::wait::Wait;
use crate::sync::{CHECKED, fence, fence_after_locked};

/// So many and more are all: in which order they are woken says nothing.
const ALL: usize = i32::MAX as usize;

const BUCKETS: usize = if CHECKED { 2 } else { 1 << 14 };

/// The threads that hang in one bucket.
struct Queue<K: Kernel>(Chain<Thread<K>, Hangs>);

/// The chain of a bucket.
struct Hangs;

impl<K: Kernel> Linked<Hangs> for Thread<K> {
    #[inline(always)]
    fn after(&self) -> &Slot<Self> {
        &self.wait_next
    }
}

impl<K: Kernel> Chained<Hangs> for Thread<K> {
    #[inline(always)]
    fn before(&self) -> &Slot<Self> {
        &self.wait_previous
    }
}

impl<K: Kernel> Queue<K> {
    /// Takes a thread out. Afterwards it may go its way without the lock.
    fn remove(&mut self, thread: &'static Thread<K>) {
        self.0.remove(thread);
        // Release: pairs with the Acquire in `Futexes::withdraw`.
        thread.wait.store(Wait::Nothing, Ordering::Release);
    }

    /// The first waiter of `key` with a common bit in `mask`, from that place on.
    fn next(from: Option<&'static Thread<K>>, key: usize, mask: u32) -> Option<&'static Thread<K>> {
        let mut at = from;
        while let Some(thread) = at {
            if thread.wait.has_key(key) && thread.wait_mask.load(Ordering::Relaxed) & mask != 0 {
                break;
            }
            at = thread.wait_next.get(Ordering::Relaxed);
        }
        at
    }

    /// The one of them with the most urgent rank that has waited longest.
    #[cold]
    fn most_urgent(&self, key: usize, mask: u32) -> Option<&'static Thread<K>> {
        let next = |from| Self::next(from, key, mask);
        let first = next(self.0.first);
        let all = core::iter::successors(first, |thread| {
            next(thread.wait_next.get(Ordering::Relaxed))
        });
        all.min_by_key(|thread| thread.rank())
    }
}

type Bucket<K> = SpinLock<Queue<K>>;

/// The waiting threads of a runtime.
pub(crate) struct Futexes<K: Kernel> {
    buckets: &'static [Bucket<K>],
}

/// What a wait ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The word did not have the expected value: the thread did not wait.
    Mismatch,
    /// It waited, and this ended it.
    Ended(WakeReason),
}

impl<K: Kernel> Futexes<K> {
    pub(crate) fn new(kernel: &K) -> Result<Self, Errno> {
        let memory = kernel.map(BUCKETS * size_of::<Bucket<K>>())?;
        // SAFETY: mapped for ever, page-aligned, large enough; all zeros is an open lock around an
        // empty queue (`None` references are null).
        let buckets = unsafe { core::slice::from_raw_parts(memory.as_ptr().cast(), BUCKETS) };
        Ok(Futexes { buckets })
    }

    fn bucket(&self, key: usize) -> &'static Bucket<K> {
        let hash = (key >> 2).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.buckets[hash >> (usize::BITS - BUCKETS.trailing_zeros())]
    }

    /// Locks the bucket in which `thread` hangs, or is about to, if any.
    fn bucket_of(
        &self,
        kernel: &K,
        thread: &'static Thread<K>,
    ) -> Option<Guard<'static, Queue<K>>> {
        loop {
            // SeqCst: pairs with the Release in `Queue::remove`, and with the store in
            // `Entered::futex_wait` that comes before its look for a signal.
            let key = thread.wait.key(Ordering::SeqCst)?;
            let queue = self.bucket(key).lock(kernel);
            // A requeue may have moved it between the look and the lock.
            if thread.wait.has_key(key) {
                return Some(queue);
            }
        }
    }

    /// Takes `thread` out of the bucket in which it hangs, if it still does.
    #[cold]
    fn withdraw(&self, kernel: &K, thread: &'static Thread<K>) {
        if let Some(mut queue) = self.bucket_of(kernel, thread) {
            queue.remove(thread);
        }
    }
}

/// Two buckets locked in a fixed order; the second is absent when both keys share one.
fn lock_two<K: Kernel>(
    kernel: &K,
    first: &'static Bucket<K>,
    second: &'static Bucket<K>,
) -> (Guard<'static, Queue<K>>, Option<Guard<'static, Queue<K>>>) {
    if core::ptr::eq(first, second) {
        return (first.lock(kernel), None);
    }
    if core::ptr::from_ref(first) < core::ptr::from_ref(second) {
        let one = first.lock(kernel);
        let two = second.lock(kernel);
        (one, Some(two))
    } else {
        let two = second.lock(kernel);
        let one = first.lock(kernel);
        (one, Some(two))
    }
}

impl<K: Kernel> Entered<K> {
    /// Parks the current thread until somebody wakes `key`, provided that `matches` says so under
    /// the key's lock. `deadline` is in nanoseconds of [`Machine::now`](crate::Machine::now).
    pub fn futex_wait(
        self,
        key: usize,
        mask: u32,
        deadline: Option<u64>,
        matches: impl FnOnce() -> bool,
    ) -> (Self, Waited) {
        let runtime = self.runtime();
        let Some(thread) = self.thread() else {
            runtime.kernel.broken("futex wait without a thread");
        };
        let vp = self.vp();
        let (after, bucket) = match runtime.hang(thread, key, mask, deadline, matches) {
            Ok(hung) => hung,
            // Needs no alarm: it gives way as if it had slept.
            // Not out of a critical section.
            Err(late @ Waited::Ended(_)) if self.is_in_section() => return (self, late),
            Err(late @ Waited::Ended(_)) => return (self.give_way(), late),
            Err(other) => return (self, other),
        };
        runtime.tell(vp, thread, Transition::Blocked);
        let inside = self.park_owner(after, bucket);
        runtime.clean_up(thread);
        (inside, Waited::Ended(thread.wake_reason()))
    }

    /// Parks the current thread until a deadline or an interruption.
    pub fn sleep_until(self, deadline: u64) -> (Self, Waited) {
        let own = self
            .thread()
            .map_or(0, |own| core::ptr::from_ref(own) as usize);
        let key = Wait::Sleep(own).bits();
        self.futex_wait(key, u32::MAX, Some(deadline), || true)
    }

    /// Parks the current thread until a thread is over, or something comes for itself: the caller
    /// looks which.
    #[inline]
    pub fn await_end(self, ending: &'static Ending<K>) -> Self {
        self.tell_of_current(Transition::Blocked);
        let inside = self.park_owner(
            |inside, thread, ending| {
                // SAFETY: as passed below.
                let ending = unsafe { &*(ending as *const Ending<K>) };
                if ending.hang(inside.runtime().kernel(), thread) {
                    return None;
                }
                inside
                    .runtime()
                    .tell(inside.vp(), thread, Transition::Unblocked);
                Some(thread)
            },
            ending.address(),
        );
        if let Some(thread) = inside.thread() {
            thread.wait.store(Wait::Nothing, Ordering::Relaxed);
        }
        inside
    }
}

impl<K: Kernel> Inside<K> {
    /// Wakes at most `count` threads that wait for `key` with a common bit in `mask`. Returns how
    /// many.
    pub fn futex_wake(&self, key: usize, count: usize, mask: u32) -> usize {
        let runtime = self.runtime();
        let mut queue = runtime.futexes.bucket(key).lock(&runtime.kernel);
        self.wake_queue(&mut queue, key, count, mask)
    }

    /// Changes the word and wakes one thread, under the key's lock: `change` is told whether a thread waits, and says
    /// whether it has changed the word. The change may be the last use of the word: nothing looks at it afterwards.
    /// Returns how many were woken; `None`: `change` has changed nothing.
    pub fn futex_change_and_wake(
        &self,
        key: usize,
        change: impl FnOnce(bool) -> bool,
    ) -> Option<usize> {
        let runtime = self.runtime();
        let mut queue = runtime.futexes.bucket(key).lock(&runtime.kernel);
        let is_awaited = Queue::next(queue.0.first, key, u32::MAX).is_some();
        change(is_awaited).then(|| self.wake_queue(&mut queue, key, 1, u32::MAX))
    }

    /// Wakes at most `wake` waiters of `from` and moves at most `requeue` others to `to`, provided
    /// that `matches` says so under both locks. Returns (woken, moved), or nothing on a mismatch.
    pub fn futex_requeue(
        &self,
        from: usize,
        to: usize,
        wake: usize,
        requeue: usize,
        matches: impl FnOnce() -> bool,
    ) -> Option<(usize, usize)> {
        let runtime = self.runtime();
        let (mut source, mut target) = lock_two(
            &runtime.kernel,
            runtime.futexes.bucket(from),
            runtime.futexes.bucket(to),
        );
        if !matches() {
            return None;
        }
        let woken = self.wake_queue(&mut source, from, wake, u32::MAX);
        let mut moved = 0;
        let mut at = source.0.first;
        while moved < requeue
            && let Some(thread) = Queue::next(at, from, u32::MAX)
        {
            at = thread.wait_next.get(Ordering::Relaxed);
            // Those that are where they shall go keep their places, and count.
            if from != to {
                // Never without a key: a thread that was claimed meanwhile would think itself out.
                source.0.remove(thread);
                thread.wait.set_key(to, Ordering::Release);
                match &mut target {
                    Some(target) => target.0.push(thread),
                    None => source.0.push(thread),
                }
            }
            moved += 1;
        }
        Some((woken, moved))
    }

    /// Changes a word with `change` and wakes waiters of two keys, as FUTEX_WAKE_OP: at most `first`
    /// of `key`, and at most `second` of `other` if `change` says so.
    pub fn futex_wake_op(
        &self,
        key: usize,
        first: usize,
        other: usize,
        second: usize,
        change: impl FnOnce() -> bool,
    ) -> usize {
        let runtime = self.runtime();
        let (mut one, mut two) = lock_two(
            &runtime.kernel,
            runtime.futexes.bucket(key),
            runtime.futexes.bucket(other),
        );
        let also = change();
        let mut woken = self.wake_queue(&mut one, key, first, u32::MAX);
        if also {
            let queue = two.as_deref_mut().unwrap_or(&mut *one);
            woken += self.wake_queue(queue, other, second, u32::MAX);
        }
        woken
    }

    /// As [`Runtime::wake_queue`], here.
    fn wake_queue(&self, queue: &mut Queue<K>, key: usize, count: usize, mask: u32) -> usize {
        let (vp, by) = (self.vp(), self.user_of_list());
        self.runtime().wake_queue(vp, by, queue, key, count, mask)
    }
}

impl<K: Kernel> Runtime<K> {
    /// What a thread does that was woken.
    #[inline(always)]
    pub(crate) fn clean_up(&self, thread: &'static Thread<K>) {
        // SeqCst, as in `bucket_of`. Who woke it has mostly taken it out.
        if thread.wait.key(Ordering::SeqCst).is_some() {
            self.futexes.withdraw(&self.kernel, thread);
        }
        self.timers.remove(&self.kernel, thread);
    }

    /// Puts `thread` into the bucket of `key`, whose lock it leaves to the step that must follow when
    /// its registers are saved: that step and its argument.
    pub(crate) fn hang(
        &'static self,
        thread: &'static Thread<K>,
        key: usize,
        mask: u32,
        deadline: Option<u64>,
        matches: impl FnOnce() -> bool,
    ) -> Result<(After<K>, usize), Waited> {
        let bucket = self.futexes.bucket(key);
        // Before the lock, whose locked instruction stands between it and the look for a signal:
        // the sender of a signal finds the key, or the signal is found. Pairs with `Runtime::interrupt`.
        thread.wait.set_key(key, Ordering::Relaxed);
        let mut queue = bucket.lock(&self.kernel);
        fence_after_locked();
        let refusal = if !matches() {
            Some(Waited::Mismatch)
        } else if deadline.is_some_and(|deadline| deadline <= self.kernel.now()) {
            Some(Waited::Ended(WakeReason::TimedOut))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            thread.wait.store(Wait::Nothing, Ordering::Relaxed);
            return Err(refusal);
        }
        let simple = deadline.is_none() && !self.kernel.is_interrupted(thread);
        let state = if simple {
            Phase::Queued
        } else {
            Phase::Parking
        };
        thread.state.store(state, Ordering::Relaxed);
        thread.wait_mask.store(mask, Ordering::Relaxed);
        queue.0.push(thread);
        if let Some(deadline) = deadline {
            self.timers.insert(&self.kernel, thread, deadline);
        }
        core::mem::forget(queue);
        let after = if simple {
            unlock_bucket
        } else {
            finish_in_bucket
        };
        Ok((after, core::ptr::from_ref(bucket) as usize))
    }

    /// Claims a parked thread for something that is the thread's own, as [`Thread::claim`] with
    /// [`WakeReason::Interrupted`]; it may be parked in a futex. The caller has made a note that
    /// [`Attributes::is_interrupted`](crate::kernel::Attributes::is_interrupted) finds, with a locked instruction.
    pub fn interrupt(&'static self, thread: &'static Thread<K>) -> Claim {
        // SeqCst: pairs with the store in `Ending::hang`, which comes before its look for a signal, and with that in
        // `Entered::wait_alone`.
        match thread.wait.load(Ordering::SeqCst) {
            Wait::End(ending) => return ending::interrupt(ending, thread),
            Wait::Alone(_) => {
                if let Some(claim) = lone::interrupt(&self.kernel, thread) {
                    return claim;
                }
            }
            _ => {}
        }
        if let Some(mut queue) = self.futexes.bucket_of(&self.kernel, thread)
            && thread.state.load(Ordering::Relaxed) == Phase::Queued
        {
            queue.remove(thread);
            return thread.claim_in_bucket(WakeReason::Interrupted);
        }
        thread.claim(WakeReason::Interrupted)
    }

    /// As [`Inside::futex_wake`], for a kernel thread that is no activation.
    pub fn futex_wake_from_outside(&'static self, key: usize, count: usize, mask: u32) -> usize {
        let Some(first) = self.vps().first() else {
            return 0;
        };
        let vp = self.with_processor(first);
        let woken = {
            let mut queue = self.futexes.bucket(key).lock(&self.kernel);
            self.wake_queue(vp, By::Others, &mut queue, key, count, mask)
        };
        if woken > 0 {
            self.choose_again(vp, true);
        }
        woken
    }

    /// Puts a thread into the bucket of `key` that is saved, and that `take` takes from where it hangs, under the bucket's
    /// lock. Returns true if it has taken one.
    pub(super) fn hang_taken(
        &'static self,
        vp: &'static Vp<K>,
        key: usize,
        take: impl FnOnce() -> Option<&'static Thread<K>>,
    ) -> bool {
        let mut queue = self.futexes.bucket(key).lock(&self.kernel);
        let Some(thread) = take() else {
            return false;
        };
        thread.wait_mask.store(lone::MOVED, Ordering::Relaxed);
        queue.0.push(thread);
        // Release: pairs with the look in `bucket_of`.
        thread.wait.set_key(key, Ordering::Release);
        // Between the key and the look for a signal, as in `hang`: who came before found no key.
        fence(Ordering::SeqCst);
        if self.kernel.is_interrupted(thread) {
            queue.remove(thread);
            thread.claim_in_bucket(WakeReason::Interrupted);
            self.make_ready_on(vp, By::Others, thread);
        }
        true
    }

    fn wake_queue(
        &'static self,
        vp: &'static Vp<K>,
        by: By,
        queue: &mut Queue<K>,
        key: usize,
        count: usize,
        mask: u32,
    ) -> usize {
        let by_rank = self.is_ranked() && count < ALL;
        let mut from = queue.0.first;
        let mut woken = 0;
        while woken < count {
            let found = if by_rank {
                queue.most_urgent(key, mask)
            } else {
                Queue::next(from, key, mask)
            };
            let Some(thread) = found else {
                break;
            };
            from = thread.wait_next.get(Ordering::Relaxed);
            from.inspect(|next| arch::prefetch(*next));
            // Claimed while it is in the queue, so that it is this wait that ends: a thread that is
            // out of the queue may already wait for something else.
            let claim = thread.claim_in_bucket(WakeReason::Woken);
            queue.remove(thread);
            if claim == Claim::Ready {
                self.make_ready_on(vp, by, thread);
            }
            woken += usize::from(claim != Claim::Lost);
        }
        woken
    }
}

fn unlock_bucket<K: Kernel>(
    _: &Inside<K>,
    _: &'static Thread<K>,
    bucket: usize,
) -> Option<&'static Thread<K>> {
    // SAFETY: `futex_wait` passes the address of a bucket whose guard it forgot.
    unsafe { (*(bucket as *const Bucket<K>)).unlock() };
    None
}

fn finish_in_bucket<K: Kernel>(
    inside: &Inside<K>,
    thread: &'static Thread<K>,
    bucket: usize,
) -> Option<&'static Thread<K>> {
    unlock_bucket(inside, thread, bucket);
    inside.finish_park(thread);
    None
}
