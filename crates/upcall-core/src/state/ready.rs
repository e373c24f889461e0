//! Lists of ready threads, linked through the threads themselves: no allocation, no bound to hit.
//!
//! One [`ReadyList`] per virtual processor, first in, first out, with a front door for threads
//! that had the processor before (Anderson §4.2 keeps one list per processor for locality). Other
//! virtual processors steal from the front: the thread that has waited longest. Last in, first
//! out, FastThreads' choice, starves threads of programs that were written for a fair kernel; a program that
//! says that it divides its work by threads has it ([`ReadyList::push_forked`]), for a time slice.
//! A thread whose time slice has ended waits behind those that were woken ([`ReadyList::push_spent`]): one that
//! waits most of the time, as a thread that takes samples, need not wait for a whole slice of each that
//! computes. It waits no longer than its share of the processor asks for. The list has a time of its own, as a fair
//! queue has (Demers, Keshav, Shenker, *Analysis and Simulation of a Fair Queueing Algorithm*, 1989): with each slice
//! or turn that ends it goes on by what has passed, divided by the number of threads that want the processor. A thread
//! is due when this time has gone on by what the thread had of the processor, and then waits among those that were woken: not
//! directly behind another such one, at first, so that one that is woken waits for few of them, however many are due. (The time
//! goes on where other programs have the processor, too, so many may be.) A thread that yields goes behind all.
//! Approach rejected: a lock-free deque; a lock is simple, and a thread can be put back at the front.
//!
//! The owner of the virtual processor goes without the lock, while nobody else has used it for some time ([`Access::Free`]). Who
//! comes from elsewhere takes the lock, has all kernel threads pass a barrier, and waits until the owner is out of the list.
//! From then on the owner takes the lock, too. See docs/adr/0061.
//!
//! Threads of one rank are first in, first out; those of another than the common one hang in a sorted tree
//! beside the list ([`crate::rank`]), so that programs without ranks pay one comparison for them.

use core::cell::Cell;

use crate::sync::UnsafeCell;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, light_barrier};

use crate::arch;
use crate::list::Chain;
use crate::lock::spin;
use crate::machine::Machine;
use crate::numbered::{AtomicEnum, numbered_enum};
use crate::rank::Rank;
use crate::state::ranked::Ranked;
use crate::state::thread::{Phase, Thread, ThreadList};

/// No slice or turn counts as more, in nanoseconds: a virtual processor may have had nothing to run since the last one.
pub(crate) const MOST_NS: u64 = 5_000_000;

/// Ready threads, the most urgent first.
struct Queue<K: Machine> {
    /// Of the common rank, and before the others of it: new threads of a program that divides its work by them. The
    /// last one made runs first, which bounds how many there are at a time by their depth; others steal the
    /// first one made, which has most work left. When a time slice ends they are in the queue as all others are.
    forked: Chain<Thread<K>>,
    common: ThreadList<K>,
    /// Of the common rank, and after the others of it: threads whose time slice has ended, until they are due.
    spent: ThreadList<K>,
    /// How much of the processor each thread of this list could have had so far, in nanoseconds.
    time: u64,
    /// When that was found out.
    aged_ns: u64,
    /// The thread that was the last to come from `spent`, because it was due.
    was_due: Option<&'static Thread<K>>,
    /// One that is due was not let in behind that one, and is the next time.
    keeps_out: bool,
    ranked: Ranked<K>,
}

impl<K: Machine> Queue<K> {
    #[inline]
    fn push_back(&mut self, thread: &'static Thread<K>) {
        match thread.rank() {
            Rank::COMMON => self.common.push_back(thread),
            rank => self.ranked.push_back(thread, rank),
        }
    }

    #[inline]
    fn push_front(&mut self, thread: &'static Thread<K>) {
        match thread.rank() {
            Rank::COMMON => self.common.push_front(thread),
            rank => self.ranked.push_front(thread, rank),
        }
    }

    /// Behind all that are in critical sections, and before all others: of its rank, if threads have ranks.
    fn push_first(&mut self, thread: &'static Thread<K>, ranked: bool) {
        match thread.rank() {
            Rank::COMMON if !ranked => self.ranked.push_back(thread, Rank::SECTION),
            _ => {
                self.end_forked();
                self.push_front(thread);
            }
        }
    }

    /// Where it was taken from.
    fn put_back(&mut self, thread: &'static Thread<K>, ranked: bool) {
        match thread.rank() {
            Rank::COMMON if !ranked && thread.is_in_section() => {
                self.ranked.push_front(thread, Rank::SECTION);
            }
            _ => self.push_front(thread),
        }
    }

    #[inline]
    fn push_forked(&mut self, thread: &'static Thread<K>) {
        match thread.rank() {
            Rank::COMMON => self.forked.push(thread),
            rank => self.ranked.push_back(thread, rank),
        }
    }

