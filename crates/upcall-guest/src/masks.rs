//! Which signals activations without a thread let through while they sleep.
//!
//! A signal for the process must wake somebody if any thread accepts it, although that thread may
//! be parked; one that all threads block must stay pending in the kernel, where sigwait(3) and
//! sigpending(2) find it. `OPEN` holds what some thread may accept: changes of a mask only add to
//! it, and who finds that nobody accepts a signal takes it out. So the activation that takes a
//! signal asks who accepts it, and a signal that would end the process is caught for that
//! (`signal.rs`). For what the kernel does by itself, to stop the process, the first thread's mask
//! alone decides while it lives.
//!
//! Approach rejected: counting, for each signal, the threads that accept it. libc blocks and
//! opens all signals around each thread creation.

use core::sync::atomic::{AtomicU64, Ordering};

use upcall_linux::preempt;

use crate::guest::GUEST;
use crate::signal::bit;

static OPEN: AtomicU64 = AtomicU64::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// The runtime starts with one thread.
pub fn start(mask: u64) {
    OPEN.store(!mask, Ordering::SeqCst);
}

/// The kernel calls the runtime's handler for the signal now, or does not any more.
pub fn handles(signal: i32, handled: bool) {
    if handled {
        let before = HANDLED.fetch_or(bit(signal), Ordering::SeqCst);
        if before & bit(signal) == 0 && OPEN.load(Ordering::SeqCst) & bit(signal) != 0 {
            nudge();
        }
    } else {
        HANDLED.fetch_and(!bit(signal), Ordering::SeqCst);
    }
}

/// A thread has this mask now.
#[inline]
pub fn opens(mask: u64) {
    let more = !mask & !OPEN.load(Ordering::SeqCst);
    if more != 0 {
        OPEN.fetch_or(more, Ordering::SeqCst);
        if more & HANDLED.load(Ordering::SeqCst) != 0 {
            nudge();
        }
    }
}

/// Nobody accepts the signal, as far as the caller has seen.
pub fn closes(signal: i32) {
    OPEN.fetch_and(!bit(signal), Ordering::SeqCst);
}

/// The signals that an activation without a thread can take and pass on.
pub fn passable() -> u64 {
    OPEN.load(Ordering::SeqCst) & HANDLED.load(Ordering::SeqCst) & !preempt::OWN
}

/// The mask with which an activation without a thread sleeps.
pub fn resting() -> u64 {
    let first = match GUEST.identities.first() {
        Some(first) => first.kernel.mask.load(Ordering::Relaxed),
        None => !OPEN.load(Ordering::SeqCst),
    };
    let handled = HANDLED.load(Ordering::SeqCst);
    first & !handled | !OPEN.load(Ordering::SeqCst) & handled
}

/// Those that sleep do so with another mask from now on.
fn nudge() {
    if let Some(runtime) = GUEST.runtime() {
        runtime.kernel().nudge(runtime);
    }
}
