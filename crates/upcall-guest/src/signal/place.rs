//! Where a handler runs. The kernel begins all but those of faults and of dispatched calls on the activation's own stack
//! (`altstack`). A handler that may let the thread be parked, or runs code of the program, is first moved to the thread's
//! memory with its frame:
//!
//! | signal | goes to |
//! |---|---|
//! | met the runtime, or one of its accesses to the program's memory | stays: it returns on the spot |
//! | for a handler of the thread's, SA_ONSTACK | the thread's alternate stack, if it has one and is not on it |
//! | for a handler of the thread's | below the stack pointer |
//! | other: the runtime's own, and those that the thread does not get in the kernel | below the stack pointer if that is on the thread's stack and has room there, otherwise memory of our own (`aside`) |
//!
//! All signals are blocked meanwhile. A thread of the crate has room on its own stack only down to the guard, which may be
//! smaller than a frame, and behind which another thread's stack ends. Where a handler of the thread's has no room the
//! kernel would send SIGSEGV.
//!
//! On a kernel thread that is no activation the kernel knows the thread's own alternate stack. A frame that it has put there
//! against the program's wish is moved below the stack pointer.

use core::sync::atomic::Ordering;

use upcall_linux::{Activation, Thread, base, preempt};

use crate::ground::arch::{self, Placed};
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::raw_syscall;
use crate::ground::hooks::hooks;
use crate::ground::mask::bit;
use crate::ground::state::GUEST;
use crate::ground::{access, caller};
use crate::rewrite::sud;

use super::actions::{ACTIONS, Disposition, disposition, is_forced, shows_stacks};
use super::{altstack, aside, end_by, hidden, is_anothers, meets_runtime, own, queued};

/// Returns true if the handler with this frame runs on the activation's own stack.
pub(super) fn is_at_entry(activation: &Activation, context: *const libc::ucontext_t) -> bool {
    activation.own_stack().contains(&(context as usize))
}

/// Takes the first step of every handler.
///
/// # Safety
///
/// Called by the entry, with what the kernel has passed to that.
pub unsafe extern "C" fn place(
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    frame: usize,
) -> Placed {
    // SAFETY: as the kernel passed them.
    if signal == libc::SIGSYS && unsafe { own::ends_at_once(information, context) } {
        return Placed {
            frame: 0,
            entered: caller::NOTHING,
        };
    }
    let entered = caller::enter();
    // SAFETY: as the kernel passed it.
    let frame = unsafe { place_frame(signal, information, context, frame) };
    if frame == 0 {
        caller::leave(entered);
    }
    Placed { frame, entered }
}

/// # Safety
///
/// As [`place`].
unsafe fn place_frame(
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    frame: usize,
) -> usize {
    if GUEST.runtime().is_none() {
        return frame;
    }
    // SAFETY: the pseudo-register is set.
    let activation = base::is_set().then(|| unsafe { base::current() });
    let Some(activation) = activation.filter(|activation| !caller::is_mark(activation)) else {
        // SAFETY: as the kernel passed it.
        return unsafe { off_unwanted_stack(signal, information, context, frame) };
    };
    // SAFETY: as the kernel passed it.
    unsafe { queued::complete_dropped(activation, signal, information) };
    altstack::leave_as_it_is(context);
    let Some(thread) = activation.thread() else {
        return frame;
    };
    let has_frame = &thread.guest().has_frame;
    has_frame.store(false, Ordering::Relaxed);
    if !is_at_entry(activation, context) || activation.is_inside() {
        return frame;
    }
    // SAFETY: as the kernel passed it.
    let own = signal == preempt::SIGNAL
        && unsafe { preempt::meaning(information) } != preempt::Meaning::OfProgram;
    if !own && meets_runtime(activation) {
        return frame;
    }
    // SAFETY: as the kernel passed it.
    if own || unsafe { only_stops(activation, thread, signal, information) } {
        // SAFETY: the kernel's frame.
        if let Some(top) = unsafe { top_of_stop(activation, thread, context) } {
            // SAFETY: the frame is the kernel's; the place is the thread's, or our own.
            return unsafe { arch::move_frame(frame, context, top) };
        }
        if own {
            // There is no memory: it is only noted.
            return frame;
        }
    }
    // The signal stays this thread's, whoever comes to accept it now.
    has_frame.store(true, Ordering::Relaxed);
    // SAFETY: as the kernel passed it.
    unsafe { place_for_handler(thread, signal, information, context, frame) }
}

