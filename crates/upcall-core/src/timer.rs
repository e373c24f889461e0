//! Deadlines of parked threads: a four-way heap of threads, in one mapping reserved for ever.
//!
//! The heap knows each thread's place, so that a thread that was woken in time takes its deadline
//! back in O(log n). The alarm of the kernel is set only when an earlier deadline appears; one
//! that rings for nothing costs a look.
//!
//! A deadline may be met late by its thread's slack ([`Poll::slack`]), so that one alarm serves
//! several: as in the kernel, the order is that of the latest times at which threads may run, the
//! alarm rings at the first of them, and then everybody runs whose deadline has passed, up to the
//! first in that order whose deadline has not.

use core::sync::atomic::Ordering;

use crate::kernel::Poll;
use crate::lock::SpinLock;
use crate::machine::Errno;
use crate::slot::Slot;
use crate::state::thread::{Claim, Thread, ThreadList, WakeReason};
use crate::sync::CHECKED;

/// The most deadlines at a time, at least as many as there can be threads: address space, not memory,
/// is reserved for them.
const CAPACITY: usize = if CHECKED { 16 } else { 1 << 22 };
const WAYS: usize = 4;

struct Heap<K: Poll> {
    places: &'static [Slot<Thread<K>>],
    len: usize,
    /// When the kernel's alarm rings, `u64::MAX` when it is not set.
    alarm: u64,
}

// SAFETY: references to threads, whose fields are atomics, behind a lock.
unsafe impl<K: Poll> Send for Heap<K> {}

/// The deadlines of a runtime.
pub(crate) struct Timers<K: Poll>(SpinLock<Heap<K>>);

impl<K: Poll> Timers<K> {
    /// With room for a deadline of every thread: a wait cannot fail for want of memory, which no program
    /// expects of a wait.
    pub(crate) fn new(kernel: &K) -> Result<Self, Errno> {
        Ok(Timers(SpinLock::new(Heap {
            places: reserve(kernel)?,
            len: 0,
            alarm: u64::MAX,
        })))
    }

    /// Adds a deadline for a thread that has none.
    pub(crate) fn insert(&self, kernel: &K, thread: &'static Thread<K>, deadline: u64) {
        let mut heap = self.0.lock(kernel);
        if heap.len == CAPACITY {
            kernel.broken("more deadlines than there can be threads");
        }
        let latest = deadline.saturating_add(kernel.slack(thread));
        thread.deadline.store(deadline, Ordering::Relaxed);
        thread.latest.store(latest, Ordering::Relaxed);
        let last = heap.len;
        heap.len += 1;
        heap.put(last, thread);
        heap.rise(last);
        if latest < heap.alarm {
            heap.alarm = latest;
            kernel.set_alarm(latest);
        }
    }

    /// Takes a thread's deadline back, if it still has one.
    #[inline]
    pub(crate) fn remove(&self, kernel: &K, thread: &'static Thread<K>) {
        if thread.heap_place.load(Ordering::Acquire) != 0 {
            self.take_out(kernel, thread);
        }
    }

    #[cold]
    fn take_out(&self, kernel: &K, thread: &'static Thread<K>) {
        let mut heap = self.0.lock(kernel);
        let place = thread.heap_place.load(Ordering::Relaxed);
        if place != 0 {
            heap.take(place as usize - 1);
        }
    }

    /// Claims every thread whose deadline has passed at `now` and adds the parked ones to `list`.
    pub(crate) fn expire(&self, kernel: &K, now: u64, list: &mut ThreadList<K>) {
        let mut heap = self.0.lock(kernel);
        while let Some(first) = heap.first() {
            if first.deadline.load(Ordering::Relaxed) > now {
                break;
            }
            // Claimed before it leaves the heap: one that was woken by another takes its deadline back
            // before it can wait for something else, and waits here for the lock to do so.
            if first.claim(WakeReason::TimedOut) == Claim::Ready {
                list.push_back(first);
            }
            heap.take(0);
        }
        let next = heap
            .first()
            .map_or(u64::MAX, |thread| thread.latest.load(Ordering::Relaxed));
        if heap.alarm <= now || next < heap.alarm {
            heap.alarm = next;
            kernel.set_alarm(next);
        }
    }

    /// Returns true if nobody waits for a deadline.
    pub(crate) fn is_empty(&self, kernel: &K) -> bool {
        self.0.lock(kernel).len == 0
    }
}

