//! The calls by which threads of the test use the futex.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use upcall_core::Waited;
use upcall_core::WakeReason;
use upcall_core::{LONE, Lone};

use crate::threads::Me;

/// Every bit, as in FUTEX_WAIT and FUTEX_WAKE.
const ANY: u32 = u32::MAX;

fn key(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word) as usize
}

impl Me {
    /// Waits for a wake-up of `word` if it has this value.
    pub fn wait(self, word: &AtomicU32, value: u32, deadline: Option<u64>) -> Waited {
        self.wait_while(word, deadline, || word.load(Ordering::SeqCst) == value)
    }

    /// Waits for a wake-up of `word` if `matches` says so inside the runtime, where no signal is
    /// delivered any more.
    pub fn wait_while(
        self,
        word: &AtomicU32,
        deadline: Option<u64>,
        matches: impl FnOnce() -> bool,
    ) -> Waited {
        self.wait_for(word, ANY, deadline, matches)
    }

    /// As [`Me::wait_while`], for a wake-up with a common bit in `mask`: FUTEX_WAIT_BITSET.
    pub fn wait_for(
        self,
        word: &AtomicU32,
        mask: u32,
        deadline: Option<u64>,
        matches: impl FnOnce() -> bool,
    ) -> Waited {
        let inside = self.runtime.enter();
        let (inside, waited) = inside.futex_wait(key(word), mask, deadline, matches);
        inside.leave();
        self.space
            .awoken
            .set(self.space.awoken.get() + u64::from(waited == Waited::Ended(WakeReason::Woken)));
        self.step();
        if waited == Waited::Ended(WakeReason::TimedOut) {
            assert!(self.machine.clock.get() >= deadline.unwrap(), "early");
        }
        waited
    }

    /// Wakes at most `count` that wait for `word`; says how many.
    pub fn wake(self, word: &'static AtomicU32, count: usize) -> usize {
        self.wake_some(word, count, ANY)
    }

    /// Wakes at most `count` that wait for `word` with a common bit in `mask`: FUTEX_WAKE_BITSET. Returns how many.
    pub fn wake_some(self, word: &'static AtomicU32, count: usize, mask: u32) -> usize {
        let inside = self.runtime.enter();
        let woken = inside.futex_wake(key(word), count, mask);
        self.count_woken(woken);
        inside.leave();
        woken
    }

    /// Changes a word and wakes one that waits for it, in one step for those that come to wait. `change` is told whether a
    /// thread waits, and returns true if it has changed the word. That may be the last use of the word.
    pub fn change_and_wake(self, word: &AtomicU32, change: impl FnOnce(bool) -> bool) -> bool {
        let key = key(word);
        let inside = self.runtime.enter();
        let woken = inside.futex_change_and_wake(key, change);
        self.count_woken(woken.unwrap_or(0));
        inside.leave();
        woken.is_some()
    }

    /// Wakes `wake` that wait for `from`; the others wait for `to` from now on.
    pub fn requeue(self, from: &'static AtomicU32, to: &'static AtomicU32, wake: usize) {
        self.requeue_some([from, to], [wake, usize::MAX], || true);
    }

    /// Wakes at most `wake` that wait for `from`; at most `most` others wait for `to` from now on, provided that
    /// `matches` says so under the locks: FUTEX_CMP_REQUEUE. Returns how many woke, and how many count as moved.
    pub fn requeue_some(
        self,
        [from, to]: [&'static AtomicU32; 2],
        [wake, most]: [usize; 2],
        matches: impl FnOnce() -> bool,
    ) -> Option<(usize, usize)> {
        let inside = self.runtime.enter();
        let moved = inside.futex_requeue(key(from), key(to), wake, most, matches);
        self.count_woken(moved.map_or(0, |(woken, _)| woken));
        inside.leave();
        moved
    }

    /// Wakes at most `first` that wait for `word`, and at most `second` of `other` if `change` says so:
    /// FUTEX_WAKE_OP. Returns how many.
    pub fn wake_op(
        self,
        [word, other]: [&'static AtomicU32; 2],
        [first, second]: [usize; 2],
        change: impl FnOnce() -> bool,
    ) -> usize {
        let inside = self.runtime.enter();
        let woken = inside.futex_wake_op(key(word), first, key(other), second, change);
        self.count_woken(woken);
        inside.leave();
        woken
    }

    /// A word for waits alone.
    pub fn lone_word(self) -> &'static AtomicU64 {
        // SAFETY: the machine's memory is aligned to pages, and nobody else has this page.
        let word = unsafe {
            &*self
                .machine
                .memory(size_of::<AtomicU64>())
                .cast::<AtomicU64>()
        };
        word.store(0, Ordering::SeqCst);
        word
    }

    /// Waits in `word`, if that is 0.
    pub fn wait_alone(self, word: &'static AtomicU64) -> Lone {
        self.wait_alone_while(word, || true)
    }

    /// As [`Me::wait_alone`], if `stays` says so when the thread hangs there.
    pub fn wait_alone_while(
        self,
        word: &'static AtomicU64,
        stays: impl FnOnce() -> bool + Copy,
    ) -> Lone {
        let inside = self.runtime.enter();
        // SAFETY: it is there for the run, and changed by `hand_over` and `move_lone`.
        let (inside, lone) = unsafe { inside.wait_alone(word.as_ptr() as usize, |_| stays()) };
        inside.leave();
        self.step();
        lone
    }

    /// Hands over to the thread that waits in `word` with this content. Returns false if that has changed.
    pub fn hand_over(self, word: &'static AtomicU64, content: u64) -> bool {
        assert!(content & LONE != 0);
        let inside = self.runtime.enter();
        // SAFETY: found there.
        let handed = unsafe { inside.hand_over(word, content) };
        inside.leave();
        handed
    }

    /// Moves that thread to those that wait for `key`. Returns false if the word has changed.
    pub fn move_lone(
        self,
        word: &'static AtomicU64,
        content: u64,
        becomes: u64,
        key_word: &'static AtomicU32,
    ) -> bool {
        assert!(content & LONE != 0);
        let inside = self.runtime.enter();
        // SAFETY: found there.
        let moved = unsafe { inside.move_lone(word, content, becomes, key(key_word)) };
        inside.leave();
        moved
    }

    fn count_woken(self, woken: usize) {
        self.space.woken.set(self.space.woken.get() + woken as u64);
    }
}
