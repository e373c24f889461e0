//! What a program that links the crate asks of the runtime without a system call.

use core::sync::atomic::AtomicU32;

use upcall_linux::Runtime;

use crate::guest::GUEST;
use crate::{caller, futex};

/// The runtime, for a thread of its own; `None`: there is none, or the caller is a kernel thread.
#[inline]
pub fn runtime() -> Option<&'static Runtime> {
    GUEST.runtime().filter(|_| !caller::is_outside())
}

/// Waits until somebody wakes the word, provided that it is `expected`, or until `deadline`, nanoseconds of
/// CLOCK_MONOTONIC. May return early. Returns whether the deadline did not pass.
#[inline]
pub fn wait(
    runtime: &'static Runtime,
    word: &AtomicU32,
    expected: u32,
    deadline: Option<u64>,
) -> bool {
    let address = word.as_ptr() as usize;
    let answer = futex::wait(runtime, address, expected, u32::MAX, deadline);
    answer != -i64::from(libc::ETIMEDOUT)
}

/// Wakes at most `count` of those that wait for the word, kernel threads among them. Returns how many.
#[inline]
pub fn wake(runtime: &'static Runtime, word: &AtomicU32, count: u32) -> u32 {
    futex::wake(runtime, word.as_ptr() as usize, count, u32::MAX) as u32
}
