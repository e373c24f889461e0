//! `upcall_mutex_t`.

use libc::c_int;
use upcall::raw::Mutex;

use crate::answer::unless;

c_functions_on_words! {
    /// A free mutex.
    fn upcall_mutex_init(mutex: *mut Mutex) -> c_int {
        put!(mutex, Mutex::new());
        0
    }

    /// The mutex is not used any more.
    fn upcall_mutex_destroy(mutex: *const Mutex) -> c_int {
        unless(!at!(mutex).is_locked(), libc::EBUSY)
    }

    /// Takes it.
    fn upcall_mutex_lock(mutex: *const Mutex) -> c_int {
        at!(mutex).lock();
        0
    }

    /// Takes it if it is free.
    fn upcall_mutex_trylock(mutex: *const Mutex) -> c_int {
        unless(at!(mutex).try_lock(), libc::EBUSY)
    }

    /// Takes it, or gives up.
    fn upcall_mutex_timedlock(mutex: *const Mutex, deadline: *const libc::timespec) -> c_int {
        unless(at!(mutex).lock_until(limit!(deadline)), libc::ETIMEDOUT)
    }

    /// Frees it.
    fn upcall_mutex_unlock(mutex: *const Mutex) -> c_int {
        unless(at!(mutex).unlock(), libc::EPERM)
    }
}
