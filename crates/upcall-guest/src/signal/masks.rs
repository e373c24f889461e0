//! Which signals activations without a thread let through while they sleep.
//!
//! A signal for the process must wake somebody if any thread accepts it, although that thread may
//! be parked; one that all threads block must stay pending in the kernel, where sigwait(3) and
//! sigpending(2) find it. [`Accepted`] holds what some thread may accept: changes of a mask only add to
//! it, and who finds that nobody accepts a signal takes it out. So the activation that takes a
//! signal asks who accepts it, and a signal that would end the process is caught for that
//! (`signal.rs`). For what the kernel does by itself, to stop the process, the first thread's mask
//! alone decides while it lives.
//!
//! Approach rejected: counting, for each signal, the threads that accept it. libc blocks and
//! opens all signals around each thread creation.

use core::sync::atomic::Ordering;

use upcall_core::Accepted;
use upcall_linux::{Thread, preempt};

use crate::ground::mask;
use crate::ground::state::GUEST;

use mask::bit;

static ACCEPTED: Accepted = Accepted::new();

/// The runtime starts with one thread.
pub fn start(mask: u64) {
    ACCEPTED.start(mask);
}

/// The kernel calls the runtime's handler for the signal now, or does not any more.
pub fn handles(signal: i32, handled: bool) {
    if ACCEPTED.handles(bit(signal), handled) {
        nudge();
    }
}

/// A thread has this mask now.
#[inline]
pub fn opens(mask: u64) {
    if ACCEPTED.opens(mask) {
        nudge();
    }
}

/// A thread that accepts the signal, as `look` finds one; if there is none, it is closed.
pub fn find_or_close(
    signal: i32,
    look: impl Fn() -> Option<(&'static Thread, i32)>,
) -> Option<(&'static Thread, i32)> {
    ACCEPTED.find_or_close(bit(signal), look, |(thread, _)| {
        opens(thread.kernel.mask.load(Ordering::SeqCst));
    })
}

/// The signals that an activation without a thread can take and pass on.
pub fn passable() -> u64 {
    ACCEPTED.passable() & !preempt::OWN
}

/// The signals in `set` that an activation without a thread must not take, since no thread accepts them.
pub fn closed(set: u64) -> u64 {
    set & ACCEPTED.handled() & !ACCEPTED.open() & !preempt::OWN
}

/// The mask with which an activation without a thread sleeps.
pub fn resting() -> u64 {
    let (open, handled) = (ACCEPTED.open(), ACCEPTED.handled());
    let first = match GUEST.identities.first() {
        Some(first) => first.kernel.mask.load(Ordering::Relaxed),
        None => !open,
    };
    first & !handled | !open & handled
}

/// Those that sleep do so with another mask from now on.
fn nudge() {
    if let Some(runtime) = GUEST.runtime() {
        runtime.kernel().nudge(runtime);
    }
}
