//! `upcall_barrier_t`.

use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;
use upcall::raw;
use upcall::sync::Barrier;

/// PTHREAD_BARRIER_SERIAL_THREAD.
const SERIAL: c_int = -1;

/// A barrier, or zeros.
#[repr(C)]
pub struct Meeting {
    barrier: Barrier,
    /// [`INITIALIZED`], until it is destroyed.
    initialized: AtomicU32,
}

impl Meeting {
    fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Relaxed) == INITIALIZED
    }
}

const INITIALIZED: u32 = 0xba_221e;

c_functions_on_words! {
    /// A barrier for so many threads.
    fn upcall_barrier_init(barrier: *mut Meeting, count: u32) -> c_int {
        if count == 0 {
            return libc::EINVAL;
        }
        put!(barrier, Meeting {
            barrier: Barrier::new(count as usize),
            initialized: AtomicU32::new(INITIALIZED),
        });
        0
    }

    /// The barrier is not used any more.
    fn upcall_barrier_destroy(barrier: *const Meeting) -> c_int {
        let meeting = at!(barrier);
        if !meeting.is_initialized() {
            return libc::EINVAL;
        }
        if raw::barrier_is_awaited(&meeting.barrier) {
            return libc::EBUSY;
        }
        meeting.initialized.store(0, Ordering::Relaxed);
        0
    }

    /// Waits until all are there.
    fn upcall_barrier_wait(barrier: *const Meeting) -> c_int {
        let meeting = at!(barrier);
        if !meeting.is_initialized() {
            return libc::EINVAL;
        }
        if meeting.barrier.wait().is_leader() { SERIAL } else { 0 }
    }
}
