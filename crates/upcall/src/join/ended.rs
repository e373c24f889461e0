//! Threads that end between a fork and its join.
//!
//! pthread_exit(3) or a cancellation has ended such a thread, and what is on its stack was not dropped: panics abort there, or
//! it was C's. Or the process ends: exit(3) destroys the thread-local storage of the thread that calls it, all of whose frames
//! are still there. Values of pthread keys are destroyed at the end of a thread only. So that storage leaves a value.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::OnceLock;

use upcall_linux::sys;

use super::piece::Header;
use super::taker;

/// What a thread has left.
struct Ended {
    /// It has not joined all that it has forked.
    left: bool,
    /// The piece that it has taken and not ended.
    runs: Option<NonNull<Header>>,
}

impl Ended {
    /// Called when the thread has ended.
    fn settle(self) {
        if self.left {
            sys::say(b"upcall: a thread has ended before it joined what it had forked\n");
            std::process::abort();
        }
        if let Some(piece) = self.runs {
            // SAFETY: the thread has taken it, and goes back to it no more.
            unsafe { taker::end(piece) };
        }
    }
}

/// Called when the calling thread's storage is destroyed between a fork and its join, on one of the two sides.
#[cold]
pub(super) fn between_fork_and_join(left: bool, runs: Option<NonNull<Header>>) {
    let ended = Ended { left, runs };
    let Some(key) = key() else {
        return ended.settle();
    };
    let value = Box::into_raw(Box::new(ended));
    // SAFETY: the key is there.
    if unsafe { libc::pthread_setspecific(key, value.cast()) } != 0 {
        // SAFETY: from above, and nobody else has it.
        unsafe { Box::from_raw(value) }.settle();
    }
}

/// None: the process has too many.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: writes the key.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(settle)) };
        (made == 0).then_some(key)
    })
}

/// # Safety
///
/// The value is from `between_fork_and_join`.
unsafe extern "C" fn settle(value: *mut c_void) {
    // SAFETY: the caller's promise; libc calls this once.
    unsafe { Box::from_raw(value.cast::<Ended>()) }.settle();
}
