//! SIGPIPE and SIGXFSZ: the kernel sends them to the kernel thread whose call has written to nobody, or more than it may.
//!
//! A thread that blocks one may go on elsewhere, and whoever runs next on its kernel thread would get it. So the signal is
//! kept with the thread ([`pending`]): when the call is back ([`take`]), and, if the thread is stopped before that, by the
//! signal that stops it ([`take_at_stop`]).

use core::sync::atomic::Ordering;

use upcall_linux::{Activation, Thread, base};

use crate::ground::caller;
use crate::ground::mask::{ALL, bit, change_kernel_mask, set_kernel_mask};
use crate::ground::state::GUEST;
use crate::signal::pending;

const CAUSED: u64 = bit(libc::SIGPIPE) | bit(libc::SIGXFSZ);

fn blocks_one(thread: &Thread) -> bool {
    thread.kernel.mask.load(Ordering::Relaxed) & CAUSED != 0
}

/// Called behind a call of the program's that has perhaps caused one. See [`crate::ground::hooks::Hooks::caused`].
#[cold]
pub fn take() {
    let Some(thread) = GUEST.runtime().and(caller::own_thread()) else {
        return;
    };
    // SAFETY: on an activation.
    let by_runtime = unsafe { base::is_inside() };
    if blocks_one(thread) && !by_runtime {
        // It does not migrate from here on.
        let before = change_kernel_mask(ALL);
        // SAFETY: on an activation.
        let activation = unsafe { base::current() };
        pending::adopt(activation, thread, CAUSED);
        set_kernel_mask(before);
    }
}

/// Called when the thread is stopped, before it may be parked. With all signals blocked.
pub fn take_at_stop(activation: &Activation, thread: &'static Thread) {
    if blocks_one(thread) {
        pending::adopt(activation, thread, CAUSED);
    }
}
