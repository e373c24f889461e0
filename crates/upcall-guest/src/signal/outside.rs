//! Signals on the kernel thread of a bound thread ([`crate::thread::bound`]), in the kernel's own frame.

use core::sync::atomic::Ordering;

use upcall_linux::{Thread, base, preempt};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::Frame;
use crate::ground::mask::{ALL, set_kernel_mask};
use crate::ground::record;
use crate::ground::state::GUEST;
use crate::signal::{dispatch, pending, seen};

use super::actions::action_mask;
use super::frame::{frame_mask, set_frame_mask, show_call};
use super::{call, finish_alone};

/// Called when a timer of the program's has fired ([`crate::signal::timers`]) and the kernel has told a bound thread. Tells
/// an activation instead.
///
/// # Safety
///
/// `information` is what the kernel passed with the runtime's own signal.
pub(super) unsafe fn is_passed_on(information: *mut libc::siginfo_t) -> bool {
    // SAFETY: the caller's promise.
    let is_timer = matches!(
        unsafe { preempt::meaning(information) },
        preempt::Meaning::Timer(_)
    );
    let Some(runtime) = GUEST.runtime().filter(|_| is_timer) else {
        return false;
    };
    let mut is_told = false;
    runtime.each_activation(|activation| {
        let id = activation.kernel.tid.load(Ordering::Relaxed);
        if !is_told && id != 0 {
            // SAFETY: a siginfo_t is 128 bytes.
            let words = unsafe { &*information.cast::<pending::Information>() };
            is_told = pending::queue_to(id, preempt::SIGNAL, words) == 0;
        }
    });
    true
}

/// A signal for a bound thread: in a call it is shown at its site, as any other.
///
/// # Safety
///
/// The arguments are what the kernel passed.
pub(super) unsafe fn serve(
    thread: &'static Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let set_mask = |mask: u64| thread.kernel.mask.store(mask, Ordering::SeqCst);
    let mask = action_mask(signal, frame_mask(context));
    set_mask(mask);
    set_kernel_mask(dispatch::blockable(mask));
    let frame = thread.guest().frame.swap(0, Ordering::Relaxed) as *mut Frame;
    // SAFETY: in the kernel's frame.
    let call = || unsafe { call(thread, signal, information, context) };
    let goes_on = if frame.is_null() {
        call();
        false
    } else {
        // SAFETY: the frame of the system call that the thread is in, on its own stack; the kernel's frame.
        unsafe { show_call(frame, information, context, call) }
    };
    if signal != preempt::SIGNAL {
        // The kernel knows whether that restarts a call, and does so.
        thread.kernel.seen.fetch_max(seen::SEEN, Ordering::Relaxed);
    }
    if !base::is_set() {
        // It ran with the program's own value in the register.
        record::mark_own();
    }
    if record::current().is_none() {
        // The child of a fork.
        finish_alone(context);
        return;
    }
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
}
