//! Signals on the kernel thread of a bound thread ([`crate::bound`]), in the kernel's own frame.

use core::sync::atomic::Ordering;

use upcall_linux::{Thread, base, preempt};

use super::actions::action_mask;
use super::calls::set_kernel_mask;
use super::frame::{frame_mask, note_progress, set_frame_mask, show_site};
use super::{CALL_ADDRESS, SYS_SECCOMP, call, finish_alone};
use crate::entry::Frame;
use crate::guest::GUEST;
use crate::{bound, dispatch, pending};

/// A timer of the program's has fired ([`timers`]), and the kernel has chosen a bound thread to tell: an activation is told
/// in its place.
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
    // SAFETY: the kernel passes its own frame.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let set_mask = |mask: u64| thread.kernel.mask.store(mask, Ordering::SeqCst);
    let mask = action_mask(signal, frame_mask(context));
    set_mask(mask);
    set_kernel_mask(dispatch::blockable(mask));
    let frame = thread.kernel.frame.swap(0, Ordering::Relaxed) as *const Frame;
    let saved = *registers;
    // SAFETY: null, or the frame of the system call that the thread is in, on its own stack.
    let frame = unsafe { frame.as_ref() };
    if let Some(frame) = frame {
        note_progress(frame, registers);
        show_site(frame, registers);
    }
    // SAFETY: as the kernel passed it.
    let filtered = signal == libc::SIGSYS && unsafe { (*information).si_code } == SYS_SECCOMP;
    if filtered && frame.is_some() {
        // SAFETY: of this signal it holds an address at that offset.
        unsafe {
            let address = information.cast::<u8>().add(CALL_ADDRESS).cast::<u64>();
            address.write(registers[libc::REG_RIP as usize] as u64);
        }
    }
    let shown = *registers;
    // SAFETY: in the kernel's frame.
    unsafe { call(thread, signal, information, context) };
    if !base::is_set() {
        // It ran with the program's own value in the register.
        bound::mark_own();
    }
    if bound::current().is_none() {
        // The child of a fork.
        finish_alone(context);
        return;
    }
    set_kernel_mask(!0);
    let goes_elsewhere = [libc::REG_RIP, libc::REG_RSP]
        .iter()
        .any(|&register| registers[register as usize] != shown[register as usize]);
    if let Some(frame) = frame
        && !goes_elsewhere
    {
        // The answer that a filter leaves to the handler.
        let answer = registers[libc::REG_RAX as usize];
        *registers = saved;
        if filtered {
            registers[libc::REG_RAX as usize] = answer;
        }
        let own = core::ptr::from_ref(frame) as usize;
        thread.kernel.frame.store(own, Ordering::Relaxed);
    }
    let after = frame_mask(context);
    set_mask(after);
    set_frame_mask(context, dispatch::blockable(after));
}