/// Moves the frame to where the kernel would have put it for the thread. Returns where it is, or 0 if there is no room.
///
/// # Safety
///
/// As [`place`].
unsafe fn place_for_handler(
    thread: &'static Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    frame: usize,
) -> usize {
    // SAFETY: the kernel's frame.
    let [pc, stack_pointer] = unsafe { registers(context) };
    // SAFETY: as the kernel passed it.
    if is_forced(signal, unsafe { (*information).si_code }) && access::recover(pc).is_some() {
        return frame;
    }
    let stack = altstack::of(thread);
    let is_on = altstack::is_on(&stack, stack_pointer);
    // One that is taken away during handlers is so for those only.
    let enters = wants_alternate(signal)
        && !is_on
        && stack.ss_size != 0
        // SAFETY: as the kernel passed it.
        && (unsafe { is_handled(signal, information) } || !altstack::disarms(&stack));
    let base = stack.ss_sp as usize;
    let top = if enters {
        base + stack.ss_size
    } else {
        arch::below(stack_pointer)
    };
    // SAFETY: as the kernel passed it; of this signal, raised by an instruction, it has an address.
    let fault = unsafe {
        (signal == libc::SIGSEGV && (*information).si_code > 0)
            .then(|| (*information).si_addr() as usize)
    };
    // SAFETY: the kernel's frame.
    let place = unsafe { arch::frame_below(context, top) };
    let has_room = if enters || is_on {
        place > base
    } else {
        // Before anything is written: beyond a guard that is smaller than the frame another thread's stack ends.
        let overflows = fault.is_some_and(|address| (hooks().is_in_guard)(thread, address));
        !overflows && (hooks().has_room)(thread, stack_pointer, place)
    };
    if !has_room || !is_writable(place) {
        if let Some(address) = fault {
            (hooks().report_overflow)(thread, address);
        }
        // SAFETY: as the kernel passed it.
        no_room(signal, unsafe { (*information).si_code });
        return 0;
    }
    // SAFETY: the frame is the kernel's; the place is the thread's, where the kernel would put it.
    unsafe { arch::move_frame(frame, context, top) }
}

/// Returns the instruction and the stack pointer that the frame continues.
///
/// # Safety
///
/// The kernel's frame.
unsafe fn registers(context: *const libc::ucontext_t) -> [usize; 2] {
    [libc::REG_RIP, libc::REG_RSP].map(|register| {
        // SAFETY: the caller's promise.
        unsafe { (*context).uc_mcontext.gregs[register as usize] as usize }
    })
}

fn wants_alternate(signal: i32) -> bool {
    ACTIONS[signal as usize].get().flags & libc::SA_ONSTACK as u64 != 0
}

/// Returns true if no handler of the thread's runs for this signal: there is none, or it is another thread's, or the thread
/// blocks it, or the user asks for the stacks.
///
/// # Safety
///
/// `information` is what the kernel passed.
unsafe fn only_stops(
    activation: &Activation,
    thread: &'static Thread,
    signal: i32,
    information: *const libc::siginfo_t,
) -> bool {
    // In the child of a vfork(2) the thread is its parent's.
    if thread.guest().lent.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: the caller's promise.
    let code = unsafe { (*information).si_code };
    if disposition(signal) != Disposition::Handled && !is_forced(signal, code) {
        return true;
    }
    let is_meant = activation.kernel.queued.signal() == signal;
    shows_stacks(signal)
        || hidden(thread) & bit(signal) & !preempt::OWN != 0
        // SAFETY: the caller's promise.
        || unsafe { is_anothers(thread, signal, information, is_meant) }
}

