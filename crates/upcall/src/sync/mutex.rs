//! Mutual exclusion (Dijkstra; Drepper, *Futexes Are Tricky*, 2011).
//!
//! One word of three flags: `HELD`, `AWAITED`, `WOKEN`. Unlocking an awaited lock wakes one waiter and replaces
//! `AWAITED` by `WOKEN`. While `WOKEN` is set no other waiter is woken, because a wake-up costs more than a typical
//! critical section, and threads that are woken in vain disturb the holder. `WOKEN` is cleared when the woken thread
//! has the lock or waits again. A woken thread cannot know whether others wait, so it locks with `AWAITED` set.
//!
//! The operation that unlocks is its thread's last access to the lock, because the next holder may be the last one and
//! may free the memory. So the thread finds out before, under the futex's own lock, whether a waiter is there to clear
//! `WOKEN`. The kernel does not tell that, so without a runtime `WOKEN` is never set.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::sync::{LockResult, TryLockResult};
use std::time::Duration;

use super::holder::Holder;
use super::poison::{self, Flag};
use crate::waiting::{self, AtomicU32, Deadline, Patience, Waited};

const FREE: u32 = 0;
/// Somebody has it.
const HELD: u32 = 1;
/// Somebody waits, perhaps, and nobody was woken for that.
const AWAITED: u32 = 2;
/// Somebody was woken and has not had the lock since.
const WOKEN: u32 = 4;

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

    /// From one state to another; the state if it was another one.
    #[inline]
    fn change(&self, from: u32, to: u32, success: Ordering) -> Result<u32, u32> {
        self.state
            .compare_exchange(from, to, success, Ordering::Relaxed)
    }

    /// Takes it if it is free; returns true if it was.
    #[inline]
    pub fn try_lock(&self) -> bool {
        let taken = self.barge();
        if taken {
            self.holder.took();
        }
        taken
    }

    /// Takes it, if it is free, before those that wait: their flags stay.
    #[inline]
    fn barge(&self) -> bool {
        // Acquire: pairs with the Release in `free`.
        self.state.fetch_or(HELD, Ordering::Acquire) & HELD == 0
    }

    /// Takes it, and waits until it is free.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.wait(None);
        }
    }

    /// As [`Raw::lock`], until `deadline`, if there is one; returns true if it has the lock.
    #[cfg(not(loom))]
    #[inline]
    pub fn lock_until(&self, deadline: Option<Deadline>) -> bool {
        self.try_lock() || self.wait(deadline)
    }

    /// Returns true if it has the lock. The clock is read only if it has to wait.
    #[inline]
    fn lock_timeout(&self, timeout: Duration) -> bool {
        self.try_lock() || self.wait(Deadline::after(timeout))
    }

    /// Unlocks it, whichever thread has it; returns true if it was locked.
    #[inline]
    pub fn unlock(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        if self.free(state) {
            self.holder.freed(state != HELD);
            true
        } else {
            self.unlock_awaited(state)
        }
    }

    /// Unlocks it, if that is all there is to do; returns true if it did. May be called where no thread runs.
    #[inline]
    pub(super) fn unlock_at_once(&self) -> bool {
        !self.holder.has_rank() && self.free(self.state.load(Ordering::Relaxed))
    }

    /// Frees it, if it is held and in this state, and nobody is to be woken for that.
    #[inline]
    fn free(&self, state: u32) -> bool {
        // Release: pairs with the Acquire of the thread that locks next.
        state & HELD != 0
            && !self.wants_wake(state)
            && self.change(state, state & !HELD, Ordering::Release).is_ok()
    }

    #[cold]
    fn unlock_awaited(&self, mut state: u32) -> bool {
        loop {
            if state & HELD == 0 {
                return false;
            }
            let freed = if self.wants_wake(state) {
                waiting::change_and_wake(&self.state, |is_awaited| {
                    // If no waiter is there, none would clear `WOKEN`.
                    let rest = if is_awaited { WOKEN } else { FREE };
                    // Release: as in `free`.
                    self.change(state, rest, Ordering::Release).is_ok()
                })
            } else {
                self.free(state)
            };
            if freed {
                break;
            }
            state = self.state.load(Ordering::Relaxed);
        }
        // Last: what was lent is needed until the lender is woken.
        self.holder.freed(state != HELD);
        true
    }

    /// Returns true if one is to be woken, now that the lock is free.
    fn wants_wake(&self, state: u32) -> bool {
        // With ranks it may be a more urgent thread that has come after the one that was woken.
        state & AWAITED != 0 && (state & WOKEN == 0 || self.holder.has_rank())
    }

    /// Returns true if it is locked, at some moment.
    #[cfg(not(loom))]
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) & HELD != 0
    }

    #[cold]
    fn wait(&self, deadline: Option<Deadline>) -> bool {
        let has_it = self.wait_unnamed(deadline);
        self.holder.waited(has_it);
        has_it
    }

    /// Leaves it to the caller to say that the lock was taken.
    fn wait_unnamed(&self, deadline: Option<Deadline>) -> bool {
        // Once it was woken: the flag that this thread takes away, and the one that it puts in its place.
        let (mut takes, mut puts) = (0, 0);
        loop {
            let state = self.look();
            let rest = state & !takes | puts;
            if state & HELD == 0 {
                // Acquire: pairs with the Release in `free`.
                if self.change(state, rest | HELD, Ordering::Acquire).is_ok() {
                    return true;
                }
                continue;
            }
            let awaited = rest | AWAITED;
            if state != awaited && self.change(state, awaited, Ordering::Relaxed).is_err() {
                continue;
            }
            self.holder.lend();
            (takes, puts) = match waiting::wait_or_say(&self.state, awaited, deadline) {
                Waited::Woken => (WOKEN, AWAITED),
                // Woken by nobody: the flags are what others have said.
                Waited::Changed => (0, 0),
                Waited::TimedOut => {
                    // The thread that freed the lock meanwhile may have counted on this one.
                    self.state.fetch_and(!WOKEN, Ordering::Relaxed);
                    return self.barge();
                }
            };
        }
    }

    /// The state, after some looks while it may be freed without a wait.
    fn look(&self) -> u32 {
        let mut patience = Patience::new();
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state & HELD == 0 || !patience.lasts() {
                return state;
            }
        }
    }
}

