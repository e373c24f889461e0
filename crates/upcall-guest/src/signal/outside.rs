//! Signals on the kernel thread of a bound thread ([`crate::thread::bound`]), in the kernel's own frame.

use core::sync::atomic::Ordering;

use upcall_linux::{Thread, base, preempt};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::Frame;
use crate::ground::mask::{ALL, set_kernel_mask};
use crate::ground::state::GUEST;
use crate::ground::{caller, record};
use crate::rewrite::sud;
use crate::signal::{dispatch, pending, queued, seen, user_dispatch};

use super::actions::action_mask;
use super::frame::{frame_mask, set_frame_mask, show_call};
use super::{call, finish_alone};

/// Called when the runtime's own signal comes to a bound thread. If a timer of the program's has fired
/// ([`crate::signal::timers`]), tells an activation instead. What all kernel threads are to look at, activations do. Returns
/// true if it was one of these.
///
/// # Safety
///
/// `information` is what the kernel passed with the runtime's own signal.
pub(super) unsafe fn is_passed_on(information: *mut libc::siginfo_t) -> bool {
    // SAFETY: the caller's promise.
    let meaning = unsafe { preempt::meaning(information) };
    let runtime = match (meaning, GUEST.runtime()) {
        (preempt::Meaning::Timer { .. }, Some(runtime)) => runtime,
        (preempt::Meaning::Call, Some(_)) => return true,
        _ => return false,
    };
    let mut is_told = false;
    runtime.each_activation(|activation| {
        let id = activation.kernel.tid.load(Ordering::Relaxed);
        if !is_told && id != 0 {
            // SAFETY: a siginfo_t is 128 bytes.
            let words = unsafe { &*information.cast::<pending::Information>() };
            is_told = queued::queue_to(id, preempt::SIGNAL, words) == 0;
        }
    });
    true
}

/// A signal for a bound thread: in a call it is shown at its site, as any other. `entered` and the answer are as for
/// [`caller::leave`].
///
/// # Safety
///
/// The arguments are what the kernel passed.
pub(super) unsafe fn serve(
    thread: &'static Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    entered: usize,
) -> usize {
    // SAFETY: the kernel passes its own frame.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let program_base = &thread.kernel.program_base;
    let before = program_base.load(Ordering::Relaxed);
    let pc = registers[libc::REG_RIP as usize] as usize;
    let set_mask = |mask: u64| thread.kernel.mask.store(mask, Ordering::SeqCst);
    let mask = action_mask(signal, frame_mask(context));
    set_mask(mask);
    set_kernel_mask(dispatch::blockable(mask));
    let frame = thread.guest().frame.swap(0, Ordering::Relaxed) as *mut Frame;
    // SAFETY: in the kernel's frame.
    let call = || unsafe { call(thread, signal, information, context) };
    let is_in_call = !frame.is_null();
    let is_in_program = !is_in_call && !sud::range().contains(&pc);
    // SAFETY: as the kernel passed it.
    let raised = signal == libc::SIGSYS && unsafe { user_dispatch::is_raised(thread, information) };
    let mut left = *registers;
    let goes_on = if !is_in_call {
        call();
        false
    } else {
        // SAFETY: the frame of the system call that the thread is in, on its own stack; the kernel's frame.
        unsafe {
            let number = (*frame).rax;
            show_call(frame, information, context, || {
                let shown = &raw mut (*context).uc_mcontext.gregs;
                if raised {
                    user_dispatch::show(number, information, &mut *shown);
                }
                call();
                left = *shown;
            })
        }
    };
    if raised {
        user_dispatch::keep(thread, goes_on.then_some(&left));
    }
    if signal != preempt::SIGNAL {
        // The kernel knows whether that restarts a call, and does so.
        thread.kernel.seen.fetch_max(seen::SEEN, Ordering::Relaxed);
    }
    let value = base::read();
    if !base::is_set() {
        record::mark_own();
    }
    if record::current().is_none() {
        // The child of a fork.
        finish_alone(context);
        return entered;
    }
    // What the handler has left in the register.
    program_base.store(base::of_program(value), Ordering::Relaxed);
    set_kernel_mask(ALL);
    if goes_on {
        thread
            .guest()
            .frame
            .store(frame as usize, Ordering::Relaxed);
    }
    let after = frame_mask(context);
    set_mask(after);
    set_frame_mask(context, dispatch::blockable(after));
    // A call that is left by the handler ends here.
    let changed = program_base.load(Ordering::Relaxed) != before;
    if !is_in_call && !goes_on || is_in_program && changed {
        caller::OF_THREAD
    } else {
        entered
    }
}
