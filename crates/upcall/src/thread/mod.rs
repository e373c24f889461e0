//! Threads with the shape of `std::thread`: cheap enough to make one for every piece of work.
//!
//! A thread of this module is a thread for all code. It may block in the kernel, in `std`, in a C library or on a page
//! fault; its virtual processor then runs another thread. It has its own `errno`, and its own thread-local storage
//! with destructors. It panics as others do. It costs so little because the next thread uses its libc control block
//! and stack again.
//!
//! [`spawn`] starts the runtime of the process if there is none ([`crate::Runtime::start`]). If there can be none, or
//! `upcall run` has started the program, its threads are those of `std`.

mod builder;
mod handle;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod packet;
mod scope;
mod urgency;

pub use crate::current::{Thread, ThreadId, current, park, park_timeout};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use builder::start;
pub use builder::{Builder, spawn};
pub use handle::JoinHandle;
pub(crate) use scope::Books;
pub use scope::{Scope, ScopedJoinHandle, scope};
pub use std::thread::{AccessError, LocalKey, available_parallelism, panicking, sleep};
pub use urgency::{set_deadline, set_priority};

/// What a thread ended with: its value, or the value of its panic.
pub type Result<T> = std::thread::Result<T>;

/// Gives way to other ready threads.
#[inline]
pub fn yield_now() {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(runtime) = upcall_guest::direct::runtime() {
        runtime.yield_now();
        return;
    }
    std::thread::yield_now();
}

/// What joining a thread gives that was ended early.
pub(crate) fn ended_early() -> Box<dyn std::any::Any + Send> {
    Box::new("the thread was ended by pthread_exit(3) or a cancellation")
}
