//! In the place of the crate's `sync`, for those files of it that `join` has.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::LockResult;
use std::sync::atomic::AtomicU32;

use crate::join::taker;
use crate::waiting;

/// Protects a value. It lasts for the run in which it was made.
pub(crate) struct Mutex<T> {
    /// In the memory of the machine, since it matters to the futex where it is.
    state: &'static AtomicU32,
    value: UnsafeCell<T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex {
            state: waiting::main().word(0),
            value: UnsafeCell::new(value),
        }
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        waiting::calls_unless_quiet(|me| {
            crate::lock(me, self.state);
            taker::has_lock();
        });
        Ok(MutexGuard(self))
    }
}

/// Access to what a [`Mutex`] protects.
pub(crate) struct MutexGuard<'a, T>(&'a Mutex<T>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mutex is locked.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex is locked, and the guard borrowed.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        waiting::calls_unless_quiet(|me| crate::unlock(me, self.0.state));
    }
}