fn reserve<K: Poll>(kernel: &K) -> Result<&'static [Slot<Thread<K>>], Errno> {
    let memory = kernel.map(CAPACITY * size_of::<Slot<Thread<K>>>())?;
    // SAFETY: mapped for ever, zeroed (a zero slot is an empty slot), aligned to a page, and large enough.
    Ok(unsafe { core::slice::from_raw_parts(memory.as_ptr().cast(), CAPACITY) })
}

impl<K: Poll> Heap<K> {
    fn at(&self, place: usize) -> Option<&'static Thread<K>> {
        self.places.get(place)?.get(Ordering::Relaxed)
    }

    fn first(&self) -> Option<&'static Thread<K>> {
        if self.len == 0 { None } else { self.at(0) }
    }

    fn latest(&self, place: usize) -> u64 {
        self.at(place)
            .map_or(u64::MAX, |thread| thread.latest.load(Ordering::Relaxed))
    }

    fn put(&self, place: usize, thread: &'static Thread<K>) {
        self.places[place].set(Some(thread), Ordering::Relaxed);
        // Release: pairs with the Acquire in `remove`.
        thread.heap_place.store(place as u32 + 1, Ordering::Release);
    }

    fn rise(&mut self, mut place: usize) {
        let Some(thread) = self.at(place) else { return };
        let latest = thread.latest.load(Ordering::Relaxed);
        while place > 0 {
            let parent = (place - 1) / WAYS;
            let Some(above) = self.at(parent) else { return };
            if above.latest.load(Ordering::Relaxed) <= latest {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        self.put(place, thread);
    }

    fn sink(&mut self, mut place: usize) {
        let Some(thread) = self.at(place) else { return };
        let latest = thread.latest.load(Ordering::Relaxed);
        loop {
            let children = WAYS * place + 1..(WAYS * place + 1 + WAYS).min(self.len);
            let Some(least) = children.min_by_key(|&child| self.latest(child)) else {
                break;
            };
            let Some(below) = self.at(least) else { break };
            if below.latest.load(Ordering::Relaxed) >= latest {
                break;
            }
            self.put(place, below);
            place = least;
        }
        self.put(place, thread);
    }

    fn take(&mut self, place: usize) {
        let Some(thread) = self.at(place) else { return };
        self.len -= 1;
        let last = self.at(self.len);
        if let Some(last) = last
            && place < self.len
        {
            self.put(place, last);
            self.rise(place);
            self.sink(last.heap_place.load(Ordering::Relaxed) as usize - 1);
        }
        thread.heap_place.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::thread::Phase;
    use crate::testing::{Bare, numbers, rounds};
    use core::sync::atomic::AtomicBool;
    use std::collections::BTreeMap;

    /// Against a sorted map: what expires and when, with deadlines taken back in between, and with
    /// slack that differs.
    #[test]
    fn a_heap_is_a_sorted_map() {
        for seed in 1..=rounds(50).into() {
            let kernel = Bare::new();
            let mut pick = numbers(seed * 7919);
            let threads: [&Thread<Bare>; 64] = kernel.threads();
            let timers = Timers::new(&kernel).unwrap();
            // By the latest time and the thread: the deadline.
            let mut model = BTreeMap::new();
            let mut now = 0;
            for _ in 0..400 {
                let number = pick(64) as usize;
                let thread = threads[number];
                let armed = model.keys().find(|(_, armed)| *armed == number).copied();
                match (pick(4), armed) {
                    (0 | 1, None) => {
                        let deadline = now + pick(1000);
                        let slack = pick(3) * 50;
                        kernel.slack.store(slack, Ordering::Relaxed);
                        thread.state.store(Phase::Parked, Ordering::Relaxed);
                        timers.insert(&kernel, thread, deadline);
                        model.insert((deadline + slack, number), deadline);
                    }
                    (2, Some(key)) => {
                        timers.remove(&kernel, thread);
                        model.remove(&key);
                    }
                    (3, _) => {
                        now += pick(200);
                        let mut list = ThreadList::new();
                        timers.expire(&kernel, now, &mut list);
                        let mut last = 0;
                        while let Some(expired) = list.pop_front() {
                            assert_eq!(expired.state.load(Ordering::Relaxed), Phase::Ready);
                            let at = threads
                                .iter()
                                .position(|thread| core::ptr::eq(*thread, expired));
                            let latest = expired.latest.load(Ordering::Relaxed);
                            assert!(latest >= last, "seed {seed}: out of order");
                            last = latest;
                            let deadline = model.remove(&(latest, at.unwrap()));
                            assert!(deadline.is_some_and(|it| it <= now), "seed {seed}");
                        }
                        // Of those at the front, which may be several, one is not due.
                        let front = model.keys().next().map(|&(latest, _)| latest);
                        let mut fronts = model.iter().filter(|it| Some(it.0.0) == front);
                        assert!(
                            front.is_none() || fronts.any(|(_, &deadline)| deadline > now),
                            "seed {seed}"
                        );
                    }
                    _ => {}
                }
                // The alarm rings no later than somebody must run.
                if let Some(&(latest, _)) = model.keys().next() {
                    assert!(
                        kernel.alarm.load(Ordering::Relaxed) <= latest,
                        "seed {seed}"
                    );
                }
                assert_eq!(timers.is_empty(&kernel), model.is_empty());
            }
        }
    }

    /// Two deadlines within the slack of the first are met by one alarm, and neither before its time.
    #[test]
    fn deadlines_within_the_slack_share_an_alarm() {
        let kernel = Bare::new();
        kernel.slack.store(50, Ordering::Relaxed);
        let threads: [&Thread<Bare>; 3] = kernel.threads();
        let timers = Timers::new(&kernel).unwrap();
        for (thread, deadline) in threads.into_iter().zip([1000, 1040, 1060]) {
            thread.state.store(Phase::Parked, Ordering::Relaxed);
            timers.insert(&kernel, thread, deadline);
            assert_eq!(kernel.alarm.load(Ordering::Relaxed), 1050);
        }
        let mut list = ThreadList::new();
        timers.expire(&kernel, 999, &mut list);
        assert!(list.is_empty());
        timers.expire(&kernel, 1050, &mut list);
        assert_eq!(list.iter().count(), 2);
        assert_eq!(kernel.alarm.load(Ordering::Relaxed), 1110);
    }

    /// One that may not be late is not kept by another's slack.
    #[test]
    fn a_thread_without_slack_is_on_time() {
        let kernel = Bare::new();
        let [late, exact] = kernel.threads();
        let timers = Timers::new(&kernel).unwrap();
        for (thread, deadline, slack) in [(late, 1000, 500), (exact, 1100, 0)] {
            kernel.slack.store(slack, Ordering::Relaxed);
            thread.state.store(Phase::Parked, Ordering::Relaxed);
            timers.insert(&kernel, thread, deadline);
        }
        assert_eq!(kernel.alarm.load(Ordering::Relaxed), 1100);
        let mut list = ThreadList::new();
        timers.expire(&kernel, 1100, &mut list);
        assert_eq!(list.iter().count(), 2);
    }

    /// A thread whose deadline has just passed was woken, took its deadline back, and waits without one.
    #[test]
    fn a_wait_without_a_deadline_does_not_time_out() {
        const ROUNDS: u32 = rounds(100_000);
        let kernel = Bare::new();
        let [thread] = kernel.threads();
        let timers = Timers::new(&kernel).unwrap();
        let done = AtomicBool::new(false);
        let late = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let mut list = ThreadList::new();
                    timers.expire(&kernel, 1, &mut list);
                    while list.pop_front().is_some() {}
                }
            });
            let late = (0..ROUNDS).find(|round| {
                thread.state.store(Phase::Parked, Ordering::Relaxed);
                timers.insert(&kernel, thread, 1);
                for _ in 0..round % 64 {
                    core::hint::spin_loop();
                }
                thread.claim(WakeReason::Woken);
                thread.state.store(Phase::Running, Ordering::SeqCst);
                timers.remove(&kernel, thread);
                thread.state.store(Phase::Parked, Ordering::SeqCst);
                for _ in 0..64 {
                    core::hint::spin_loop();
                }
                thread.claim(WakeReason::Woken) != Claim::Ready
            });
            done.store(true, Ordering::Relaxed);
            late
        });
        assert_eq!(late, None, "round in which it did");
    }

    #[test]
    fn a_deadline_that_was_taken_back_does_not_expire() {
        let kernel = Bare::new();
        let [one, two] = kernel.threads();
        let timers = Timers::new(&kernel).unwrap();
        timers.insert(&kernel, one, 5);
        timers.insert(&kernel, two, 3);
        timers.remove(&kernel, two);
        timers.remove(&kernel, two);
        let mut list = ThreadList::new();
        one.state.store(Phase::Parked, Ordering::Relaxed);
        timers.expire(&kernel, 4, &mut list);
        assert!(list.is_empty());
        timers.expire(&kernel, 5, &mut list);
        assert_eq!(list.iter().count(), 1);
        assert_eq!(kernel.alarm.load(Ordering::Relaxed), u64::MAX);
    }
}
