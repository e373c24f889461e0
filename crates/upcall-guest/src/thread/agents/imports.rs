//! Finds out if the program can have mutexes that the kernel must understand: an object of it calls libc's functions that
//! ask for a mutex that processes share, and for one that is robust or inherits priorities.
//!
//! Imports are found in the relocations, which name all symbols that the loader binds for an object. *Not done:* a program
//! that looks the functions up by dlsym(3) is not noticed.

use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::{c_int, c_void};

use crate::rewrite::relocations::{self, Bound};

static SHARES: AtomicBool = AtomicBool::new(false);
static NEEDS_KERNEL: AtomicBool = AtomicBool::new(false);

const SHARING: &[u8] = b"pthread_mutexattr_setpshared";
const KERNELS: [&[u8]; 3] = [
    b"pthread_mutexattr_setrobust",
    b"pthread_mutexattr_setrobust_np",
    b"pthread_mutexattr_setprotocol",
];

/// Returns true if such calls were found.
pub fn found() -> bool {
    SHARES.load(Ordering::Relaxed) && NEEDS_KERNEL.load(Ordering::Relaxed)
}

/// Looks at every object that is loaded now.
///
/// # Upcall safety
///
/// Takes the loader's lock: for start-up and for a thread in program context.
pub fn look() {
    if !found() {
        // SAFETY: `visit` has the callback's signature.
        unsafe { libc::dl_iterate_phdr(Some(visit), core::ptr::null_mut()) };
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    let look = |bound: Bound<'_>| {
        if bound.own.is_none() {
            note(bound.name.to_bytes());
        }
    };
    // SAFETY: the loader passes a valid record of an object that stays loaded during the call.
    unsafe { relocations::each(&*info, look) };
    c_int::from(found())
}

fn note(name: &[u8]) {
    if name == SHARING {
        SHARES.store(true, Ordering::Relaxed);
    }
    if KERNELS.contains(&name) {
        NEEDS_KERNEL.store(true, Ordering::Relaxed);
    }
}
