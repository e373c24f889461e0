//! Signals that came while the runtime could not deliver them, or that its running threads block.

use core::sync::atomic::Ordering;

use upcall_core::Role;
use upcall_linux::{Activation, Runtime, Thread, base, preempt};

use crate::ground::entry::raw_syscall;
use crate::ground::hooks::hooks;
use crate::ground::mask::{ALL, bit, set_kernel_mask};
use crate::ground::state::GUEST;
use crate::signal::{masks, pending, timers};

use super::{blocked_by, returning};

/// Called when signals were deferred on an activation. Delivers them to its thread, or passes them on. See
/// [`upcall_core::kernel::Attributes::deferred`].
pub fn deferred(
    runtime: &'static Runtime,
    activation: &'static Activation,
    thread: Option<&'static Thread>,
) {
    timers::pass_on(runtime, activation);
    match thread {
        Some(thread) => {
            // Everything is blocked, the runtime's own signal too: the thread must not migrate
            // between here and the delivery.
            set_kernel_mask(ALL);
            let mask = thread.kernel.mask.load(Ordering::Relaxed) & !preempt::OWN;
            // Signals that a call with a mask of its own blocks wait for its end, and so do those that only that mask lets
            // through.
            let held = mask | blocked_by(thread);
            if thread.kernel.stopped.load(Ordering::Relaxed) {
                // `own_signal` delivers it at its end.
                while let Some((signal, information)) = activation.kernel.inbox.take() {
                    if held & bit(signal) == 0 {
                        pending::hold(runtime, activation, thread, signal, &information);
                    } else {
                        pending::pass(runtime, activation, signal, &information);
                    }
                }
                activation.kernel.at_hand.store(0, Ordering::SeqCst);
                activation.kernel.mask.store(mask, Ordering::Relaxed);
                set_kernel_mask(mask);
                runtime.leave_quietly(activation);
                return;
            }
            if let Some((signal, information)) = activation.kernel.inbox.take() {
                pending::restore(runtime, activation, signal, &information, held);
            } else {
                pending::queue_one(runtime, activation, thread, held);
            }
            while let Some((signal, information)) = activation.kernel.inbox.take() {
                // One at a time, as `pending::queue_one` says.
                pending::pass(runtime, activation, signal, &information);
            }
            activation.kernel.at_hand.store(0, Ordering::SeqCst);
            activation.kernel.mask.store(mask, Ordering::Relaxed);
            runtime.leave_quietly(activation);
            // Delivers it, on this kernel thread.
            returning(thread, || set_kernel_mask(mask));
            if GUEST.runtime().is_none() {
                return;
            }
            let held = thread.kernel.mask.load(Ordering::Relaxed) | blocked_by(thread);
            if pending::for_thread(thread) & !held != 0 {
                // SAFETY: on an activation; one that installs the thread looks by itself.
                unsafe { base::current() }.attend(Activation::DEFERRED);
            }
        }
        None => {
            // Independent of the kernel's mask: a section that had not seen the signal may have opened it.
            let all = !preempt::OWN;
            set_kernel_mask(all);
            activation.kernel.mask.store(all, Ordering::Relaxed);
            while let Some((signal, information)) = activation.kernel.inbox.take() {
                pending::pass(runtime, activation, signal, &information);
            }
            activation.kernel.at_hand.store(0, Ordering::SeqCst);
            // A standby may not sleep for long, and takes signals for parked threads meanwhile.
            if activation.role() == Role::Standby {
                runtime.kernel().set_resting_mask(activation);
            }
        }
    }
}

/// Called at the end of a time slice of `ran`. Serves its deadline, and signals for the process that the running threads
/// block and a parked one accepts. See [`upcall_linux::Hooks::tick`].
pub fn tick(runtime: &'static Runtime, activation: &'static Activation, ran: &'static Thread) {
    pending::return_kept(runtime, activation);
    (hooks().tick)(runtime, activation, ran);
    // Before it asks what is closed: a thread that closes a signal looks here afterwards.
    activation.kernel.looks.store(true, Ordering::SeqCst);
    look_for_parked(runtime, activation);
    activation.kernel.looks.store(false, Ordering::SeqCst);
}

/// Passes on the signals for the process that the running threads block and a parked one accepts.
fn look_for_parked(runtime: &'static Runtime, activation: &'static Activation) {
    let wanted = masks::passable();
    if activation.kernel.mask.load(Ordering::Relaxed) & wanted == 0 {
        return;
    }
    let mut pending = 0u64;
    // SAFETY: writes eight bytes.
    unsafe {
        raw_syscall(
            libc::SYS_rt_sigpending,
            [(&raw mut pending) as u64, 8, 0, 0, 0, 0],
        )
    };
    if pending & wanted != 0 {
        pending::pass_pending(runtime, activation, pending & wanted);
    }
}
