//! A panic while a lock is held leaves what it protects in doubt: the lock is poisoned, as in `std`.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LockResult, PoisonError};
use std::thread;

/// Whether a lock is poisoned. Relaxed throughout: the thread that asks has the lock, or asks for some moment.
pub(super) struct Flag {
    poisoned: AtomicBool,
}

impl UnwindSafe for Flag {}
impl RefUnwindSafe for Flag {}

/// What a guard remembers: whether its thread was panicking when it took the lock.
pub(super) struct Holder {
    panicking: bool,
}

impl Flag {
    pub(super) const fn new() -> Self {
        Flag {
            poisoned: AtomicBool::new(false),
        }
    }

    /// For a guard of a lock that was just taken.
    #[inline]
    pub(super) fn holder(&self) -> Holder {
        Holder {
            panicking: thread::panicking(),
        }
    }

    /// The guard ends.
    #[inline]
    pub(super) fn release(&self, holder: &Holder) {
        if !holder.panicking && thread::panicking() {
            self.poisoned.store(true, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn get(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    pub(super) fn clear(&self) {
        self.poisoned.store(false, Ordering::Relaxed);
    }

    /// What a lock answers: an error if it is poisoned, which holds the same.
    #[inline]
    pub(super) fn answer<T>(&self, held: T) -> LockResult<T> {
        if self.get() {
            Err(PoisonError::new(held))
        } else {
            Ok(held)
        }
    }
}
