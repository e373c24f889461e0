//! The thread that holds a mutex, where threads have ranks: a waiting thread lends it its own
//! (`upcall_guest::lending`).

use crate::waiting::AtomicU32;

/// The holder's number, or 0.
pub(super) struct Holder(
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux", not(loom))),
        expect(dead_code, reason = "nobody has a rank")
    )]
    AtomicU32,
);

impl Holder {
    constant! {
        pub(super) const fn new() -> Self {
            Holder(AtomicU32::new(0))
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(loom)))]
impl Holder {
    /// Returns true if threads have ranks.
    #[inline]
    pub(super) fn has_rank(&self) -> bool {
        upcall_guest::lending::lends()
    }

    /// The calling thread has taken the mutex.
    #[inline]
    pub(super) fn took(&self) {
        if upcall_guest::lending::lends() {
            upcall_guest::lending::took(&self.0);
        }
    }

    /// The calling thread is about to wait for the mutex, which is marked as awaited.
    #[inline]
    pub(super) fn lend(&self) {
        if upcall_guest::lending::lends() {
            upcall_guest::lending::lend(&self.0);
        }
    }

    /// The calling thread has waited, and perhaps has the mutex now.
    #[inline]
    pub(super) fn waited(&self, has_it: bool) {
        if upcall_guest::lending::lends() {
            upcall_guest::lending::waited();
            if has_it {
                upcall_guest::lending::took(&self.0);
            }
        }
    }

    /// The calling thread has freed the mutex.
    #[inline]
    pub(super) fn freed(&self, awaited: bool) {
        if upcall_guest::lending::lends() {
            upcall_guest::lending::freed(&self.0, awaited);
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(loom))))]
impl Holder {
    pub(super) fn has_rank(&self) -> bool {
        false
    }

    pub(super) fn took(&self) {}

    pub(super) fn lend(&self) {}

    pub(super) fn waited(&self, _has_it: bool) {}

    pub(super) fn freed(&self, _awaited: bool) {}
}
