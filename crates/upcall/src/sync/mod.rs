//! Synchronization between threads, with the shape of [`std::sync`].
//!
//! A thread of the runtime that has to wait gives its virtual processor to another one, without the kernel. Any other
//! kernel thread waits in futex(2). Everything works without a runtime, too.
//!
//! This module adds to `std`: waits for locks with a time limit, and [`Semaphore`]. Its [`mpsc`], [`Once`],
//! [`OnceLock`] and [`LazyLock`] are std's own: they wait by futex(2), which the runtime serves.

mod barrier;
mod condvar;
mod holder;
pub(crate) mod mutex;
mod poison;
mod rwlock;
pub(crate) mod rwlock_raw;
mod semaphore;

use std::fmt;
use std::ops::Deref;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Semaphore;
pub use std::sync::{
    LazyLock, LockResult, Once, OnceLock, OnceState, PoisonError, TryLockError, TryLockResult, mpsc,
};

/// What a lock prints of itself: the value, if the lock is free.
fn debug_lock<G: Deref<Target: fmt::Debug>>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    guard: TryLockResult<G>,
    poisoned: bool,
) -> fmt::Result {
    let mut lock = f.debug_struct(name);
    match guard {
        Ok(guard) => lock.field("data", &&*guard),
        Err(TryLockError::Poisoned(error)) => lock.field("data", &&**error.get_ref()),
        Err(TryLockError::WouldBlock) => lock.field("data", &format_args!("<locked>")),
    };
    lock.field("poisoned", &poisoned).finish_non_exhaustive()
}

/// The guard of a lock that was just taken, or [`TryLockError::WouldBlock`].
#[inline]
fn attempt<G>(taken: bool, guard: impl FnOnce() -> LockResult<G>) -> TryLockResult<G> {
    if taken {
        Ok(guard()?)
    } else {
        Err(TryLockError::WouldBlock)
    }
}

/// What every lock around a `value` has, with its `poison`. It is printed under the guard of `$look`.
macro_rules! lock {
    ($name:ident, $look:ident) => {
        // SAFETY: the value moves along; the lock itself belongs to no thread.
        unsafe impl<T: ?Sized + Send> Send for $name<T> {}

        // A panic in the midst of a change is what poisoning tells of.
        impl<T: ?Sized> std::panic::UnwindSafe for $name<T> {}
        impl<T: ?Sized> std::panic::RefUnwindSafe for $name<T> {}

        impl<T> $name<T> {
            /// Returns the value, without the lock.
            ///
            /// # Errors
            ///
            /// The lock is poisoned; the error holds the value.
            pub fn into_inner(self) -> LockResult<T> {
                let $name { poison, value, .. } = self;
                poison.answer(value.into_inner())
            }
        }

        impl<T: ?Sized> $name<T> {
            /// Returns true if the lock is poisoned at some moment.
            #[inline]
            pub fn is_poisoned(&self) -> bool {
                self.poison.get()
            }

            /// Clears the poisoning: the caller has found the value right, or has put it right.
            ///
            /// ```
            /// let mutex = upcall::sync::Mutex::new(1);
            /// let panicked = std::panic::catch_unwind(|| {
            ///     let _guard = mutex.lock().unwrap();
            ///     panic!("in the midst");
            /// });
            /// assert!(panicked.is_err() && mutex.is_poisoned());
            /// let mut guard = mutex.lock().unwrap_or_else(|poisoned| {
            ///     mutex.clear_poison();
            ///     poisoned.into_inner()
            /// });
            /// *guard = 2;
            /// drop(guard);
            /// assert_eq!(*mutex.lock().unwrap(), 2);
            /// ```
            pub fn clear_poison(&self) {
                self.poison.clear();
            }

            /// Returns the value. The caller has the lock to itself and need not take it.
            ///
            /// # Errors
            ///
            /// The lock is poisoned; the error holds the reference.
            pub fn get_mut(&mut self) -> LockResult<&mut T> {
                self.poison.answer(self.value.get_mut())
            }
        }

        impl<T: Default> Default for $name<T> {
            fn default() -> Self {
                $name::new(T::default())
            }
        }

        impl<T> From<T> for $name<T> {
            fn from(value: T) -> Self {
                $name::new(value)
            }
        }

        impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                crate::sync::debug_lock(f, stringify!($name), self.$look(), self.is_poisoned())
            }
        }
    };
}
use lock;

/// What every guard of a `lock` has. `mutable`: it has the lock to itself.
macro_rules! guard {
    ($name:ident, mutable) => {
        crate::sync::guard!($name);

        impl<T: ?Sized> std::ops::DerefMut for $name<'_, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: the guard alone has the lock, and is borrowed as a whole.
                unsafe { &mut *self.lock.value.get() }
            }
        }
    };
    ($name:ident) => {
        // SAFETY: a shared guard gives shared access to the value.
        unsafe impl<T: ?Sized + Sync> Sync for $name<'_, T> {}

        impl<T: ?Sized> std::ops::Deref for $name<'_, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: the guard has the lock: nobody else changes the value.
                unsafe { &*self.lock.value.get() }
            }
        }

        impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + std::fmt::Display> std::fmt::Display for $name<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}
use guard;
