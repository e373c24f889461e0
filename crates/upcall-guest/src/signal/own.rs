//! The runtime's own signal ([`preempt`]), in the handler, and what a frame needs before it continues a thread
//! that was about to wait.

use core::sync::atomic::Ordering;

use upcall_core::Kernel;
use upcall_linux::{Activation, Runtime, Thread, preempt};

use super::frame::{note_progress, set_frame_mask};
use super::place::is_at_entry;
use super::set_kernel_mask;
use crate::entry::{Frame, give_up};
use crate::pending;

/// The runtime's own signal: a time slice is over, or the activation was interrupted.
///
/// # Safety
///
/// `context` is the frame that the kernel passed.
pub(super) unsafe fn own_signal(
    runtime: &'static Runtime,
    activation: &'static Activation,
    meaning: preempt::Meaning,
    context: *mut libc::ucontext_t,
) {
    let Some(thread) = activation.thread().filter(|_| !activation.is_inside()) else {
        preempt::handle(runtime, activation, meaning);
        return;
    };
    if is_at_entry(activation, context) {
        // There is no room to park it: when it is in the runtime the next time, or has some.
        activation.attend(Activation::RESCHEDULE);
        // SAFETY: the kernel's frame.
        give_up_wait(thread, unsafe { &mut (*context).uc_mcontext.gregs });
        return;
    }
    if activation.is_in_call() {
        // SAFETY: the kernel's frame.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        let frame = thread.kernel.frame.load(Ordering::Relaxed) as *const Frame;
        // SAFETY: as in `on_signal`.
        if let Some(frame) = unsafe { frame.as_ref() } {
            note_progress(frame, registers);
        }
        if activation.wants_attention() {
            // Not that of the call, which may have one of its own: somebody else may run here.
            let mask = thread.kernel.mask.load(Ordering::Relaxed);
            take_up(runtime, mask & !preempt::OWN, meaning);
            // From here to the end the thread stays on its activation.
            set_kernel_mask(!0);
        }
        give_up_wait(thread, registers);
        return;
    }
    let mask = activation.kernel.mask.load(Ordering::Relaxed);
    take_up(runtime, mask, meaning);
    // Perhaps on another activation by now, and perhaps that one or this had everything blocked for
    // signals that it deferred: what the thread has is what goes on.
    let mask = thread.kernel.mask.load(Ordering::Relaxed);
    set_frame_mask(context, mask & !preempt::OWN);
}

/// The interrupted thread looks at what has come, with this kernel mask from here on. Inside the runtime
/// before that is set: what comes then is not put on top of this frame, on a stack that may be small.
fn take_up(runtime: &'static Runtime, mask: u64, meaning: preempt::Meaning) {
    runtime.kernel().set_inside();
    set_kernel_mask(mask);
    runtime.interrupted(meaning == preempt::Meaning::Tick);
}

/// Before a handler's frame continues the thread, all signals being blocked: if signals have come
/// for which the thread was about to wait, it does not begin. A call that has not looked yet does so by itself.
pub(super) fn give_up_wait(thread: &'static Thread, registers: &mut [libc::greg_t]) {
    if pending::are_waited_for(thread)
        && let Some(pc) = give_up(registers[libc::REG_RIP as usize] as usize)
    {
        registers[libc::REG_RIP as usize] = pc as i64;
    }
}
