//! Mutual exclusion (Dijkstra; Drepper, *Futexes Are Tricky*, 2011: the mutex with three states).

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::{LockResult, TryLockError, TryLockResult};
use std::time::Duration;

use super::holder::Holder;
use super::poison::{self, Flag};
use crate::futex::{self, AtomicU32, Deadline};

const FREE: u32 = 0;
/// Held, and nobody waits.
const HELD: u32 = 1;
/// Held, and somebody may wait: who frees it wakes one.
const AWAITED: u32 = 2;

/// The lock without what it protects.
pub struct Raw {
    state: AtomicU32,
    holder: Holder,
}

impl Default for Raw {
    fn default() -> Self {
        Raw::new()
    }
}

impl Raw {
    constant! {
        /// A lock that is free; all its bytes are zero.
        pub const fn new() -> Self {
            Raw {
                state: AtomicU32::new(FREE),
                holder: Holder::new(),
            }
        }
    }

    #[inline]
    fn take(&self) -> bool {
        // Acquire: pairs with the Release in `unlock`.
        self.state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes it if it is free; says whether it was.
    #[inline]
    pub fn try_lock(&self) -> bool {
        let taken = self.take();
        if taken {
            self.holder.took();
        }
        taken
    }

    /// Takes it, and waits until it is free.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.wait(None);
        }
    }

    /// As [`Raw::lock`], until `deadline`, if there is one; says whether it has the lock.
    #[cfg(not(loom))]
    #[inline]
    pub fn lock_until(&self, deadline: Option<Deadline>) -> bool {
        self.try_lock() || self.wait(deadline)
    }

    /// Returns whether it has the lock. The clock is read only if it has to wait.
    #[inline]
    fn lock_timeout(&self, timeout: Duration) -> bool {
        self.try_lock() || self.wait(Deadline::after(timeout))
    }

    /// Frees it, whoever has it; says whether anybody had it.
    #[inline]
    pub fn unlock(&self) -> bool {
        // Release: pairs with the Acquire of whoever takes the lock next.
        let before = self.state.swap(FREE, Ordering::Release);
        if before == AWAITED {
            self.wake();
        }
        if before != FREE {
            // Last: what was lent is needed until the lender is woken.
            self.holder.freed(before == AWAITED);
        }
        before != FREE
    }

    /// Whether somebody has it, at some moment.
    #[cfg(not(loom))]
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }

    #[cold]
    fn wait(&self, deadline: Option<Deadline>) -> bool {
        let has_it = self.wait_unnamed(deadline);
        self.holder.waited(has_it);
        has_it
    }

    /// Leaves it to the caller to say that the lock was taken.
    fn wait_unnamed(&self, deadline: Option<Deadline>) -> bool {
        let mut state = self.look();
        if state == FREE {
            if self.take() {
                return true;
            }
            state = HELD;
        }
        loop {
            // Who has waited takes the lock as one that is awaited: it cannot know whether others wait.
            // Acquire: pairs with the Release in `unlock`.
            if state != AWAITED && self.state.swap(AWAITED, Ordering::Acquire) == FREE {
                return true;
            }
            self.holder.lend();
            if !futex::wait(&self.state, AWAITED, deadline) {
                return self
                    .state
                    .compare_exchange(FREE, AWAITED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            }
            state = self.look();
        }
    }

    /// The state, after some looks while it may be freed without a wait.
    fn look(&self) -> u32 {
        let mut looks = None;
        loop {
            let state = self.state.load(Ordering::Relaxed);
            // Others wait already: so do we.
            if state != HELD {
                return state;
            }
            let left = looks.get_or_insert_with(futex::looks);
            if *left == 0 {
                return state;
            }
            *left -= 1;
            std::hint::spin_loop();
        }
    }

    #[cold]
    fn wake(&self) {
        futex::wake(&self.state, 1);
    }
}

