//! Signals for the process that every thread blocks wait in the kernel, and nowhere else.
//!
//! An activation without a thread may have taken such a signal while some thread accepted it, or before it was known that
//! none does. It gives the signal back to the kernel ([`pending`](crate::signal::pending)), and until then the signal is
//! not pending. A thread that asks the kernel what is pending first waits for that.
//!
//! A signal that a thread accepts may reach it through such an activation, too, which takes a while. Where a thread is about to take a
//! handler away, that is too late: the signal would have its default action. So it is where a thread has waited for a child
//! ([`meeting_handler`]).

use core::sync::atomic::Ordering;

use upcall_linux::{Inside, Runtime, Thread};

use crate::ground::mask;
use crate::ground::state::GUEST;
use crate::signal::{self, masks, receivers};

/// Waits until all signals in `set` that no thread accepts are pending in the kernel, if they are pending at all. From then
/// on they stay there until some thread accepts them.
pub fn settle(inside: &Inside, set: u64) {
    let mut open = set & masks::passable();
    while open != 0 {
        let signal = open.trailing_zeros() as i32 + 1;
        open &= open - 1;
        masks::find_or_close(signal, || receivers::first_of_all(signal));
    }
    let closed = || masks::closed(set);
    if closed() != 0 {
        inside.runtime().kernel().await_closed(inside, closed);
    }
}

/// As [`settle`], outside the runtime.
pub fn settle_for_call(runtime: &'static Runtime, set: u64) {
    let inside = runtime.enter();
    settle(&inside, set);
    inside.leave();
}

/// Handles the signals in `set` that were sent to the process before and that the current thread accepts, and then does `act`, which may
/// take their handlers away. Called outside the runtime. One of the handlers may make this the child of a fork, without a runtime.
pub fn meeting_handler<R>(
    runtime: &'static Runtime,
    thread: &'static Thread,
    set: u64,
    act: impl FnOnce() -> R,
) -> R {
    runtime.kernel().await_closed_outside(runtime, || {
        if GUEST.runtime().is_none() {
            return 0;
        }
        // Held anew each time: another thread may have released them meanwhile.
        masks::hold(set);
        set
    });
    if GUEST.runtime().is_some() {
        let inside = runtime.enter();
        // What is pending is this thread's, as the mask opens.
        mask::set_kernel_mask(mask::ALL);
        mask::set_kernel_mask(inside.kernel.mask.load(Ordering::Relaxed));
        inside.leave();
    }
    // What has been passed on to it.
    signal::take_accepted(runtime, thread);
    let done = act();
    masks::release(set);
    done
}