/// Returns below which address the frame goes of a signal that only stops the thread, or `None` if there is no memory.
///
/// # Safety
///
/// The kernel's frame.
unsafe fn top_of_stop(
    activation: &Activation,
    thread: &'static Thread,
    context: *const libc::ucontext_t,
) -> Option<usize> {
    // SAFETY: the caller's promise.
    let [_, stack_pointer] = unsafe { registers(context) };
    let below = arch::below(stack_pointer);
    // SAFETY: the caller's promise.
    let place = unsafe { arch::frame_below(context, below) };
    let fits = (hooks().stack)(thread).contains(&stack_pointer)
        // It may lie in the thread's stack, above what is in use there.
        && !altstack::is_on(&altstack::of(thread), stack_pointer)
        && (hooks().has_room)(thread, stack_pointer, place)
        && is_writable(place);
    if fits {
        Some(below)
    } else {
        aside::top(activation.runtime(), thread, stack_pointer)
    }
}

/// Called on a kernel thread that is no activation. Returns where the frame is, which was moved if it was on the alternate stack
/// although the program does not want that.
///
/// # Safety
///
/// As [`place`].
unsafe fn off_unwanted_stack(
    signal: i32,
    information: *const libc::siginfo_t,
    context: *mut libc::ucontext_t,
    frame: usize,
) -> usize {
    // SAFETY: the kernel's frame, in which is the stack that the kernel knew.
    let (stack, [_, stack_pointer]) = unsafe { ((*context).uc_stack, registers(context)) };
    let base = stack.ss_sp as usize;
    let is_there = (base..base.saturating_add(stack.ss_size)).contains(&frame);
    if !is_there || wants_alternate(signal) || altstack::is_on(&stack, stack_pointer) {
        return frame;
    }
    let top = arch::below(stack_pointer);
    // SAFETY: the kernel's frame.
    if !is_writable(unsafe { arch::frame_below(context, top) }) {
        // SAFETY: as the kernel passed it.
        no_room(signal, unsafe { (*information).si_code });
        return 0;
    }
    // SAFETY: the frame is the kernel's; the place is where the kernel would put it.
    unsafe { arch::move_frame(frame, context, top) }
}

/// Returns true if a handler of the program's is about to run.
///
/// # Safety
///
/// `information` is what the kernel passed.
unsafe fn is_handled(signal: i32, information: *const libc::siginfo_t) -> bool {
    // SAFETY: the caller's promise.
    disposition(signal) == Disposition::Handled && !unsafe { sud::is_call(information) }
}

/// Returns true if the thread's memory is there. A fault would end the process, since all signals are blocked.
fn is_writable(address: usize) -> bool {
    // SAFETY: changes nothing, and writes eight bytes to where a frame is about to be put, if it can.
    let answer = unsafe { raw_syscall(libc::SYS_rt_sigprocmask, [0, 0, address as u64, 8, 0, 0]) };
    answer == 0
}

/// As the kernel does where it cannot put a frame: SIGSEGV, and no handler for that if it was one.
fn no_room(signal: i32, code: i32) {
    if signal == libc::SIGSEGV {
        end_by(signal, code);
        return;
    }
    // SAFETY: it comes when this handler returns.
    unsafe {
        let pid = raw_syscall(libc::SYS_getpid, [0; 6]) as u64;
        let tid = raw_syscall(libc::SYS_gettid, [0; 6]) as u64;
        let signal = libc::SIGSEGV as u64;
        raw_syscall(libc::SYS_tgkill, [pid, tid, signal, 0, 0, 0]);
    }
}