    #[inline]
    fn pop_front(&mut self) -> Option<&'static Thread<K>> {
        if !self.ranked.is_empty() && self.first()?.1 != Rank::COMMON {
            return self.ranked.pop_front();
        }
        match self.forked.pop_last() {
            None => match self.common.pop_front() {
                None => self.pop_spent(),
                common => {
                    self.common.first().inspect(|next| arch::prefetch(*next));
                    common
                }
            },
            forked => forked,
        }
    }

    /// Nobody else wants the processor: the time goes on to when the thread is due.
    fn pop_spent(&mut self) -> Option<&'static Thread<K>> {
        let thread = self.spent.pop_front()?;
        self.time = self.time.max(thread.due.load(Ordering::Relaxed));
        Some(thread)
    }

    fn push_spent(&mut self, thread: &'static Thread<K>, used: u64) {
        match thread.rank() {
            Rank::COMMON => {
                thread.due.store(self.time + used, Ordering::Relaxed);
                self.spent.push_back(thread);
            }
            rank => self.ranked.push_back(thread, rank),
        }
    }

    #[inline]
    fn push_last(&mut self, thread: &'static Thread<K>) {
        if !self.spent.is_empty() {
            self.common.append(&mut self.spent);
        }
        self.push_back(thread);
    }

    /// What another virtual processor takes.
    fn steal(&mut self) -> Option<&'static Thread<K>> {
        if !self.ranked.is_empty() && self.first()?.1 != Rank::COMMON {
            return self.ranked.pop_front();
        }
        match self.common.pop_front() {
            None => match self.forked.pop_first() {
                None => self.pop_spent(),
                forked => forked,
            },
            common => common,
        }
    }

    /// A slice or turn ends, for which `ready` threads have waited. One that is due is as all others from here on.
    fn age(&mut self, now: u64, ready: usize) {
        let passed = now.wrapping_sub(self.aged_ns).min(MOST_NS);
        self.aged_ns = now;
        // And the one that has run.
        self.time += passed / (ready as u64 + 1);
        let is_due = |thread: &Thread<K>| thread.due.load(Ordering::Relaxed) <= self.time;
        let Some(due) = self.spent.first().filter(|&first| is_due(first)) else {
            return;
        };
        let both = self.common.last().zip(self.was_due);
        let is_behind = both.is_some_and(|(last, was_due)| core::ptr::eq(last, was_due));
        // Once only: that one may have been woken since, again and again.
        self.keeps_out = is_behind && !self.keeps_out;
        if !self.keeps_out {
            self.spent.pop_front();
            self.common.push_back(due);
            self.was_due = Some(due);
        }
    }

    /// New threads are as all others from here on.
    fn end_forked(&mut self) {
        self.common.append_chain(&mut self.forked);
    }

    /// The first, if it has had its slice and is not due.
    fn first_spent(&self) -> Option<&'static Thread<K>> {
        let is_first =
            self.ranked.is_empty() && self.forked.last.is_none() && self.common.first().is_none();
        self.spent.first().filter(|_| is_first)
    }

    /// The first, and the rank with which it came.
    fn first(&self) -> Option<(&'static Thread<K>, Rank)> {
        let common = self
            .forked
            .last
            .or(self.common.first())
            .or(self.spent.first());
        let common = common.map(|thread| (thread, Rank::COMMON));
        match self.ranked.first() {
            Some((_, rank)) if rank > Rank::COMMON && common.is_some() => common,
            Some(ranked) => Some(ranked),
            None => common,
        }
    }

    /// Puts a thread that waits here where its rank belongs. Returns true if it does wait here. A thread that
    /// has its place already keeps it.
    fn replace(&mut self, thread: &'static Thread<K>) -> bool {
        let rank = thread.rank();
        let is_it = |one: &'static Thread<K>| core::ptr::eq(one, thread);
        let listed = if self.ranked.contains(thread) {
            thread.listed_rank()
        } else if self.forked.iter().any(is_it) {
            self.forked.remove(thread);
            self.common.push_back(thread);
            Rank::COMMON
        } else if self.common.iter().any(is_it) || self.spent.iter().any(is_it) {
            Rank::COMMON
        } else {
            return false;
        };
        if listed != rank {
            if listed == Rank::COMMON {
                let _ = self.common.remove(thread) || self.spent.remove(thread);
            } else {
                self.ranked.remove(thread);
            }
            self.push_back(thread);
        }
        true
    }
}

numbered_enum! {
    /// Who needs the lock of a list. Changed with the list locked.
    enum Access {
        /// The owner, too.
        Locked = 0,
        /// The owner, too, but it may be in the list without still: no barrier was passed since.
        Ending = 1,
        /// All but the owner.
        Free = 2,
    }
}

/// For how long the owner takes the lock, in nanoseconds, after somebody else has used the list.
const LOCKED_NS: u64 = 10_000_000;

