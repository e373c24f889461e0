//! A counting semaphore (Dijkstra's; sem_overview(7)).

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::futex::{self, AtomicU32, Deadline};

/// A number of permits: who takes one waits until there is one.
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
    permits: AtomicU32,
    /// How many wait, or are about to.
    waiting: AtomicU32,
}

impl Semaphore {
    constant! {
        /// A semaphore with so many permits.
        pub const fn new(permits: u32) -> Self {
            Semaphore {
                permits: AtomicU32::new(permits),
                waiting: AtomicU32::new(0),
            }
        }
    }

    /// Takes a permit if there is one; says whether there was.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        let mut permits = self.permits.load(Ordering::Relaxed);
        while permits != 0 {
            // Acquire: pairs with the Release in `release`.
            match self.permits.compare_exchange_weak(
                permits,
                permits - 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => permits = now,
            }
        }
        false
    }

    /// Takes a permit; waits until there is one.
    #[inline]
    pub fn acquire(&self) {
        if !self.try_acquire() {
            self.wait(None);
        }
    }

    /// As [`Semaphore::acquire`], for at most so long; says whether it took one.
    pub fn acquire_timeout(&self, timeout: Duration) -> bool {
        self.try_acquire() || self.wait(Deadline::after(timeout))
    }

    /// As [`Semaphore::acquire`], until a moment.
    #[cfg(not(loom))]
    pub(crate) fn acquire_until(&self, deadline: Option<Deadline>) -> bool {
        self.try_acquire() || self.wait(deadline)
    }

    /// Whether somebody waits, at some moment.
    #[cfg(not(loom))]
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn wait(&self, deadline: Option<Deadline>) -> bool {
        // SeqCst: counted before the look at the permits; who releases one looks here afterwards.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let taken = loop {
            if self.try_acquire() {
                break true;
            }
            if !futex::wait(&self.permits, 0, deadline) {
                break self.try_acquire();
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken
    }

    /// Gives a permit.
    ///
    /// # Panics
    ///
    /// There are 4,294,967,295 already.
    #[inline]
    pub fn release(&self) {
        assert!(
            self.try_release(),
            "a semaphore with more than 4,294,967,295 permits"
        );
    }

    /// Gives a permit, unless there are 4,294,967,295 already; says whether it did.
    #[inline]
    pub fn try_release(&self) -> bool {
        let mut permits = self.permits.load(Ordering::Relaxed);
        loop {
            let Some(more) = permits.checked_add(1) else {
                return false;
            };
            // SeqCst: pairs with `wait`; Release: with `try_acquire`.
            match self.permits.compare_exchange_weak(
                permits,
                more,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => permits = now,
            }
        }
        if self.waiting.load(Ordering::SeqCst) != 0 {
            futex::wake(&self.permits, 1);
        }
        true
    }

    /// How many permits there are at some moment.
    pub fn permits(&self) -> u32 {
        self.permits.load(Ordering::Relaxed)
    }
}
