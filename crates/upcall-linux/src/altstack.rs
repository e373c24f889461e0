//! The alternate signal stack of a thread, on whatever kernel thread runs it.
//!
//! 1. [`install`]: the thread runs again, on its own stack; the kernel is told then.
//! 2. [`leave`]: it is about to be left, perhaps on that stack.
//! 3. [`remove`]: it is left, and nothing that meets its activation may be put there.

use core::sync::atomic::Ordering;

use crate::sys;
use crate::{Activation, Thread};

/// Blocks all signals, until [`remove`], if the thread is on its alternate signal stack: the kernel does not take that away before
/// it is left, and would put a signal that comes between the two over what the thread has there.
#[cold]
pub(crate) fn leave(activation: &'static Activation, thread: &'static Thread) {
    let here = 0u8;
    let [address, size, _] = thread
        .kernel
        .altstack
        .each_ref()
        .map(|word| word.load(Ordering::Relaxed));
    if !(address..address.saturating_add(size)).contains(&(&raw const here as usize)) {
        return;
    }
    let state = &activation.kernel;
    let before = sys::set_signal_mask(!0);
    state.mask_beyond.store(before, Ordering::Relaxed);
    state.is_leaving_altstack.store(true, Ordering::Relaxed);
}

/// The thread takes its alternate signal stack along: a signal that meets the activation without
/// it must not be put there.
#[cold]
pub(crate) fn remove(activation: &'static Activation) {
    let none = libc::stack_t {
        ss_sp: core::ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: reads the structure; the activation is on its own stack.
    unsafe { sys!(sys::SYS_sigaltstack, &raw const none, 0) };
    let state = &activation.kernel;
    state.altstack.store(0, Ordering::Relaxed);
    if state.is_leaving_altstack.load(Ordering::Relaxed) {
        state.is_leaving_altstack.store(false, Ordering::Relaxed);
        sys::set_signal_mask(state.mask_beyond.load(Ordering::Relaxed));
    }
}

/// Tells the kernel the alternate signal stack of the calling thread. Not before the thread runs:
/// it may have been parked on that stack, and a signal that meets the activation's own stack
/// would be put over what it has there.
#[cold]
pub(crate) fn install(activation: &'static Activation, thread: &'static Thread) {
    let [address, size, flags] = &thread.kernel.altstack;
    let address = address.load(Ordering::Relaxed);
    let stack = libc::stack_t {
        ss_sp: address as *mut _,
        ss_flags: if address == 0 {
            libc::SS_DISABLE
        } else {
            flags.load(Ordering::Relaxed) as i32
        },
        ss_size: size.load(Ordering::Relaxed),
    };
    // SAFETY: reads the structure; the stack belongs to the thread, which set it itself.
    unsafe { sys!(sys::SYS_sigaltstack, &raw const stack, 0) };
    activation.kernel.altstack.store(address, Ordering::Relaxed);
}