/// The ready threads of one virtual processor, and a lock around them that says how many there are:
/// the thread that is about to be put in counts from the moment when the lock is taken, so that one
/// locked instruction both takes it and announces the thread.
pub(crate) struct ReadyList<K: Machine> {
    /// Twice the length, without what is in `free`, plus one while it is locked.
    word: AtomicUsize,
    /// Twice as many threads as the owner has put in without the lock, less those that it has taken out. It wraps, as `word`
    /// does.
    free: AtomicUsize,
    /// The owner is in the list without the lock, or about to be.
    entered: AtomicBool,
    access: AtomicEnum<Access>,
    /// It may be [`Access::Free`].
    may_be_free: AtomicBool,
    /// Since when it is not.
    locked_since_ns: AtomicU64,
    list: UnsafeCell<Queue<K>>,
}

// SAFETY: the list is reached only by who holds the lock, or by the owner in its place; see `ThreadList`.
unsafe impl<K: Machine> Sync for ReadyList<K> {}

const LOCKED: usize = 1;
const ONE: usize = 2;

/// Who uses a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The owner of the virtual processor, which is inside the runtime.
    Owner,
    /// Anybody.
    Others,
}

/// The sum of the two counts, in threads. Read while both change it may be of no moment, and below zero.
#[inline]
fn total(word: usize, free: usize) -> usize {
    ((word & !LOCKED).wrapping_add(free) as isize).max(0) as usize / ONE
}

/// A count where the length, which was so much, becomes as much as was announced.
#[inline]
fn moved(count: usize, length: usize, announced: usize) -> usize {
    count.wrapping_add(announced.wrapping_sub(length).wrapping_mul(ONE))
}

impl<K: Machine> ReadyList<K> {
    pub(crate) const fn new() -> Self {
        ReadyList {
            word: AtomicUsize::new(0),
            free: AtomicUsize::new(0),
            entered: AtomicBool::new(false),
            access: AtomicEnum::new(Access::Locked),
            may_be_free: AtomicBool::new(false),
            locked_since_ns: AtomicU64::new(0),
            list: UnsafeCell::new(Queue {
                forked: Chain::new(),
                common: ThreadList::new(),
                spent: ThreadList::new(),
                time: 0,
                aged_ns: 0,
                was_due: None,
                keeps_out: false,
                ranked: Ranked::new(),
            }),
        }
    }

