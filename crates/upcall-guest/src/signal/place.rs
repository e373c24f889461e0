//! Where a handler runs. If a handler may need another stack, the kernel begins it on the activation's own (`altstack`). A
//! handler that may let the thread be parked, or runs code of the program, is first moved to the thread's memory with its
//! frame:
//!
//! | signal | goes to |
//! |---|---|
//! | met the runtime, or one of its accesses to the program's memory | stays: it returns on the spot |
//! | the program's, SA_ONSTACK | the thread's alternate stack, if it has one and is not on it |
//! | the runtime's own, in a program that takes what anybody may send on such stacks | the same |
//! | the runtime's own, away from the thread's stack | memory of our own (`aside`) |
//! | other | below the stack pointer |
//!
//! All signals are blocked meanwhile. A thread of the crate has room on its own stack only down to the guard, which may be
//! smaller than a frame, and behind which another thread's stack ends. Where the thread has no room the kernel would send
//! SIGSEGV; the runtime's own signal is only noted then.

use upcall_linux::{Activation, Thread, base, preempt};

use crate::ground::arch::{self, Placed};
use crate::ground::entry::raw_syscall;
use crate::ground::hooks::hooks;
use crate::ground::mask::bit;
use crate::ground::state::GUEST;
use crate::ground::{access, caller};
use crate::rewrite::sud;

use super::actions::{ACTIONS, Disposition, disposition, is_forced};
use super::{altstack, aside, end_by, hidden, own, queued};

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
    if GUEST.runtime().is_none() || !base::is_set() {
        return frame;
    }
    // SAFETY: the pseudo-register is set.
    let activation = unsafe { base::current() };
    if caller::is_mark(activation) {
        return frame;
    }
    // SAFETY: as the kernel passed it.
    unsafe { queued::complete_dropped(activation, signal, information) };
    altstack::leave_as_it_is(context);
    if !is_at_entry(activation, context) || activation.is_inside() {
        return frame;
    }
    // SAFETY: the kernel's frame.
    let [pc, stack_pointer] = [libc::REG_RIP, libc::REG_RSP]
        .map(|register| unsafe { (*context).uc_mcontext.gregs[register as usize] } as usize);
    let Some(thread) = activation.thread() else {
        return frame;
    };
    // SAFETY: as the kernel passed it.
    if is_forced(signal, unsafe { (*information).si_code }) && access::recover(pc).is_some() {
        return frame;
    }
    // SAFETY: as the kernel passed it.
    let own = signal == preempt::SIGNAL
        && unsafe { preempt::meaning(information) } != preempt::Meaning::OfProgram;
    // SAFETY: as the kernel passed it.
    let handled = !own && unsafe { is_handled(thread, signal, information) };
    // SAFETY: as the kernel passed it; of this signal, raised by an instruction, it has an address.
    let fault = unsafe {
        (signal == libc::SIGSEGV && (*information).si_code > 0)
            .then(|| (*information).si_addr() as usize)
    };
    let stack = altstack::of(thread);
    let is_on = altstack::is_on(&stack, stack_pointer);
    let wanted = if own {
        altstack::takes_own(&stack)
    } else {
        ACTIONS[signal as usize].get().flags & libc::SA_ONSTACK as u64 != 0
    };
    // One that is taken away during handlers is so for those only.
    let enters = wanted && !is_on && stack.ss_size != 0 && (handled || !altstack::disarms(&stack));
    let base = stack.ss_sp as usize;
    let top = if enters {
        base + stack.ss_size
    } else if own && !is_on {
        match aside::top(activation.runtime(), thread, stack_pointer) {
            Some(top) => top,
            None => return frame,
        }
    } else {
        arch::below(stack_pointer)
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
        if own {
            return frame;
        }
        if let Some(address) = fault {
            (hooks().report_overflow)(thread, address);
        }
        // SAFETY: as the kernel passed it.
        no_room(signal, unsafe { (*information).si_code });
        return 0;
    }
    // SAFETY: the frame is the kernel's; the place is the thread's, where the kernel would put it.
    unsafe { arch::move_frame(frame, context, top) };
    place
}

/// Returns true if a handler of the program's is about to run.
///
/// # Safety
///
/// `information` is what the kernel passed.
unsafe fn is_handled(
    thread: &'static Thread,
    signal: i32,
    information: *const libc::siginfo_t,
) -> bool {
    disposition(signal) == Disposition::Handled
        && hidden(thread) & bit(signal) == 0
        // SAFETY: the caller's promise.
        && !unsafe { sud::is_call(information) }
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
