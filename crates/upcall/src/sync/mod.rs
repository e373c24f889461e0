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
