//! `upcall_semaphore_t`.

use libc::c_int;
use upcall::raw;
use upcall::sync::Semaphore;

use crate::answer::unless;

c_functions_on_words! {
    /// A semaphore with this value.
    fn upcall_semaphore_init(semaphore: *mut Semaphore, value: u32) -> c_int {
        put!(semaphore, Semaphore::new(value));
        0
    }

    /// The semaphore is not used any more.
    fn upcall_semaphore_destroy(semaphore: *const Semaphore) -> c_int {
        unless(!raw::semaphore_is_awaited(at!(semaphore)), libc::EBUSY)
    }

    /// One less, as soon as there is one.
    fn upcall_semaphore_wait(semaphore: *const Semaphore) -> c_int {
        at!(semaphore).acquire();
        0
    }

    /// One less, if there is one.
    fn upcall_semaphore_trywait(semaphore: *const Semaphore) -> c_int {
        unless(at!(semaphore).try_acquire(), libc::EAGAIN)
    }

    /// One less, or gives up.
    fn upcall_semaphore_timedwait(semaphore: *const Semaphore, deadline: *const libc::timespec) -> c_int {
        unless(raw::acquire_until(at!(semaphore), limit!(deadline)), libc::ETIMEDOUT)
    }

    /// One more.
    fn upcall_semaphore_post(semaphore: *const Semaphore) -> c_int {
        unless(at!(semaphore).try_release(), libc::EOVERFLOW)
    }

    /// How many there are.
    fn upcall_semaphore_getvalue(semaphore: *const Semaphore, value: *mut u32) -> c_int {
        put!(value, at!(semaphore).permits());
        0
    }
}
