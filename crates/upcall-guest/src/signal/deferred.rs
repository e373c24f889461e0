//! Signals that came while the runtime could not deliver them, or that its running threads block.

use core::sync::atomic::Ordering;

use upcall_core::Activity;
use upcall_linux::{Activation, Entered, Inside, Thread, base, preempt};

use crate::ground::attributes::GuestAttributes;
use crate::ground::hooks::hooks;
use crate::ground::mask::{ALL, set_kernel_mask};
use crate::ground::state::GUEST;
use crate::signal::{masks, pending, timers};

use super::{blocked_by, returning};

/// Called when signals were deferred on an activation. Delivers them to its thread, outside of the runtime, or passes
/// them on. See [`upcall_core::kernel::Attributes::deferred`].
pub fn deferred(inside: Entered) {
    let Some(thread) = inside.thread() else {
        return inside.leave_quietly();
    };
    timers::pass_on(&inside);
    // Everything is blocked, the runtime's own signal too: the thread must not migrate
    // between here and the delivery.
    set_kernel_mask(ALL);
    let mask = thread.kernel.mask.load(Ordering::Relaxed) & !preempt::OWN;
    // Signals that a call with a mask of its own blocks wait for its end, and so do those that only that mask lets
    // through.
    let held = mask | blocked_by(thread);
    let inbox = &inside.kernel.inbox;
    let is_stopped = thread.guest().stopped.load(Ordering::Relaxed);
    if is_stopped {
        // `own_signal` delivers it at its end.
        while let Some((signal, information)) = inbox.take() {
            if pending::is_own(thread, signal, &information, held) {
                pending::hold(&inside, thread, signal, &information);
            } else {
                pending::pass(&inside, signal, &information);
            }
        }
    } else {
        if let Some((signal, information)) = inbox.take() {
            pending::restore(&inside, thread, signal, &information, held);
        } else {
            pending::queue_one(&inside, thread, held);
        }
        while let Some((signal, information)) = inbox.take() {
            // One at a time, as `pending::queue_one` says.
            pending::pass(&inside, signal, &information);
        }
    }
    inside.kernel.at_hand.store(0, Ordering::SeqCst);
    inside.kernel.mask.store(mask, Ordering::Relaxed);
    if is_stopped {
        set_kernel_mask(mask);
        return inside.leave_quietly();
    }
    inside.leave_quietly();
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

/// The same on an activation without a thread. See [`upcall_core::kernel::Attributes::pass_on`].
pub fn pass_on(inside: &Inside) {
    timers::pass_on(inside);
    // Independent of the kernel's mask: a section that had not seen the signal may have opened it.
    let all = !preempt::OWN;
    set_kernel_mask(all);
    inside.kernel.mask.store(all, Ordering::Relaxed);
    while let Some((signal, information)) = inside.kernel.inbox.take() {
        pending::pass(inside, signal, &information);
    }
    inside.kernel.at_hand.store(0, Ordering::SeqCst);
    // A standby may not sleep for long, and takes signals for parked threads meanwhile.
    if inside.activity() == Activity::Standby {
        inside.runtime().kernel().set_resting_mask(inside);
    }
}

/// Called at the end of a time slice of `ran`. Serves its deadline, and signals for the process that the running threads
/// block and a parked one accepts. See [`upcall_linux::Hooks::tick`].
pub fn tick(inside: &Inside, ran: &'static Thread) {
    pending::return_kept(inside);
    (hooks().tick)(inside, ran);
    // Before it asks what is closed: a thread that closes a signal looks here afterwards.
    inside.kernel.looks.store(true, Ordering::SeqCst);
    look_for_parked(inside);
    inside.kernel.looks.store(false, Ordering::SeqCst);
}

/// Passes on the signals for the process that the running threads block and a parked one accepts.
fn look_for_parked(inside: &Inside) {
    let wanted = masks::passable();
    if inside.kernel.mask.load(Ordering::Relaxed) & wanted == 0 {
        return;
    }
    let pending = pending::in_kernel();
    if pending & wanted != 0 {
        pending::pass_pending(inside, pending & wanted);
    }
}
