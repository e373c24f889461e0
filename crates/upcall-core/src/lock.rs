//! A spin lock for short sections of the runtime.
//!
//! The holder is always inside the runtime, so it is not replaced while it holds the lock; the
//! kernel may still preempt it. A waiter therefore spins briefly and then yields its processor
//! through the kernel: the holder may be waiting for that very processor.

use crate::sync::UnsafeCell;
use crate::sync::{AtomicBool, Ordering, test_and_set};
use core::ops::{Deref, DerefMut};

use crate::machine::Machine;

/// Spins before a waiter yields the processor.
const SPINS: u32 = 100;

/// One step of waiting for a lock's holder.
#[cold]
pub(crate) fn spin<K: Machine>(kernel: &K, spins: &mut u32) {
    *spins += 1;
    if *spins < SPINS {
        crate::sync::spin_loop();
    } else {
        *spins = 0;
        kernel.await_holder();
    }
}

/// A value behind a spin lock.
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a `Guard`, and there is one guard at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// An open lock around `value`.
    pub const fn new(value: T) -> Self {
        SpinLock {
            held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock. Only inside the runtime.
    #[inline]
    pub fn lock<K: Machine>(&self, kernel: &K) -> Guard<'_, T> {
        kernel.locks();
        // Acquire: pairs with the Release in `Guard::drop` and `unlock`.
        if test_and_set(&self.held, Ordering::Acquire) {
            self.wait(kernel);
        }
        Guard { lock: self }
    }

    #[cold]
    fn wait<K: Machine>(&self, kernel: &K) {
        let mut spins = 0;
        loop {
            while self.held.load(Ordering::Relaxed) {
                spin(kernel, &mut spins);
            }
            if !test_and_set(&self.held, Ordering::Acquire) {
                return;
            }
        }
    }

    /// Opens a lock whose guard was forgotten: a section that ends on another stack.
    ///
    /// # Safety
    ///
    /// The caller must have obtained the guard and forgotten it, and must not touch the value any more.
    pub unsafe fn unlock(&self) {
        // Release: pairs with the Acquire in `lock`.
        self.held.store(false, Ordering::Release);
    }
}

/// Holds a [`SpinLock`]; opens it when dropped.
pub struct Guard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof of exclusive access.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard itself is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `SpinLock::lock`.
        self.lock.held.store(false, Ordering::Release);
    }
}
