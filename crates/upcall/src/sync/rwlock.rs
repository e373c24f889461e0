//! Readers and writers (Courtois, Heymans and Parnas, *Concurrent Control with "Readers" and "Writers"*, 1971).

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::{LockResult, TryLockResult};
use std::time::Duration;

use super::poison::{self, Flag};
use super::rwlock_raw::Raw;

/// Protects a value that any number of threads read at a time, or one changes. As [`std::sync::RwLock`], and so with
/// its poisoning: by a panic with access to change the value.
///
/// A writer that waits keeps later readers out, so that it does not wait for ever. So a thread that reads already must
/// not read a second time: it may wait for itself. When a writer leaves, the readers that wait are woken first.
///
/// ```
/// use std::thread;
/// use upcall::sync::RwLock;
///
/// let lock = RwLock::new(vec![1]);
/// thread::scope(|scope| {
///     scope.spawn(|| lock.write().unwrap().push(2));
///     scope.spawn(|| assert!(lock.read().unwrap().starts_with(&[1])));
/// });
/// assert_eq!(*lock.read().unwrap(), [1, 2]);
/// ```
pub struct RwLock<T: ?Sized> {
    raw: Raw,
    poison: Flag,
    value: UnsafeCell<T>,
}

super::lock!(RwLock, try_read);
// SAFETY: threads that share it share the value, or have it one at a time.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

/// Shared access to what a [`RwLock`] protects, until the guard is dropped.
///
/// ```
/// let lock = upcall::sync::RwLock::new(1);
/// let (one, other) = (lock.read().unwrap(), lock.read().unwrap());
/// assert_eq!(*one + *other, 2);
/// assert!(lock.try_write().is_err());
/// ```
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    lock: &'a RwLock<T>,
    /// Ended by the thread that began it, and looked at behind a panic as the value may be, as in std.
    not_send: PhantomData<*const T>,
}

/// Access to change what a [`RwLock`] protects, until the guard is dropped.
///
/// ```
/// let lock = upcall::sync::RwLock::new(1);
/// let mut guard = lock.write().unwrap();
/// *guard = 2;
/// assert!(lock.try_read().is_err());
/// ```
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a> {
    lock: &'a RwLock<T>,
    holder: poison::Holder,
    not_send: PhantomData<*const ()>,
}

super::guard!(RwLockReadGuard);
super::guard!(RwLockWriteGuard, mutable);

impl<T> RwLock<T> {
    constant! {
        /// Makes a free lock around a value.
        #[inline]
        pub const fn new(value: T) -> Self {
            RwLock {
                raw: Raw::new(),
                poison: Flag::new(),
                value: UnsafeCell::new(value),
            }
        }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer is inside or waits. Then the caller may read. pthread_rwlock_rdlock(3).
    ///
    /// # Errors
    ///
    /// A thread panicked while it had access to change the value: the lock is *poisoned* from then on. The error holds
    /// the guard.
    ///
    /// # Panics
    ///
    /// If there are 536,870,911 readers already.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.raw.read();
        self.reader()
    }

    /// As [`RwLock::read`] if that needs no wait.
    ///
    /// # Errors
    ///
    /// `TryLockError::WouldBlock`: a writer is inside or waits; `TryLockError::Poisoned`: as [`RwLock::read`].
    ///
    /// # Panics
    ///
    /// As [`RwLock::read`].
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        super::attempt(self.raw.try_read(), || self.reader())
    }

    /// As [`RwLock::read`], with a time limit. pthread_rwlock_timedrdlock(3).
    ///
    /// # Errors
    ///
    /// `TryLockError::WouldBlock`: not in time; `TryLockError::Poisoned`: as [`RwLock::read`].
    ///
    /// # Panics
    ///
    /// As [`RwLock::read`].
    #[inline]
    pub fn read_timeout(&self, timeout: Duration) -> TryLockResult<RwLockReadGuard<'_, T>> {
        super::attempt(self.raw.read_timeout(timeout), || self.reader())
    }

    /// Waits until no thread is inside. Then the caller may change the value. pthread_rwlock_wrlock(3). A thread that
    /// is inside already deadlocks.
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`].
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.raw.write();
        self.writer()
    }

    /// As [`RwLock::write`] if no thread is inside.
    ///
    /// # Errors
    ///
    /// `TryLockError::WouldBlock`: a thread is inside; `TryLockError::Poisoned`: as [`RwLock::read`].
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        super::attempt(self.raw.try_write(), || self.writer())
    }

    /// As [`RwLock::write`], with a time limit. pthread_rwlock_timedwrlock(3).
    ///
    /// # Errors
    ///
    /// `TryLockError::WouldBlock`: not in time; `TryLockError::Poisoned`: as [`RwLock::read`].
    #[inline]
    pub fn write_timeout(&self, timeout: Duration) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        super::attempt(self.raw.write_timeout(timeout), || self.writer())
    }

    /// A reader has just entered.
    #[inline]
    fn reader(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.poison.answer(RwLockReadGuard {
            lock: self,
            not_send: PhantomData,
        })
    }

    /// A writer has just entered.
    #[inline]
    fn writer(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.poison.answer(RwLockWriteGuard {
            lock: self,
            holder: self.poison.holder(),
            not_send: PhantomData,
        })
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// The writer becomes a reader, and no other writer comes in between.
    ///
    /// ```
    /// use upcall::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new(1);
    /// let mut writes = lock.write().unwrap();
    /// *writes = 2;
    /// let reads = RwLockWriteGuard::downgrade(writes);
    /// assert_eq!(*reads, *lock.read().unwrap());
    /// ```
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        // Without what its end does, but for the poison: there is no panic between here and there.
        let guard = ManuallyDrop::new(guard);
        guard.lock.poison.release(&guard.holder);
        guard.lock.raw.downgrade();
        RwLockReadGuard {
            lock: guard.lock,
            not_send: PhantomData,
        }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.end_read();
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.poison.release(&self.holder);
        self.lock.raw.end_write();
    }
}
