//! `upcall_fork_t`: a piece in the list of the thread that forks it, or a thread.

use std::ffi::c_void;
use std::ptr;

use libc::c_int;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use upcall::foreign::{Fork as Piece, NotJoined};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::answer::keeping_errno;
use crate::thread::{self, Record, Start};

/// See the module's text.
#[repr(C)]
pub struct Fork {
    /// Null: it is a piece.
    thread: *mut Record,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    piece: std::mem::MaybeUninit<Piece>,
}

/// The result of a call that was ended by pthread_exit(3).
const CANCELED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// The fork that a pointer of the caller's leads to; the calling function answers EINVAL if it cannot lead to one.
macro_rules! place {
    ($pointer:expr) => {{
        let pointer: *mut Fork = $pointer;
        if pointer.is_null() || !pointer.is_aligned() {
            return libc::EINVAL;
        }
        pointer
    }};
}

/// The piece of a fork.
///
/// # Safety
///
/// The fork's memory is there.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline]
unsafe fn piece(fork: *mut Fork) -> ptr::NonNull<Piece> {
    // SAFETY: the caller's promise: it is not null.
    unsafe { ptr::NonNull::new_unchecked((&raw mut (*fork).piece).cast()) }
}

c_functions_on_words! {
    /// Forks a call.
    fn upcall_fork(fork: *mut Fork, function: Option<Start>, argument: *mut c_void) -> c_int {
        let (fork, Some(function)) = (place!(fork), function) else {
            return libc::EINVAL;
        };
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        {
            // SAFETY: the header says how long the memory is there, and where the function may be called.
            let forked = keeping_errno(|| unsafe {
                Piece::begin(piece(fork), (function, argument), CANCELED)
            });
            if forked {
                // SAFETY: as above.
                unsafe { (*fork).thread = ptr::null_mut() };
                return 0;
            }
        }
        // SAFETY: as above.
        let handle = unsafe { &raw mut (*fork).thread };
        // SAFETY: as above.
        unsafe { thread::upcall_thread_create(handle, ptr::null(), Some(function), argument) }
    }

    /// Joins it.
    fn upcall_fork_join(fork: *mut Fork, result: *mut *mut c_void) -> c_int {
        let fork = place!(fork);
        // SAFETY: the header says that it was forked.
        let thread = unsafe { (*fork).thread };
        if ptr::eq(thread, CANCELED.cast()) {
            return libc::EINVAL;
        }
        if !thread.is_null() {
            // SAFETY: as above.
            unsafe { (*fork).thread = CANCELED.cast() };
            // SAFETY: as above.
            return unsafe { thread::upcall_thread_join(thread, result) };
        }
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        // SAFETY: as above.
        match unsafe { Piece::join(piece(fork)) } {
            Ok(value) => {
                put!(result, value, or nowhere);
                return 0;
            }
            Err(NotJoined::OfOther) => return libc::EPERM,
            Err(NotJoined::OfParent) => return libc::ESRCH,
            Err(NotJoined::Before) => {}
        }
        libc::EINVAL
    }
}
