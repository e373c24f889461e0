//! `upcall_rwlock_t`.

use libc::c_int;
use upcall::raw::RwLock;

use crate::answer::unless;

/// With so many readers inside, others are refused: half of what the lock can count, since a thread that asks has not
/// entered yet.
const MANY: u32 = 1 << 28;

c_functions_on_words! {
    /// A free lock.
    fn upcall_rwlock_init(rwlock: *mut RwLock) -> c_int {
        put!(rwlock, RwLock::new());
        0
    }

    /// The lock is not used any more.
    fn upcall_rwlock_destroy(rwlock: *const RwLock) -> c_int {
        let rwlock = at!(rwlock);
        unless(rwlock.readers() == 0 && !rwlock.is_written(), libc::EBUSY)
    }

    /// Enters as a reader.
    fn upcall_rwlock_rdlock(rwlock: *const RwLock) -> c_int {
        let rwlock = at!(rwlock);
        if rwlock.readers() >= MANY {
            return libc::EAGAIN;
        }
        rwlock.read();
        0
    }

    /// Enters as a reader if that can be at once.
    fn upcall_rwlock_tryrdlock(rwlock: *const RwLock) -> c_int {
        let rwlock = at!(rwlock);
        if rwlock.readers() >= MANY {
            return libc::EAGAIN;
        }
        unless(rwlock.try_read(), libc::EBUSY)
    }

    /// Enters as a reader, or gives up.
    fn upcall_rwlock_timedrdlock(rwlock: *const RwLock, deadline: *const libc::timespec) -> c_int {
        let (rwlock, deadline) = (at!(rwlock), limit!(deadline));
        if rwlock.readers() >= MANY {
            return libc::EAGAIN;
        }
        unless(rwlock.read_until(deadline), libc::ETIMEDOUT)
    }

    /// Enters as the writer.
    fn upcall_rwlock_wrlock(rwlock: *const RwLock) -> c_int {
        at!(rwlock).write();
        0
    }

    /// Enters as the writer if that can be at once.
    fn upcall_rwlock_trywrlock(rwlock: *const RwLock) -> c_int {
        unless(at!(rwlock).try_write(), libc::EBUSY)
    }

    /// Enters as the writer, or gives up.
    fn upcall_rwlock_timedwrlock(rwlock: *const RwLock, deadline: *const libc::timespec) -> c_int {
        unless(at!(rwlock).write_until(limit!(deadline)), libc::ETIMEDOUT)
    }

    /// Leaves.
    fn upcall_rwlock_unlock(rwlock: *const RwLock) -> c_int {
        let rwlock = at!(rwlock);
        // The holder knows how it holds the lock: while the writer is inside, no reader is.
        if rwlock.is_written() {
            rwlock.end_write();
        } else if rwlock.readers() > 0 {
            rwlock.end_read();
        } else {
            return libc::EPERM;
        }
        0
    }
}
