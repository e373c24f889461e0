//! `upcall_critical_enter`: what [`upcall::critical`] does, in two halves.
//!
//! The second half finds the thread again: after fork(2) it is another one, which is in no section.

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
