//! `upcall_critical_enter`: what [`upcall::critical`] does, in two halves.
//!
//! The second half finds the thread again: after fork(2) it is another one, which is in no section.

use std::io::ErrorKind;

use libc::{c_int, c_void};

c_functions_on_words! {
    /// Enters a critical section.
    fn upcall_critical_enter() -> () {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        upcall::raw::enter_section();
    }

    /// Leaves it.
    fn upcall_critical_leave() -> () {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        upcall::raw::leave_own_section();
    }
}

c_functions! {
    /// Makes a range of code a critical section.
    fn upcall_critical_code(begin: *const c_void, end: *const c_void) -> c_int {
        match upcall::critical_code(begin.cast()..end.cast()) {
            Ok(()) => 0,
            Err(error) if error.kind() == ErrorKind::StorageFull => libc::ENOSPC,
            Err(_) => libc::EINVAL,
        }
    }
}
