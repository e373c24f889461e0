//! Which signals activations without a thread let through while they sleep.
//!
//! A signal for the process must wake somebody if any thread accepts it, even a parked one. If all threads block it, it
//! must stay pending in the kernel, where sigwait(3) and sigpending(2) find it. [`Accepted`] holds what some thread may
//! accept. A change of a mask only adds to it. An activation that takes a signal asks which thread accepts it, and removes
//! the signal if none does. A signal that would end the process is therefore caught (`actions.rs`). For signals by which
//! the kernel itself stops the process, the first thread's mask alone decides while that thread lives.
//!
//! Approach rejected: counting the threads that accept each signal. libc blocks and opens all signals around each thread
//! creation.

use core::sync::atomic::{AtomicU64, Ordering};

use upcall_core::Accepted;
use upcall_linux::{Thread, preempt};

use crate::ground::mask;
use crate::ground::state::GUEST;

use mask::bit;

static ACCEPTED: Accepted = Accepted::new();
/// Signals that activations without a thread leave to the kernel, although a thread may accept them.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Called when the runtime starts, with one thread.
pub fn start(mask: u64) {
    // In the child of a fork another thread may have held some.
    HELD.store(0, Ordering::SeqCst);
    ACCEPTED.start(mask);
}

/// Called when the kernel starts, or stops, calling the runtime's handler for the signal.
pub fn handles(signal: i32, handled: bool) {
    if ACCEPTED.handles(bit(signal), handled) {
        nudge();
    }
}

/// Called when a thread has this mask now.
#[inline]
pub fn opens(mask: u64) {
    if ACCEPTED.opens(mask) {
        nudge();
    }
}

/// Returns true if all that this mask of a thread lets through is open.
#[inline]
pub fn are_open(mask: u64) -> bool {
    !mask & !ACCEPTED.open() == 0
}

/// Returns a thread that accepts the signal, found by `look`. If there is none, the signal is closed.
pub fn find_or_close(
    signal: i32,
    look: impl Fn() -> Option<(&'static Thread, i32)>,
) -> Option<(&'static Thread, i32)> {
    ACCEPTED.find_or_close(bit(signal), look, |(thread, _)| {
        opens(thread.kernel.mask.load(Ordering::SeqCst));
    })
}

/// Returns the signals that an activation without a thread can take and pass on.
pub fn passable() -> u64 {
    ACCEPTED.passable() & !preempt::OWN
}

/// Returns the signals in `set` that an activation without a thread must not take, since no thread accepts them.
pub fn closed(set: u64) -> u64 {
    set & ACCEPTED.handled() & !ACCEPTED.open() & !preempt::OWN
}

/// Returns the mask with which an activation without a thread sleeps.
pub fn resting() -> u64 {
    let (open, handled) = (ACCEPTED.open(), ACCEPTED.handled());
    let first = match GUEST.identities.first() {
        Some(first) => first.kernel.mask.load(Ordering::Relaxed),
        None => !open,
    };
    first & !handled | !open & handled | HELD.load(Ordering::SeqCst)
}

/// From now on activations without a thread leave these signals to the kernel.
pub fn hold(set: u64) {
    HELD.fetch_or(set, Ordering::SeqCst);
}

/// They take these signals again.
pub fn release(set: u64) {
    HELD.fetch_and(!set, Ordering::SeqCst);
    nudge();
}

/// Makes those that sleep do so with another mask.
fn nudge() {
    if let Some(runtime) = GUEST.runtime() {
        runtime.kernel().nudge(runtime);
    }
}
