//! Waiting for a condition (Hoare, *Monitors*, 1974; as in Mesa: Lampson and Redell, 1980).

use std::fmt;
use std::sync::LockResult;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::MutexGuard;
use super::mutex::Raw;
use crate::waiting::{self, Alone, AtomicU32, AtomicU64, Deadline};

/// A condition that threads wait for, each with a [`Mutex`](super::Mutex) that protects what the condition is about.
/// As [`std::sync::Condvar`]. A thread may wake up without a notification, and must check the condition again.
///
/// A notification while no thread waits costs one look at a word.
///
/// ```
/// use std::thread;
/// use upcall::sync::{Condvar, Mutex};
///
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// thread::scope(|scope| {
///     scope.spawn(|| {
///         *ready.lock().unwrap() = true;
///         changed.notify_one();
///     });
///     let guard = changed.wait_while(ready.lock().unwrap(), |ready| !*ready);
///     assert!(*guard.unwrap());
/// });
/// ```
pub struct Condvar {
    /// How often a thread was notified. A thread that reads it before it unlocks the mutex, and waits for another
    /// number, misses nothing but 4,294,967,296 notifications at a time.
    notified: AtomicU32,
    /// How many wait, or are about to. Counted with the mutex held: a thread that has changed the condition under the
    /// mutex finds here all that have seen it as it was before.
    waiting: AtomicU32,
    /// A thread of the runtime that waits without others and without a time limit is not counted: it is in this word
    /// ([`waiting::alone`]), and is woken by a look at it.
    lone: AtomicU64,
}

/// What has become of the mutex of a thread that waits alone.
const UNKNOWN: u32 = 0;
/// It was unlocked.
const UNLOCKED: u32 = 1;
/// It is still the thread's.
const KEPT: u32 = 2;

/// The result of a wait with a time limit: it tells if the time was over.
///
/// ```
/// use std::time::Duration;
/// use upcall::sync::{Condvar, Mutex};
///
/// let never = Mutex::new(());
/// let (_guard, result) = Condvar::new()
///     .wait_timeout_while(never.lock().unwrap(), Duration::from_millis(1), |_| true)
///     .unwrap();
/// assert!(result.timed_out());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns true if the wait ended because its time was over.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    constant! {
        /// Makes a condition for which no thread waits.
        #[must_use]
        #[inline]
        pub const fn new() -> Self {
            Condvar {
                notified: AtomicU32::new(0),
                waiting: AtomicU32::new(0),
                lone: AtomicU64::new(0),
            }
        }
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again. Nothing is missed in between. May
    /// return without a notification. pthread_cond_wait(3).
    ///
    /// # Errors
    ///
    /// The mutex is poisoned when it is locked again. The error holds the guard.
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_until(guard.raw(), None);
        guard.answer()
    }

    /// Waits while `condition` returns true for what the mutex protects.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
    pub fn wait_while<'a, T: ?Sized, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: F,
    ) -> LockResult<MutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// As [`Condvar::wait`], with a time limit. The mutex is locked again in every case. pthread_cond_timedwait(3).
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let in_time = self.wait_until(guard.raw(), Deadline::after(timeout));
        with(guard.answer(), WaitTimeoutResult(!in_time))
    }

    /// Waits while `condition` returns true, with a time limit. It timed out if `condition` still returns true.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
    pub fn wait_timeout_while<'a, T: ?Sized, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        let deadline = Deadline::after(timeout);
        let mut in_time = true;
        while condition(&mut *guard) {
            if !in_time {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            in_time = self.wait_until(guard.raw(), deadline);
            match with(guard.answer(), WaitTimeoutResult(!in_time)) {
                Ok((again, _)) => guard = again,
                poisoned => return poisoned,
            }
        }
        Ok((guard, WaitTimeoutResult(false)))
    }

    /// Frees the mutex, which the caller has, waits, and takes it again. Returns true if the deadline did not pass.
    pub(crate) fn wait_until(&self, mutex: &Raw, deadline: Option<Deadline>) -> bool {
        // Relaxed: all under the mutex, whose order is theirs.
        let is_first =
            self.waiting.load(Ordering::Relaxed) == 0 && self.lone.load(Ordering::Relaxed) == 0;
        if is_first && deadline.is_none() && self.wait_alone(mutex) {
            return true;
        }
        self.count_lone();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let notified = self.notified.load(Ordering::Relaxed);
        mutex.unlock();
        let in_time = waiting::wait(&self.notified, notified, deadline);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        mutex.lock();
        in_time
    }

    /// As [`Condvar::wait_until`], for the only one that waits. Returns false if it did not wait and has the mutex.
    #[inline]
    fn wait_alone(&self, mutex: &Raw) -> bool {
        let state = AtomicU32::new(UNKNOWN);
        // Not before the thread waits in the word: one that locks the mutex then finds it there.
        let alone = waiting::alone_then(&self.lone, |waits| {
            let unlocked = waits && mutex.unlock_at_once();
            // Release: the last access to this thread's stack, which may run again already.
            let becomes = if unlocked { UNLOCKED } else { KEPT };
            state.store(becomes, Ordering::Release);
            unlocked
        });
        if alone == Alone::Cannot {
            return false;
        }
        let mut pauses = 0;
        let unlocked = loop {
            match state.load(Ordering::Acquire) {
                UNKNOWN => waiting::pause(&mut pauses),
                known => break known == UNLOCKED,
            }
        };
        if alone == Alone::Moved {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if unlocked {
            mutex.lock();
        }
        unlocked || alone != Alone::Again
    }

    /// One more comes to wait, with the mutex held: the one that has waited alone is counted from here on.
    #[inline]
    fn count_lone(&self) {
        while self.lone.load(Ordering::Relaxed) != 0 {
            self.move_lone();
        }
    }

    #[cold]
    fn move_lone(&self) {
        let content = self.lone.load(Ordering::Relaxed);
        // First: who notifies it looks here when it is not in the word any more.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if content == 0 || !waiting::move_lone(&self.lone, content, 0, &self.notified) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Wakes one waiting thread, if there is one. pthread_cond_signal(3). The caller may hold the mutex or not.
    #[inline]
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiting threads. pthread_cond_broadcast(3). The caller may hold the mutex or not.
    #[inline]
    pub fn notify_all(&self) {
        self.notify(u32::MAX);
    }

    /// Returns true if somebody waits, at some moment.
    #[cfg(not(loom))]
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0 || self.lone.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn notify(&self, count: u32) {
        // The mutex has ordered it behind those that it is for. Acquire: who moves one out of the word counts that one first.
        let content = self.lone.load(Ordering::Acquire);
        if content != 0 {
            self.wake_lone(content, count);
        } else if self.waiting.load(Ordering::Relaxed) != 0 {
            self.wake(count);
        }
    }

    #[cold]
    fn wake_lone(&self, content: u64, count: u32) {
        let woken = waiting::hand(&self.lone, content, 0);
        if (!woken || count > 1) && self.waiting.load(Ordering::Relaxed) != 0 {
            self.wake(count);
        }
    }

    #[cold]
    fn wake(&self, count: u32) {
        self.notified.fetch_add(1, Ordering::Relaxed);
        waiting::wake(&self.notified, count);
    }
}

/// The guard together with what the wait came to.
fn with<G>(answer: LockResult<G>, result: WaitTimeoutResult) -> LockResult<(G, WaitTimeoutResult)> {
    match answer {
        Ok(guard) => Ok((guard, result)),
        Err(poisoned) => Err(std::sync::PoisonError::new((poisoned.into_inner(), result))),
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