/// Protects a value: one thread at a time has access, by a [`MutexGuard`]. As [`std::sync::Mutex`], and so
/// with its poisoning.
///
/// It is not fair: whoever comes while it is free takes it, before those that were woken. Taking and freeing it
/// is one atomic operation each while nobody else wants it.
///
/// ```
/// use std::thread;
/// use upcall::sync::Mutex;
///
/// static COUNT: Mutex<u32> = Mutex::new(0);
///
/// thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| *COUNT.lock().unwrap() += 1);
///     }
/// });
/// assert_eq!(*COUNT.lock().unwrap(), 4);
/// ```
pub struct Mutex<T: ?Sized> {
    raw: Raw,
    poison: Flag,
    value: UnsafeCell<T>,
}

// SAFETY: the value moves along; the lock itself belongs to no thread.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: of the threads that share it one at a time has access to the value.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

// A panic in the midst of a change is what poisoning tells of.
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

/// Access to what a [`Mutex`] protects; the mutex is freed where the guard is dropped.
///
/// ```
/// let mutex = upcall::sync::Mutex::new(String::from("a"));
/// let mut guard = mutex.lock().unwrap();
/// guard.push('b');
/// assert!(mutex.try_lock().is_err());
/// drop(guard);
/// assert_eq!(mutex.into_inner().unwrap(), "ab");
/// ```
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized + 'a> {
    mutex: &'a Mutex<T>,
    holder: poison::Holder,
    /// Freed by the thread that took it, as in std.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    constant! {
        /// A mutex that is free, around a value.
        #[inline]
        pub const fn new(value: T) -> Self {
            Mutex {
                raw: Raw::new(),
                poison: Flag::new(),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// The value, without the mutex.
    ///
    /// # Errors
    ///
    /// The mutex is poisoned; the error holds the value.
    pub fn into_inner(self) -> LockResult<T> {
        let Mutex { poison, value, .. } = self;
        poison.answer(value.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the mutex; waits until it is free. pthread_mutex_lock(3). Who has it already waits for ever.
    ///
    /// # Errors
    ///
    /// A thread panicked while it had the mutex, which is *poisoned* from then on; the error holds the guard.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.raw.lock();
        self.guard()
    }

    /// Takes the mutex if it is free.
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`]: it is not free; [`TryLockError::Poisoned`]: as [`Mutex::lock`].
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if self.raw.try_lock() {
            Ok(self.guard()?)
        } else {
            Err(TryLockError::WouldBlock)
        }
    }

    /// Takes the mutex; waits until it is free, but not longer than so. pthread_mutex_timedlock(3).
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`]: it was not free in time; [`TryLockError::Poisoned`]: as [`Mutex::lock`].
    #[inline]
    pub fn lock_timeout(&self, timeout: Duration) -> TryLockResult<MutexGuard<'_, T>> {
        if self.raw.lock_timeout(timeout) {
            Ok(self.guard()?)
        } else {
            Err(TryLockError::WouldBlock)
        }
    }

    /// The mutex was just taken.
    #[inline]
    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        self.poison.answer(MutexGuard {
            mutex: self,
            holder: self.poison.holder(),
            not_send: PhantomData,
        })
    }

    /// Whether the mutex is poisoned at some moment.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poison.get()
    }

    /// The mutex is not poisoned any more: the value was found right, or was put right.
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

    /// The value: whoever has the mutex to itself needs no lock.
    ///
    /// # Errors
    ///
    /// The mutex is poisoned; the error holds the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.poison.answer(self.value.get_mut())
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// The lock of the guard, for a wait without it.
    #[inline]
    pub(super) fn raw(&self) -> &'a Raw {
        &self.mutex.raw
    }

    /// The guard again after a wait without the lock.
    #[inline]
    pub(super) fn answer(self) -> LockResult<Self> {
        let poison = &self.mutex.poison;
        poison.answer(self)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard has the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard has the lock, and is borrowed as a whole.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.poison.release(&self.holder);
        self.mutex.raw.unlock();
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        super::debug_lock(f, "Mutex", self.try_lock(), self.is_poisoned())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
