//! What [`sync`](crate::sync) is made of, without guards and values: for bindings to another language. Not part
//! of the crate's stable interface.
//!
//! Locks and conditions here are some words, all zero when they are new. The caller must know which thread has a lock.

use std::sync::atomic::AtomicU32;

use crate::sync::{Barrier, Condvar, Semaphore};
use crate::waiting;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use crate::critical::{enter as enter_section, leave_own as leave_own_section};
pub use crate::sync::mutex::Raw as Mutex;
pub use crate::sync::rwlock_raw::Raw as RwLock;
pub use crate::waiting::Deadline;

/// Waits until the word is woken ([`wake`]), provided that it is `expected`, or until `deadline`. May return early.
/// Returns true if the deadline did not pass.
pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> bool {
    waiting::wait(word, expected, deadline)
}

/// Wakes at most `count` of those that wait for the word, and returns how many.
pub fn wake(word: &AtomicU32, count: u32) -> u32 {
    waiting::wake(word, count)
}

/// [`Condvar::wait`] with a lock that the caller has, until `deadline`; returns true if it did not pass.
pub fn wait_for(condition: &Condvar, lock: &Mutex, deadline: Option<Deadline>) -> bool {
    condition.wait_until(lock, deadline)
}

/// [`Semaphore::acquire`] until `deadline`; returns true if it took a permit.
pub fn acquire_until(semaphore: &Semaphore, deadline: Option<Deadline>) -> bool {
    semaphore.acquire_until(deadline)
}

/// Returns true if a thread waits for the condition, at some moment.
pub fn condition_is_awaited(condition: &Condvar) -> bool {
    condition.is_awaited()
}

/// Returns true if some threads wait for others, at some moment.
pub fn barrier_is_awaited(barrier: &Barrier) -> bool {
    barrier.is_awaited()
}

/// Returns true if a thread waits for a permit, at some moment.
pub fn semaphore_is_awaited(semaphore: &Semaphore) -> bool {
    semaphore.is_awaited()
}
