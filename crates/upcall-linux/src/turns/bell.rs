//! The words on which activations sleep that wait for a turn: one in the registry, one in the daemon's page.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;

/// A bell. Both kinds are mapped for ever.
pub(super) fn word(bell: *mut u32) -> &'static AtomicU32 {
    // SAFETY: of a registry or of a daemon's page, neither of which is unmapped while the process has a place there.
    unsafe { AtomicU32::from_ptr(bell) }
}

/// Sleeps until somebody rings, a signal comes, or `nanoseconds` have passed.
pub(super) fn sleep(bell: *mut u32, seen: u32, nanoseconds: u64) {
    let time = libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as i64,
        tv_nsec: (nanoseconds % 1_000_000_000) as i64,
    };
    // SAFETY: the word is mapped for ever; reads the time.
    unsafe { sys!(sys::SYS_futex, bell, FUTEX_WAIT, seen, &raw const time) };
}

/// Wakes all that sleep, and those that are about to.
pub(super) fn ring(bell: *mut u32) {
    word(bell).fetch_add(1, Ordering::SeqCst);
    // SAFETY: wakes on a mapped word; touches no memory.
    unsafe { sys!(sys::SYS_futex, bell, FUTEX_WAKE, i32::MAX) };
}
