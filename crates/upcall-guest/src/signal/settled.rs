//! Signals for the process that every thread blocks wait in the kernel, and nowhere else.
//!
//! An activation without a thread may have taken such a signal while some thread accepted it, or before it was known that
//! none does. It gives the signal back to the kernel ([`pending`](crate::signal::pending)), and until then the signal is
//! not pending. A thread that asks the kernel what is pending first waits for that.

use upcall_linux::{Inside, Runtime};

use crate::signal::{masks, receivers};

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
