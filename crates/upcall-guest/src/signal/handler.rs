//! Calls the program's handlers.

use core::sync::atomic::Ordering;

use upcall_core::kernel::Vessels;
use upcall_linux::{Activation, Runtime, Thread, base, preempt};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::raw_syscall;
use crate::ground::mask::{ALL, set_kernel_mask};
use crate::ground::state::GUEST;
use crate::ground::{caller, command};

use super::actions::*;
use super::frame::{frame_mask, set_frame_mask};
use super::own::give_up_wait;
use super::waits::*;
use super::{altstack, carried, children, end_by, everywhere, masks, pending, queued, seen};

/// Returns the mask of the current thread while its handler for `signal` runs.
pub(super) fn handler_mask(
    thread: &'static Thread,
    signal: i32,
    context: *const libc::ucontext_t,
) -> u64 {
    // A handler that interrupts rt_sigsuspend(2) or a call like it runs under the call's mask.
    let waited_for = thread.guest().waited_for.load(Ordering::Relaxed);
    let before = if thread.guest().suspended.load(Ordering::Relaxed) {
        !waited_for
    } else {
        frame_mask(context)
    };
    action_mask(signal, before)
}

/// Notes the mask for the handler, and sets it without the runtime's own signal, which has been blocked up to here.
pub(super) fn note_mask(activation: &Activation, thread: &'static Thread, mask: u64) {
    thread.kernel.mask.store(mask, Ordering::SeqCst);
    activation
        .kernel
        .mask
        .store(mask & !preempt::OWN, Ordering::Relaxed);
    set_kernel_mask(mask & !preempt::OWN);
}

/// Calls the program's handler for the current thread.
///
/// # Safety
///
/// Outside the runtime, in the kernel's frame for this signal.
pub(super) unsafe fn call(
    thread: &'static Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: a siginfo_t is 128 bytes.
    if unsafe { carries(thread, signal, &*information.cast()) } {
        return;
    }
    if shows_stacks(signal) {
        // Nothing of the program's is interrupted.
        show_stacks();
        return;
    }
    let action = ACTIONS[signal as usize].get();
    if action.handler > SIG_IGN {
        let seen = if action.flags & libc::SA_RESTART as u64 != 0 {
            seen::SEEN_RESTART
        } else {
            seen::SEEN
        };
        thread.kernel.seen.fetch_max(seen, Ordering::Relaxed);
    }
    let takes_part = signal == everywhere::SETXID;
    if takes_part {
        thread.guest().takes_part.store(true, Ordering::Relaxed);
    }
    // SAFETY: on an activation. If this becomes the child of a fork, it goes on with the copy of this one.
    let activation = unsafe { base::current() };
    caller::give_back(thread);
    // SAFETY: the caller's conditions.
    interrupting(thread, || unsafe {
        call_handler(signal, information, context)
    });
    caller::take_back(activation, thread);
    if takes_part {
        thread.guest().takes_part.store(false, Ordering::Relaxed);
    }
}

/// Delivers what the signal carries, if it is a carrier. Returns true then.
// Not inlined: its part of the stack is free again while the handler runs.
#[inline(never)]
fn carries(thread: &'static Thread, signal: i32, information: &pending::Information) -> bool {
    let carried = carried::open(signal, information);
    if let Some(carried) = &carried {
        carried.deliver(thread);
    }
    carried.is_some()
}

/// Called at the end of a handler. The kernel will set the mask in the frame, which the handler may have changed. Signals
/// that this lets through are queued, so that they are delivered after this frame and not inside it.
pub(super) fn finish(
    runtime: &'static Runtime,
    thread: &'static Thread,
    context: *mut libc::ucontext_t,
) {
    // From here to the end the thread stays on its activation.
    set_kernel_mask(ALL);
    // SAFETY: on an activation.
    let activation = unsafe { base::current() };
    let mask = frame_mask(context);
    set_frame_mask(context, mask & !preempt::OWN);
    altstack::restore(thread, context);
    // SAFETY: the kernel's frame.
    give_up_wait(thread, unsafe { &mut (*context).uc_mcontext.gregs });
    thread.kernel.mask.store(mask, Ordering::SeqCst);
    let taken = if masks::are_open(mask) {
        None
    } else {
        let taken = queued::take_back(activation);
        take_waiting(activation, thread, mask);
        masks::opens(mask);
        taken
    };
    if taken.is_some() || pending::for_thread(thread) & !mask != 0 {
        runtime.kernel().set_inside();
        pending::queue_first(activation, thread, taken, mask);
        runtime.kernel().clear_inside();
    }
    activation
        .kernel
        .mask
        .store(mask & !preempt::OWN, Ordering::Relaxed);
}

/// Keeps, with the thread, the signals that have waited for the process until somebody accepts them. Otherwise another activation
/// might take them as soon as they are open, and have them still when this thread does not accept them any more. Called with all
/// signals blocked.
#[cold]
fn take_waiting(activation: &Activation, thread: &'static Thread, mask: u64) {
    let kernel = activation.runtime().kernel();
    let set = masks::closed(!mask);
    while set != 0
        && pending::in_kernel() & set != 0
        && let Some((signal, information)) = queued::take(set)
    {
        kernel.set_inside();
        pending::hold(activation, thread, signal, &information);
        kernel.clear_inside();
    }
}

/// Has all threads shown on standard error.
#[cold]
fn show_stacks() {
    if let Some(command) = GUEST.command() {
        // SAFETY: no memory of ours is involved. A child of vfork(2) has a number of its own.
        let pid = unsafe { raw_syscall(libc::SYS_getpid, [0; 6]) } as u32;
        command::show_stacks(command, pid);
    }
}

/// # Safety
///
/// In the kernel's frame for this signal.
pub(super) unsafe fn call_handler(
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    if shows_stacks(signal) {
        show_stacks();
        return;
    }
    let slot = &ACTIONS[signal as usize];
    let action = slot.get();
    match action.handler {
        SIG_IGN | SIG_DFL => {
            // SAFETY: the kernel's siginfo_t.
            let code = unsafe { (*information).si_code };
            // What the thread itself caused cannot be ignored.
            if is_forced(signal, code) || disposition(signal) != Disposition::Ignored {
                // Only the runtime wanted it: the default action, at the same place.
                end_by(signal, code);
            }
        }
        handler => {
            if action.flags & SA_RESETHAND != 0 {
                // The rest stays, as in the kernel.
                let default = KernelAction {
                    handler: SIG_DFL,
                    ..action
                };
                slot.set(&default);
                masks::handles(signal, is_caught(signal, SIG_DFL));
                set_kernel_action(signal, &kernel_action(signal, &default));
            }
            if signal == libc::SIGCHLD {
                // SAFETY: a siginfo_t is 128 bytes.
                children::tells(unsafe { &*information.cast() });
            }
            // SAFETY: the program installed the function as a handler; all handlers accept the
            // three arguments in registers.
            unsafe {
                let handler = core::mem::transmute::<
                    usize,
                    extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t),
                >(handler);
                handler(signal, information, context);
            }
        }
    }
}
