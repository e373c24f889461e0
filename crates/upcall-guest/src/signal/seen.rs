//! What handlers of the program did during a system call. This decides if the call is made again (signal(7)).

use core::sync::atomic::Ordering;

use upcall_core::Waited;
use upcall_core::WakeReason;
use upcall_linux::{Activation, Thread};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::Frame;

/// No handler of the program ran during the call.
pub const UNSEEN: u32 = 0;

/// Handlers ran, all with SA_RESTART.
pub const SEEN_RESTART: u32 = 1;

/// A handler ran that interrupts calls.
pub const SEEN: u32 = 2;

/// Notes that the current thread's call has left something behind. It will not be made again, and cancellation must not
/// forget its result.
pub fn note_made(thread: &'static Thread) {
    let frame = thread.guest().frame.load(Ordering::Relaxed) as *const Frame;
    // SAFETY: null, or the frame of the thread's system call, which lives until the call is over.
    if let Some(frame) = unsafe { frame.as_ref() } {
        frame.made.set(1);
    }
}

/// Notes a wait that ended for another reason than a signal: it will not be made again.
pub fn note_waited(activation: &Activation, waited: &Waited) {
    if let Waited::Ended(WakeReason::Woken | WakeReason::TimedOut) = waited
        && let Some(thread) = activation.thread()
    {
        note_made(thread);
    }
}