    /// The length at some moment. SeqCst: an idle processor reads it after it declared itself
    /// idle, a pusher writes it before it looks for idle processors.
    ///
    /// It is not 0 while a thread stays in the list. Two reads may see none, if one is put in and another one taken out between
    /// them. Who puts one in looks afterwards for those that have declared themselves idle.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        total(
            self.word.load(Ordering::SeqCst),
            self.free.load(Ordering::SeqCst),
        )
    }

    /// Calls `change` with the list locked, and its length the one that `announce` makes of the
    /// present one; `None` if that says so, and then nothing happened.
    #[inline(always)]
    fn with<R>(
        &self,
        kernel: &K,
        by: By,
        announce: impl Fn(usize) -> Option<usize>,
        change: impl FnOnce(&mut Queue<K>) -> R,
    ) -> Option<R> {
        kernel.locks();
        let may_be_free = by == By::Owner && self.access.load(Ordering::Relaxed) == Access::Free;
        if let Some(word) = may_be_free.then(|| self.enter()).flatten() {
            let free = self.free.load(Ordering::Relaxed);
            let length = total(word, free);
            let result = announce(length).map(|announced| {
                self.free
                    .store(moved(free, length, announced), Ordering::Relaxed);
                // SAFETY: nobody else is in the list: see `lock`.
                change(unsafe { &mut *self.list.get() })
            });
            // Release: pairs with the Acquire in `end_free`.
            self.entered.store(false, Ordering::Release);
            // What is announced is visible to who passes a barrier before it looks.
            light_barrier();
            return result;
        }
        let locked = self.lock(kernel, &announce)?;
        // SAFETY: the lock is ours.
        let result = change(unsafe { &mut *self.list.get() });
        // Release: pairs with the compare-and-swap in `lock`. Nobody else changes a locked word.
        self.word.store(locked & !LOCKED, Ordering::Release);
        Some(result)
    }

    /// The owner is in the list without the lock, if it may be: the word. Then it is the caller's to leave.
    #[inline(always)]
    fn enter(&self) -> Option<usize> {
        self.entered.store(true, Ordering::Relaxed);
        // Pairs with the barriers in `end_free`.
        light_barrier();
        // Acquire: what others have done in the list.
        if self.access.load(Ordering::Acquire) == Access::Free {
            // If it is locked, somebody waits for us, and the length is not the one of the list.
            let word = self.word.load(Ordering::Relaxed);
            if word & LOCKED == 0 {
                return Some(word);
            }
        }
        self.entered.store(false, Ordering::Release);
        None
    }

    /// Takes the lock: the word, while it is locked.
    #[inline]
    fn lock(&self, kernel: &K, announce: &impl Fn(usize) -> Option<usize>) -> Option<usize> {
        let mut spins = 0;
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & LOCKED != 0 {
                spin(kernel, &mut spins);
                continue;
            }
            let free = self.free.load(Ordering::Relaxed);
            let length = total(word, free);
            let locked = moved(word, length, announce(length)?) | LOCKED;
            // SeqCst: see `len`; also pairs with the Release in `with`.
            if self
                .word
                .compare_exchange(word, locked, Ordering::SeqCst, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            // From here on nobody makes it free, and if it is not, what the owner has counted stays.
            if self.access.load(Ordering::SeqCst) == Access::Locked
                && self.free.load(Ordering::Relaxed) == free
            {
                return Some(locked);
            }
            return self.lock_again(kernel, word, announce);
        }
    }

    /// The word is locked by the caller, in place of `word`, and the length it announced perhaps wrong.
    #[cold]
    fn lock_again(
        &self,
        kernel: &K,
        word: usize,
        announce: &impl Fn(usize) -> Option<usize>,
    ) -> Option<usize> {
        self.end_free(kernel);
        let length = total(word, self.free.load(Ordering::Relaxed));
        let Some(announced) = announce(length) else {
            self.word.store(word, Ordering::Release);
            return None;
        };
        let locked = moved(word, length, announced) | LOCKED;
        // SeqCst, as a store alone would not be: see `len`.
        self.word.swap(locked, Ordering::SeqCst);
        Some(locked)
    }

    /// Nobody but who has the lock, the caller, is in the list from here on.
    fn end_free(&self, kernel: &K) {
        if self.access.load(Ordering::Relaxed) == Access::Locked {
            return;
        }
        // Relaxed: the barrier follows.
        self.access.store(Access::Locked, Ordering::Relaxed);
        self.locked_since_ns.store(kernel.now(), Ordering::Relaxed);
        if !kernel.pass_barriers() {
            kernel.broken("the kernel refuses a barrier");
        }
        let mut spins = 0;
        // Acquire: what the owner has done in the list.
        while self.entered.load(Ordering::Acquire) {
            spin(kernel, &mut spins);
        }
    }

    /// Calls `change` with the list locked, and leaves the length as it is.
    fn locked<R>(&self, kernel: &K, change: impl FnOnce() -> R) -> R {
        let mut spins = 0;
        loop {
            let word = self.word.load(Ordering::Relaxed) & !LOCKED;
            let locked = self.word.compare_exchange(
                word,
                word | LOCKED,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if locked.is_ok() {
                let result = change();
                self.word.store(word, Ordering::Release);
                return result;
            }
            spin(kernel, &mut spins);
        }
    }

    /// The owner, which calls this, may go without the lock, but does not so far.
    #[inline]
    pub(crate) fn is_to_be_freed(&self, now: u64) -> bool {
        let since = self.locked_since_ns.load(Ordering::Relaxed);
        self.may_be_free.load(Ordering::Relaxed)
            && now.saturating_sub(since) >= LOCKED_NS
            && self.access.load(Ordering::Relaxed) != Access::Free
    }

    /// The owner, which calls this, goes without the lock from here on. `note` is called before.
    pub(crate) fn free(&self, kernel: &K, note: impl FnOnce()) {
        self.locked(kernel, || {
            if self.may_be_free.load(Ordering::Relaxed) {
                note();
                // Release: who comes without the lock, which is the caller, sees what others have done.
                self.access.store(Access::Free, Ordering::Release);
            }
        });
    }

    /// The owner takes the lock from here on. Returns true if it may be in the list without still, and what it has put there
    /// unseen, until all kernel threads have passed a barrier. If not, `forget` is called.
    pub(crate) fn begin_end(&self, kernel: &K, forget: impl FnOnce()) -> bool {
        self.locked(kernel, || {
            let begins = self.access.load(Ordering::Relaxed) == Access::Free;
            if begins {
                // Relaxed: the caller passes a barrier.
                self.access.store(Access::Ending, Ordering::Relaxed);
                self.locked_since_ns.store(kernel.now(), Ordering::Relaxed);
            } else {
                self.end_free(kernel);
                forget();
            }
            begins
        })
    }

    /// The owner may go without the lock some time: barriers can be had.
    pub(crate) fn allow_free(&self) {
        self.may_be_free.store(true, Ordering::Relaxed);
    }

    /// It never does again.
    pub(crate) fn forbid_free(&self, kernel: &K) {
        self.may_be_free.store(false, Ordering::Relaxed);
        self.locked(kernel, || self.end_free(kernel));
    }

    /// Puts a thread in by `change`, in this phase.
    #[inline(always)]
    fn put(
        &self,
        kernel: &K,
        by: By,
        thread: &'static Thread<K>,
        phase: Phase,
        change: impl FnOnce(&mut Queue<K>),
    ) {
        thread.state.store(phase, Ordering::Relaxed);
        self.with(kernel, by, |len| Some(len + 1), change);
    }

    #[inline]
    pub(crate) fn push_back(&self, kernel: &K, by: By, thread: &'static Thread<K>) {
        self.put(kernel, by, thread, Phase::Ready, |list| {
            list.push_back(thread)
        });
    }

    #[inline]
    pub(crate) fn push_front(&self, kernel: &K, by: By, thread: &'static Thread<K>) {
        self.put(kernel, by, thread, Phase::Ready, |list| {
            list.push_front(thread)
        });
    }

    /// Puts a thread at the front again that was taken from there and not chosen. `ranked`: threads have ranks.
    pub(crate) fn put_back(&self, kernel: &K, by: By, thread: &'static Thread<K>, ranked: bool) {
        self.put(kernel, by, thread, Phase::Ready, |list| {
            list.put_back(thread, ranked)
        });
    }

    /// Puts a thread at the front that comes back from the kernel. [`ReadyList::awaits_owner`] knows it from then on.
    pub(crate) fn push_returned(&self, kernel: &K, thread: &'static Thread<K>) {
        self.put(kernel, By::Others, thread, Phase::Returned, |list| {
            list.push_front(thread)
        });
    }

    /// Puts a thread in that is in a critical section, before all that are in none. With ranks (`ranked`) these alone
    /// decide, and it is before the others of its own. [`ReadyList::awaits_owner`] knows it from then on.
    pub(crate) fn push_first(&self, kernel: &K, thread: &'static Thread<K>, ranked: bool) {
        self.put(kernel, By::Others, thread, Phase::Returned, |list| {
            list.push_first(thread, ranked)
        });
    }

    /// Puts a new thread in, before all others of its rank.
    #[inline]
    pub(crate) fn push_forked(&self, kernel: &K, by: By, thread: &'static Thread<K>) {
        self.put(kernel, by, thread, Phase::Ready, |list| {
            list.push_forked(thread)
        });
    }

    /// Puts a thread in at the end of a time slice, of which it had so many nanoseconds. It waits behind those that were
    /// woken, until it is due.
    pub(crate) fn push_spent(&self, kernel: &K, by: By, thread: &'static Thread<K>, used: u64) {
        self.put(kernel, by, thread, Phase::Ready, |list| {
            list.push_spent(thread, used)
        });
    }

    /// Takes a thread for another virtual processor.
    pub(crate) fn steal(&self, kernel: &K) -> Option<&'static Thread<K>> {
        self.with(kernel, By::Others, |len| len.checked_sub(1), Queue::steal)?
    }

    /// A turn ends: a thread that was put in by [`ReadyList::push_spent`] and is due is as all others.
    pub(crate) fn age(&self, kernel: &K, by: By, now: u64) {
        let ready = Cell::new(0);
        let announce = |len| {
            ready.set(len);
            (len != 0).then_some(len)
        };
        self.with(kernel, by, announce, |list| list.age(now, ready.get()));
    }

    /// A time slice ends: so are those that were put in by [`ReadyList::push_forked`].
    pub(crate) fn age_by_slice(&self, kernel: &K, by: By, now: u64) {
        let announce = |len| (len != 0).then_some(len);
        self.with(kernel, by, announce, Queue::end_forked);
        self.age(kernel, by, now);
    }

    /// Returns true if threads that were woken wait here for each other, at some moment, and not only for the one that runs:
    /// two or more.
    pub(crate) fn woken_wait(&self, kernel: &K, by: By) -> bool {
        let announce = |len| (len != 0).then_some(len);
        self.with(kernel, by, announce, |list| {
            list.common.iter().nth(1).is_some()
        })
        .unwrap_or(false)
    }

    /// Returns true if nobody waits here, at some moment, but threads that have had their slice.
    pub(crate) fn only_spent_wait(&self, kernel: &K, by: By) -> bool {
        let announce = |len| (len != 0).then_some(len);
        let is_only = |list: &mut Queue<K>| list.first_spent().is_some();
        self.with(kernel, by, announce, is_only).unwrap_or(true)
    }

    /// Puts a thread in behind all others of its rank.
    #[inline]
    pub(crate) fn push_last(&self, kernel: &K, by: By, thread: &'static Thread<K>) {
        self.put(kernel, by, thread, Phase::Ready, |list| {
            list.push_last(thread)
        });
    }

    /// Puts a thread at the end and takes the first, which may be the same.
    #[inline]
    pub(crate) fn exchange(
        &self,
        kernel: &K,
        by: By,
        thread: &'static Thread<K>,
    ) -> &'static Thread<K> {
        thread.state.store(Phase::Ready, Ordering::Relaxed);
        let first = self.with(kernel, by, Some, |list| {
            list.push_last(thread);
            list.pop_front()
        });
        first.flatten().unwrap_or(thread)
    }

    /// Calls `then` with the list locked, if it is empty.
    pub(crate) fn if_empty(&self, kernel: &K, then: impl FnOnce()) {
        self.with(
            kernel,
            By::Others,
            |len| (len == 0).then_some(0),
            |_| then(),
        );
    }

    #[inline(always)]
    pub(crate) fn pop(&self, kernel: &K, by: By) -> Option<&'static Thread<K>> {
        self.with(kernel, by, |len| len.checked_sub(1), Queue::pop_front)?
    }

    /// Returns true if it is the turn of this thread, which has come back and was not chosen since, at some moment. One
    /// that ran meanwhile may be first again.
    pub(crate) fn awaits_owner(&self, kernel: &K, thread: &'static Thread<K>) -> bool {
        let waits = |list: &mut Queue<K>| {
            thread.state.load(Ordering::Relaxed) == Phase::Returned
                && list
                    .first()
                    .is_some_and(|(first, _)| core::ptr::eq(first, thread))
        };
        self.with(kernel, By::Others, Some, waits).unwrap_or(false)
    }

    /// Returns true if a thread that is in a critical section waits here, at some moment. Not with ranks.
    pub(crate) fn begins_with_section(&self, kernel: &K) -> bool {
        self.first_rank(kernel) == Some(Rank::SECTION)
    }

    /// The rank of the most urgent, at some moment.
    pub(crate) fn first_rank(&self, kernel: &K) -> Option<Rank> {
        let first = self.with(
            kernel,
            By::Others,
            |len| (len != 0).then_some(len),
            |list| list.first().map(|first| first.1),
        );
        first.flatten()
    }

    /// Puts a thread that waits here where its rank, which has changed, belongs. Returns true if it waits here.
    pub(crate) fn replace(&self, kernel: &K, thread: &'static Thread<K>) -> bool {
        self.with(kernel, By::Others, Some, |list| list.replace(thread))
            .unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bare, numbers, rounds};
    use std::collections::VecDeque;

    /// Who came back waits for the owner while it is first, and no longer when it was chosen: also if it gives way and is
    /// first again.
    #[test]
    fn who_was_chosen_does_not_await_the_owner() {
        let kernel = Bare::new();
        let [back, other]: [&Thread<Bare>; 2] = kernel.threads();
        let ready = ReadyList::new();
        ready.push_back(&kernel, By::Others, other);
        assert!(!ready.awaits_owner(&kernel, other));
        ready.push_returned(&kernel, back);
        assert!(ready.awaits_owner(&kernel, back));
        let chosen = ready.pop(&kernel, By::Others).unwrap();
        assert!(core::ptr::eq(chosen, back) && !ready.awaits_owner(&kernel, back));
        let next = ready.exchange(&kernel, By::Others, back);
        assert!(core::ptr::eq(next, other) && !ready.awaits_owner(&kernel, back));
        ready.push_returned(&kernel, other);
        assert!(ready.awaits_owner(&kernel, other) && !ready.awaits_owner(&kernel, back));
    }

    /// It goes before all others, whether these come before it or after it.
    #[test]
    fn who_is_in_a_section_goes_before_all_that_are_in_none() {
        let kernel = Bare::new();
        let [first, second, back, chosen, forked]: [&Thread<Bare>; 5] = kernel.threads();
        let ready = ReadyList::new();
        first.enter_section();
        second.enter_section();
        ready.push_front(&kernel, By::Others, chosen);
        ready.push_first(&kernel, first, false);
        ready.push_first(&kernel, second, false);
        ready.push_returned(&kernel, back);
        ready.push_forked(&kernel, By::Others, forked);
        assert!(ready.begins_with_section(&kernel));
        assert!(ready.awaits_owner(&kernel, first) && !ready.awaits_owner(&kernel, back));
        // Chosen, and not run.
        let popped = ready.pop(&kernel, By::Others).unwrap();
        ready.put_back(&kernel, By::Others, popped, false);
        for expected in [first, second, forked, back, chosen] {
            assert!(core::ptr::eq(
                ready.pop(&kernel, By::Others).unwrap(),
                expected
            ));
        }
        assert!(ready.pop(&kernel, By::Others).is_none() && !ready.begins_with_section(&kernel));
    }

    /// Another virtual processor takes it first, too. With ranks it is the first of its own.
    #[test]
    fn who_is_in_a_section_is_stolen_first_and_has_its_rank() {
        let kernel = Bare::new();
        let [inside, forked, other]: [&Thread<Bare>; 3] = kernel.threads();
        let ready = ReadyList::new();
        inside.enter_section();
        for ranked in [false, true] {
            ready.push_back(&kernel, By::Others, other);
            ready.push_forked(&kernel, By::Others, forked);
            ready.push_first(&kernel, inside, ranked);
            assert!(ready.begins_with_section(&kernel) != ranked);
            assert!(core::ptr::eq(ready.steal(&kernel).unwrap(), inside));
            while ready.pop(&kernel, By::Others).is_some() {}
        }
    }

    /// Against a queue: order, length, and that a thread put in is ready.
    #[test]
    fn a_ready_list_is_a_queue_with_a_front_door() {
        let kernel = Bare::new();
        let mut pick = numbers(17);
        let threads: [&Thread<Bare>; 32] = kernel.threads();
        let ready = ReadyList::new();
        let mut model: VecDeque<&Thread<Bare>> = VecDeque::new();
        let mut outside: VecDeque<_> = threads.into();
        for _ in 0..rounds(5000) {
            match pick(4) {
                0 => {
                    if let Some(thread) = outside.pop_front() {
                        ready.push_back(&kernel, By::Others, thread);
                        model.push_back(thread);
                    }
                }
                1 => {
                    if let Some(thread) = outside.pop_front() {
                        match pick(2) {
                            0 => ready.push_front(&kernel, By::Others, thread),
                            _ => ready.push_returned(&kernel, thread),
                        }
                        model.push_front(thread);
                    }
                }
                2 => {
                    if let Some(thread) = outside.pop_front() {
                        model.push_back(thread);
                        let first = ready.exchange(&kernel, By::Others, thread);
                        assert!(core::ptr::eq(first, model.pop_front().unwrap()));
                        outside.push_back(first);
                    }
                }
                _ => {
                    let thread = ready.pop(&kernel, By::Others);
                    let expected = model.pop_front();
                    assert_eq!(thread.is_some(), expected.is_some());
                    if let (Some(thread), Some(expected)) = (thread, expected) {
                        assert!(core::ptr::eq(thread, expected));
                        assert!(thread.state.load(Ordering::Relaxed).is_ready());
                        outside.push_back(thread);
                    }
                }
            }
            assert_eq!(ready.len(), model.len());
            for thread in model.iter().take(2) {
                let is_first = core::ptr::eq(*thread, model[0]);
                let returned = thread.state.load(Ordering::Relaxed) == Phase::Returned;
                assert_eq!(ready.awaits_owner(&kernel, thread), is_first && returned);
            }
        }
    }

    /// Against two lists: the thread forked last runs first, and others take the thread forked first, after all
    /// that were there before; a slice's end makes them equal.
    #[test]
    fn forked_threads_are_a_stack_for_one_and_a_queue_for_others() {
        let kernel = Bare::new();
        let mut pick = numbers(23);
        let threads: [&Thread<Bare>; 32] = kernel.threads();
        let ready = ReadyList::new();
        let (mut common, mut forked) = (VecDeque::new(), VecDeque::new());
        let mut outside: VecDeque<_> = threads.into();
        for _ in 0..rounds(5000) {
            let (taken, expected) = match pick(6) {
                0 | 1 => {
                    if let Some(thread) = outside.pop_front() {
                        ready.push_forked(&kernel, By::Others, thread);
                        forked.push_back(thread);
                    }
                    continue;
                }
                2 => {
                    if let Some(thread) = outside.pop_front() {
                        ready.push_back(&kernel, By::Others, thread);
                        common.push_back(thread);
                    }
                    continue;
                }
                3 => (
                    ready.pop(&kernel, By::Others),
                    forked.pop_back().or_else(|| common.pop_front()),
                ),
                4 => (
                    ready.steal(&kernel),
                    common.pop_front().or_else(|| forked.pop_front()),
                ),
                _ => {
                    if pick(8) == 0 {
                        ready.age_by_slice(&kernel, By::Others, 0);
                        common.append(&mut forked);
                    }
                    continue;
                }
            };
            assert_eq!(taken.is_some(), expected.is_some());
            if let (Some(taken), Some(expected)) = (taken, expected) {
                assert!(core::ptr::eq(taken, expected));
                outside.push_back(taken);
            }
            assert_eq!(ready.len(), common.len() + forked.len());
        }
    }

    /// Against two queues: a woken thread runs before those whose slice has ended and that are not due. A thread that
    /// yields goes behind all, and so do those that come later, from then on.
    #[test]
    fn threads_whose_slice_has_ended_wait_behind_those_that_were_woken() {
        let kernel = Bare::new();
        let mut pick = numbers(29);
        let threads: [&Thread<Bare>; 32] = kernel.threads();
        let ready = ReadyList::new();
        let (mut woken, mut spent) = (VecDeque::new(), VecDeque::<(&Thread<Bare>, u64)>::new());
        let (mut time, mut now, mut aged) = (0, 0, 0);
        let (mut was_due, mut keeps_out) = (None::<&Thread<Bare>>, false);
        let mut outside: VecDeque<_> = threads.into();
        for _ in 0..rounds(5000) {
            now += pick(2) * MOST_NS;
            match pick(7) {
                0 | 1 => {
                    if let Some(thread) = outside.pop_front() {
                        let used = MOST_NS / (pick(3) + 1);
                        ready.push_spent(&kernel, By::Others, thread, used);
                        spent.push_back((thread, time + used));
                    }
                }
                2 => {
                    if let Some(thread) = outside.pop_front() {
                        ready.push_back(&kernel, By::Others, thread);
                        woken.push_back(thread);
                    }
                }
                3 if pick(4) == 0 => {
                    if let Some(thread) = outside.pop_front() {
                        ready.push_last(&kernel, By::Others, thread);
                        woken.extend(spent.drain(..).map(|(thread, _)| thread));
                        woken.push_back(thread);
                    }
                }
                4 if pick(4) == 0 => {
                    let wait = woken.len() + spent.len();
                    ready.age(&kernel, By::Others, now);
                    if wait != 0 {
                        time += (now - aged).min(MOST_NS) / (wait as u64 + 1);
                        aged = now;
                    }
                    if let Some(&(thread, due)) = spent.front()
                        && wait != 0
                        && due <= time
                    {
                        let last = woken.back().map(|last| core::ptr::from_ref(*last));
                        let is_behind = last.is_some() && last == was_due.map(core::ptr::from_ref);
                        keeps_out = is_behind && !keeps_out;
                        if !keeps_out {
                            spent.pop_front();
                            woken.push_back(thread);
                            was_due = Some(thread);
                        }
                    }
                }
                which => {
                    let taken = match which % 2 {
                        0 => ready.pop(&kernel, By::Others),
                        _ => ready.steal(&kernel),
                    };
                    let expected = woken.pop_front().or_else(|| {
                        let (thread, due) = spent.pop_front()?;
                        time = time.max(due);
                        Some(thread)
                    });
                    assert_eq!(taken.is_some(), expected.is_some());
                    if let (Some(taken), Some(expected)) = (taken, expected) {
                        assert!(core::ptr::eq(taken, expected));
                        outside.push_back(taken);
                    }
                }
            }
            assert_eq!(ready.len(), woken.len() + spent.len());
            assert_eq!(ready.woken_wait(&kernel, By::Others), woken.len() > 1);
            let only_spent = ready.only_spent_wait(&kernel, By::Others);
            assert_eq!(only_spent, woken.is_empty());
        }
    }

    /// Many threads compute, on a processor of which another program has half. One that is woken now and then, and computes
    /// little, waits for a few of them only, from when all have run some times.
    #[test]
    fn a_thread_that_is_woken_waits_for_few_that_compute() {
        const OTHERS: usize = 31;
        let kernel = Bare::new();
        let threads: [&Thread<Bare>; OTHERS + 1] = kernel.threads();
        let ready = ReadyList::new();
        let waits = threads[0];
        for thread in &threads[1..] {
            ready.push_back(&kernel, By::Others, thread);
        }
        let (mut now, mut woken_at) = (0, None);
        for slice in 0..rounds(3000) as usize {
            let mut running = ready.pop(&kernel, By::Others).unwrap();
            if core::ptr::eq(running, waits) {
                let waited = slice - woken_at.take().unwrap();
                assert!(waited <= 2, "it waited for {waited} slices");
                running = ready.pop(&kernel, By::Others).unwrap();
            }
            if slice % 7 == 0 && slice > 3 * OTHERS && woken_at.is_none() {
                ready.push_back(&kernel, By::Others, waits);
                woken_at = Some(slice);
            }
            now += MOST_NS;
            ready.age_by_slice(&kernel, By::Others, now);
            ready.push_spent(&kernel, By::Others, running, MOST_NS / 2);
        }
    }

    /// Threads that are woken again and again want all of a processor, in turns of 0.2 ms. A thread that computes has its
    /// share all the same, and no more: it is interrupted at the end of each slice.
    #[test]
    fn a_thread_that_computes_has_its_share_beside_threads_that_are_always_woken() {
        const OTHERS: usize = 7;
        const TURN_NS: u64 = 200_000;
        let kernel = Bare::new();
        let threads: [&Thread<Bare>; OTHERS + 1] = kernel.threads();
        let ready = ReadyList::new();
        let computes = threads[0];
        for thread in threads {
            ready.push_back(&kernel, By::Others, thread);
        }
        let (mut now, mut had) = (0, 0);
        for slice in 1..=rounds(2000) as u64 {
            let end = slice * MOST_NS;
            while now < end {
                let running = ready.pop(&kernel, By::Others).unwrap();
                if core::ptr::eq(running, computes) {
                    had += end - now;
                    ready.age_by_slice(&kernel, By::Others, end);
                    ready.push_spent(&kernel, By::Others, running, end - now);
                    now = end;
                } else {
                    now += TURN_NS;
                    ready.age(&kernel, By::Others, now);
                    ready.push_back(&kernel, By::Others, running);
                }
            }
        }
        let share = now / (OTHERS as u64 + 1);
        assert!(
            had > share * 2 / 3 && had < share * 3 / 2,
            "{had} ns of {now}, {share} are its share"
        );
    }
}
