//! A counting semaphore (Dijkstra's; sem_overview(7)).
//!
//! One word counts the permits and those that wait: the operation that gives a permit tells if a thread is to be
//! woken. It is its thread's last access to the semaphore: a thread that has waited for another one's permit may give
//! the memory back while that one has not returned yet.
//!
//! A thread of the runtime that waits without others and without a time limit is not counted: it is in the word itself, and
//! a permit is handed to it ([`waiting::alone`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::waiting::{self, Alone, AtomicU64, Deadline, LONE};

/// One that waits, or is about to; below it the permits are counted.
const WAITS: u64 = 1 << 32;

/// A number of permits. A thread that takes one waits until there is one.
///
/// ```
/// let permits = upcall::sync::Semaphore::new(1);
/// permits.acquire();
/// assert!(!permits.try_acquire());
/// permits.release();
/// assert!(permits.try_acquire());
/// ```
#[derive(Debug)]
pub struct Semaphore {
    state: AtomicU64,
}

const fn permits(state: u64) -> u32 {
    if is_lone(state) { 0 } else { state as u32 }
}

/// A thread waits alone, and is in the word.
const fn is_lone(state: u64) -> bool {
    state & LONE != 0
}

impl Semaphore {
    constant! {
        /// Makes a semaphore with so many permits.
        pub const fn new(permits: u32) -> Self {
            Semaphore {
                state: AtomicU64::new(permits as u64),
            }
        }
    }

    /// Takes a permit if there is one; returns true if there was.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        self.take(0, false)
    }

    /// Takes a permit if there is one, and takes `waits` away with it; also without a permit if the wait is
    /// `given_up`. Returns true if it took a permit.
    #[inline]
    fn take(&self, waits: u64, given_up: bool) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let permit = u64::from(permits(state) != 0);
            if permit == 0 && !given_up {
                return false;
            }
            // Acquire: pairs with the Release in `try_release`.
            match self.state.compare_exchange_weak(
                state,
                state - waits - permit,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return permit != 0,
                Err(now) => state = now,
            }
        }
    }

    /// Takes a permit. Waits until there is one.
    #[inline]
    pub fn acquire(&self) {
        if !self.try_acquire() {
            self.wait(None);
        }
    }

    /// As [`Semaphore::acquire`], with a time limit. Returns true if it took one.
    pub fn acquire_timeout(&self, timeout: Duration) -> bool {
        self.try_acquire() || self.wait(Deadline::after(timeout))
    }

    /// As [`Semaphore::acquire`], until a moment.
    #[cfg(not(loom))]
    pub(crate) fn acquire_until(&self, deadline: Option<Deadline>) -> bool {
        self.try_acquire() || self.wait(deadline)
    }

    /// Returns true if a thread waits, at some moment.
    #[cfg(any(not(loom), test))]
    pub(crate) fn is_awaited(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= WAITS
    }

    #[cold]
    fn wait(&self, deadline: Option<Deadline>) -> bool {
        while deadline.is_none() && self.state.load(Ordering::Relaxed) == 0 {
            match waiting::alone(&self.state) {
                Alone::Handed => return true,
                Alone::Moved => return self.wait_counted(None),
                Alone::Again => {}
                Alone::Cannot => break,
            }
        }
        self.count_in();
        self.wait_counted(deadline)
    }

    /// One more waits, and is counted; so is the one that has waited alone.
    fn count_in(&self) {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if is_lone(state) {
                let key = waiting::low(&self.state);
                if waiting::move_lone(&self.state, state, 2 * WAITS, key) {
                    return;
                }
                state = self.state.load(Ordering::Relaxed);
                continue;
            }
            // Relaxed: a thread that gives a permit changes the same word.
            match self.state.compare_exchange_weak(
                state,
                state + WAITS,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }

    /// The caller is counted.
    fn wait_counted(&self, deadline: Option<Deadline>) -> bool {
        loop {
            if self.take(WAITS, false) {
                return true;
            }
            if !waiting::wait(waiting::low(&self.state), 0, deadline) {
                return self.take(WAITS, true);
            }
        }
    }

    /// Gives a permit.
    ///
    /// # Panics
    ///
    /// If there are 4,294,967,295 permits already.
    #[inline]
    pub fn release(&self) {
        assert!(
            self.try_release(),
            "a semaphore with more than 4,294,967,295 permits"
        );
    }

    /// Gives a permit, unless there are 4,294,967,295 already; returns true if it did.
    #[inline]
    pub fn try_release(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if is_lone(state) {
                if self.hand(state) {
                    return true;
                }
                state = self.state.load(Ordering::Relaxed);
                continue;
            }
            if permits(state) == u32::MAX {
                return false;
            }
            // Release: pairs with the Acquire in `take`.
            match self.state.compare_exchange_weak(
                state,
                state + 1,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if state >= WAITS {
            waiting::wake(waiting::low(&self.state), 1);
        }
        true
    }

    /// To the one that waits alone, if it still does.
    #[cold]
    fn hand(&self, state: u64) -> bool {
        waiting::hand(&self.state, state, 1)
    }

    /// Returns how many permits there were at some moment.
    pub fn permits(&self) -> u32 {
        permits(self.state.load(Ordering::Relaxed))
    }
}
