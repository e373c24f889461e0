//! `upcall_cond_t`.

use libc::c_int;
use upcall::raw::{self, Mutex};
use upcall::sync::Condvar;

use crate::answer::unless;

c_functions_on_words! {
    /// A condition for which no thread waits.
    fn upcall_cond_init(cond: *mut Condvar) -> c_int {
        put!(cond, Condvar::new());
        0
    }

    /// The condition is not used any more.
    fn upcall_cond_destroy(cond: *const Condvar) -> c_int {
        unless(!raw::condition_is_awaited(at!(cond)), libc::EBUSY)
    }

    /// Frees the mutex, waits, takes it again.
    fn upcall_cond_wait(cond: *const Condvar, mutex: *const Mutex) -> c_int {
        let (cond, mutex) = (at!(cond), at!(mutex));
        if !mutex.is_locked() {
            return libc::EPERM;
        }
        raw::wait_for(cond, mutex, None);
        0
    }

    /// The same, for a limited time.
    fn upcall_cond_timedwait(
        cond: *const Condvar,
        mutex: *const Mutex,
        deadline: *const libc::timespec,
    ) -> c_int {
        let (cond, mutex, deadline) = (at!(cond), at!(mutex), limit!(deadline));
        if !mutex.is_locked() {
            return libc::EPERM;
        }
        unless(raw::wait_for(cond, mutex, deadline), libc::ETIMEDOUT)
    }

    /// Wakes one.
    fn upcall_cond_signal(cond: *const Condvar) -> c_int {
        at!(cond).notify_one();
        0
    }

    /// Wakes all.
    fn upcall_cond_broadcast(cond: *const Condvar) -> c_int {
        at!(cond).notify_all();
        0
    }
}