/// Protects a value: one thread at a time has access, by a [`MutexGuard`]. As [`std::sync::Mutex`], and so with its
/// poisoning.
///
/// It is not fair: a thread that finds it free locks it before the threads that were woken. Locking and unlocking take
/// one atomic operation each while no other thread wants it.
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

super::lock!(Mutex, try_lock);
// SAFETY: of the threads that share it one at a time has access to the value.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

/// Access to what a [`Mutex`] protects. Dropping the guard unlocks the mutex.
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
    lock: &'a Mutex<T>,
    holder: poison::Holder,
    /// Freed by the thread that took it, as in std.
    not_send: PhantomData<*const ()>,
}

super::guard!(MutexGuard, mutable);

impl<T> Mutex<T> {
    constant! {
        /// Makes an unlocked mutex around a value.
        #[inline]
        pub const fn new(value: T) -> Self {
            Mutex {
                raw: Raw::new(),
                poison: Flag::new(),
                value: UnsafeCell::new(value),
            }
        }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the mutex is free and locks it. pthread_mutex_lock(3). A thread that locks it twice deadlocks.
    ///
    /// # Errors
    ///
    /// A thread panicked while it held the mutex, which is *poisoned* from then on. The error holds the guard.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.raw.lock();
        self.guard()
    }

    /// Locks the mutex if it is free.
    ///
    /// # Errors
    ///
    /// `TryLockError::WouldBlock`: it is not free; `TryLockError::Poisoned`: as [`Mutex::lock`].
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        super::attempt(self.raw.try_lock(), || self.guard())
    }

    /// Locks the mutex. Waits until it is free, with a time limit. pthread_mutex_timedlock(3).
    ///
    /// # Errors
    ///
    /// `TryLockError::WouldBlock`: it was not free in time; `TryLockError::Poisoned`: as [`Mutex::lock`].
    #[inline]
    pub fn lock_timeout(&self, timeout: Duration) -> TryLockResult<MutexGuard<'_, T>> {
        super::attempt(self.raw.lock_timeout(timeout), || self.guard())
    }

    /// The mutex was just taken.
    #[inline]
    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        self.poison.answer(MutexGuard {
            lock: self,
            holder: self.poison.holder(),
            not_send: PhantomData,
        })
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// The lock of the guard, for a wait without it.
    #[inline]
    pub(super) fn raw(&self) -> &'a Raw {
        &self.lock.raw
    }

    /// The guard again after a wait without the lock.
    #[inline]
    pub(super) fn answer(self) -> LockResult<Self> {
        let poison = &self.lock.poison;
        poison.answer(self)
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.poison.release(&self.holder);
        self.lock.raw.unlock();
    }
}
