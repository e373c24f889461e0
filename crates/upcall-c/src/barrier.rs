//! `upcall_barrier_t`.

use libc::c_int;
use upcall::raw;
use upcall::sync::Barrier;

use crate::unless;

/// PTHREAD_BARRIER_SERIAL_THREAD.
const SERIAL: c_int = -1;

/// A barrier, or zeros.
#[repr(C)]
pub struct Meeting {
    barrier: Barrier,
    initialized: u32,
}

const INITIALIZED: u32 = 0xba_221e;

c_functions! {
    /// A barrier for so many threads.
    fn upcall_barrier_init(barrier: *mut Meeting, count: u32) -> c_int {
        if count == 0 {
            return libc::EINVAL;
        }
        put!(barrier, Meeting {
            barrier: Barrier::new(count as usize),
            initialized: INITIALIZED,
        });
        0
    }

    /// The barrier is not used any more.
    fn upcall_barrier_destroy(barrier: *const Meeting) -> c_int {
        let meeting = at!(barrier);
        if meeting.initialized != INITIALIZED {
            return libc::EINVAL;
        }
        unless(!raw::barrier_is_awaited(&meeting.barrier), libc::EBUSY)
    }

    /// Waits until all are there.
    fn upcall_barrier_wait(barrier: *const Meeting) -> c_int {
        let meeting = at!(barrier);
        if meeting.initialized != INITIALIZED {
            return libc::EINVAL;
        }
        if meeting.barrier.wait().is_leader() { SERIAL } else { 0 }
    }
}
