//! Signals, per thread: actions, delivery, masks. See docs/adr/0011.
//!
//! The kernel delivers a signal to a kernel thread; the program means a thread. Each activation's kernel mask is that of
//! its thread, and every handler of the program is entered through `on_signal`:
//!
//! 1. Outside the runtime, the activation's thread is the receiver, unless the signal is for the process and the first thread
//!    accepts it (`receivers`). Its handler is called in the kernel's own frame, which is first moved if the thread wants it
//!    elsewhere (`place`). If the thread was in a system call, the activation first
//!    gets its virtual processor back. The frame then shows the thread at libc's own system-call instruction, where
//!    unwinders and cancellation expect it: at the instruction while the call has left nothing behind and may be made
//!    again, after it otherwise.
//! 2. Inside the runtime nothing may be delivered. The signal is kept with the activation ([`upcall_linux::Inbox`]), which
//!    then blocks all of the program's signals. When the activation leaves the runtime the signal is queued to it again,
//!    and the mask is opened. Either the thread is in a system call then, which the frame shows, or the runtime's own
//!    signal has stopped it in its own code, and the handler begins when that signal's frame returns (`own`).
//! 3. An activation without a thread sleeps with a mask that lets through what some thread accepts (`masks.rs`), so that
//!    signals for the process wake it although all threads are parked. It passes each to a thread that accepts it
//!    (`pending.rs`).
//!
//! The kernel's mask and the noted one differ at the entry of a handler, and at its end until the kernel has opened the
//! mask. Meanwhile the runtime's own signal is blocked, so that the thread does not migrate.
//!
//! All this runs on the thread's stack, which may be small, below the kernel's frame, which may be large (11 KiB where there are
//! tile registers). So what the program's handlers do not need of it is in functions that are not inlined.
//!
//! A fault (SIGSEGV and others) always hits the thread that made it. Approach rejected: the program's handlers as kernel
//! handlers, which would run in the middle of the runtime.

mod actions;
pub mod alone;
pub mod altstack;
mod aside;
mod calls;
pub mod carried;
pub mod caused;
pub mod children;
mod deferred;
pub mod descriptors;
pub mod dispatch;
pub mod everywhere;
mod frame;
mod handler;
pub mod lists;
pub mod masks;
mod outside;
mod own;
pub mod pending;
mod place;
pub mod queued;
pub mod receivers;
mod returning;
pub mod seen;
pub mod send;
pub mod settled;
pub mod timers;
pub mod user_dispatch;
mod waits;

pub use actions::*;
pub use calls::*;
pub use deferred::*;
pub use place::place;
pub use returning::{forget_left, is_called_back};
pub use waits::*;

use core::sync::atomic::Ordering;

use upcall_core::Machine;
use upcall_core::kernel::Vessels;
use upcall_linux::{Activation, Thread, base, live, preempt, sys, turns};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::hooks::hooks;
use crate::ground::mask::{ALL, bit, kernel_mask, set_kernel_mask};
use crate::ground::state::{self, GUEST};
use crate::ground::{access, arch, caller, record};
use crate::rewrite::{patch, sud};

use frame::{frame_mask, set_frame_mask, show_call};
use handler::{call, call_handler, finish, handler_mask, note_mask};
use own::own_signal;
use returning::returning;

/// Where the kernel delivers every signal that the program or the runtime handles.
///
/// # Safety
///
/// Called by the entry, with what the kernel has passed to that, and what [`caller::enter`] has answered.
pub unsafe extern "C" fn on_signal(
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    entered: usize,
) {
    // SAFETY: the caller's promise.
    let entered = unsafe { serve(signal, information, context, entered) };
    // SAFETY: the kernel's frame, by which this handler returns, perhaps on another kernel thread.
    unsafe { arch::can_return_by(context) };
    caller::leave(entered);
}

/// Serves the signal. Returns what [`caller::leave`] takes.
///
/// # Safety
///
/// As [`on_signal`].
unsafe fn serve(
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    entered: usize,
) -> usize {
    // SAFETY: the kernel passes its own frame.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    // SAFETY: as above; the code tells who made it.
    let code = unsafe { (*information).si_code };
    if is_forced(signal, code)
        && let Some(exit) = access::recover(registers[libc::REG_RIP as usize] as usize)
    {
        registers[libc::REG_RIP as usize] = exit as i64;
        return entered;
    }
    // SAFETY: as the kernel passed it: a fault has an address.
    if signal == libc::SIGBUS && code > 0 && unsafe { is_mended(information) } {
        return entered;
    }
    if signal == libc::SIGSYS {
        // SAFETY: as the kernel passed it.
        if unsafe { sud::is_call(information) } {
            if GUEST.runtime().is_some() {
                // It goes on under the thread's.
                set_kernel_mask(frame_mask(context));
            }
            let was_ready = state::is_ready();
            // As at a stub: the hook finds the program's register.
            caller::leave(entered);
            // SAFETY: as the kernel passed them.
            unsafe { sud::handle(information, context) };
            let entered = caller::enter();
            settle(context);
            go_on_where_rewritten(was_ready, context);
            return entered;
        }
        // As for the other signals (`kernel_action`), if there was no runtime when it was said.
        set_kernel_mask(ALL);
    }
    let runtime = GUEST.runtime().filter(|_| !caller::is_outside());
    let Some(runtime) = runtime else {
        // SAFETY: as the kernel passed it.
        if signal == preempt::SIGNAL && unsafe { outside::is_passed_on(information) } {
            return entered;
        }
        // SAFETY: as the kernel passed them.
        return unsafe { alone(signal, information, context, entered) };
    };
    // SAFETY: on an activation.
    let activation = unsafe { base::current() };
    if signal == preempt::SIGNAL {
        // SAFETY: as the kernel passed it.
        let meaning = unsafe { preempt::meaning(information) };
        everywhere::make_requested_call(activation);
        if live::is_asked() {
            // `timeline::begin_if_asked` looks where it may.
            activation.attend(Activation::DEFERRED);
        }
        if let Some(thread) = activation.thread() {
            thread.guest().disturbed.store(true, Ordering::Relaxed);
        }
        match meaning {
            // An interruption that came after it was dropped: the kernel keeps one of a number.
            preempt::Meaning::Call if !activation.wants_attention() => return entered,
            preempt::Meaning::Timer { number, times } => {
                timers::expired(activation, number, times);
            }
            _ => {}
        }
        if meaning != preempt::Meaning::OfProgram {
            // SAFETY: as the kernel passed it.
            unsafe { own_signal(activation, meaning, context) };
            return entered;
        }
    }
    let filtered = signal == libc::SIGSYS && code == SYS_SECCOMP;
    if meets_runtime(activation) {
        if filtered {
            // The program's filter met a call that the runtime makes elsewhere, in the vDSO.
            registers[libc::REG_RAX as usize] = -i64::from(libc::ENOSYS);
            return entered;
        }
        // SAFETY: as the kernel passed it.
        if unsafe { is_dropped(activation, signal, information) } {
            return entered;
        }
        // SAFETY: as the kernel passed them.
        unsafe { defer(activation, signal, information, context) };
        return entered;
    }
    let Some(thread) = caller::current_thread() else {
        return entered;
    };
    // SAFETY: as the kernel passed it.
    if filtered && unsafe { own::is_stand_in(thread, information) } {
        registers[libc::REG_RAX as usize] = -i64::from(libc::ENOSYS);
        return entered;
    }
    if hidden(thread) & bit(signal) & !preempt::OWN != 0 {
        // SAFETY: as the kernel passed them.
        unsafe { hold_back(activation, thread, signal, information, context) };
        return entered;
    }
    // SAFETY: as the kernel passed it.
    let is_meant = unsafe { queued::complete(activation, signal, information) };
    // SAFETY: as the kernel passed it.
    if unsafe { is_anothers(thread, signal, information, is_meant) } {
        // SAFETY: as the kernel passed it.
        unsafe { give_away(activation, thread, signal, information) };
        show_own_mask(context);
        return entered;
    }
    if disposition(signal) != Disposition::Handled {
        // Nothing is opened for it, since what is ignored may come faster than it is.
        // SAFETY: as the kernel passed them; nothing happens, or the process ends when this frame returns.
        unsafe { call_handler(signal, information, context) };
        return entered;
    }
    show_mask(thread, context);
    altstack::show(thread, context);
    let mask = handler_mask(thread, signal, context);
    let frame = thread.guest().frame.swap(0, Ordering::Relaxed) as *mut Frame;
    let base = thread.kernel.program_base.load(Ordering::Relaxed);
    let pc = registers[libc::REG_RIP as usize] as usize;
    let is_in_program = frame.is_null() && !sud::range().contains(&pc);
    let interrupted = activation.is_in_call();
    if interrupted {
        // Another signal may come as soon as the mask is open, but is not delivered to a thread that
        // is neither in its call any more nor has its virtual processor back.
        runtime.kernel().set_inside();
    }
    note_mask(activation, thread, mask);
    if interrupted {
        runtime.interrupt_blocking();
    }
    // SAFETY: outside the runtime, with a virtual processor, in the kernel's frame.
    let call = || unsafe { call(thread, signal, information, context) };
    if frame.is_null() {
        if interrupted {
            returning(thread, call);
            runtime.resume_blocking();
        } else {
            call();
        }
        finish_where_it_is(context);
        // The handler may have changed the register for what it has interrupted.
        let changed = thread.kernel.program_base.load(Ordering::Relaxed) != base;
        return if is_in_program && changed && GUEST.runtime().is_some() {
            caller::OF_THREAD
        } else {
            entered
        };
    }
    // SAFETY: as the kernel passed it.
    let raised = signal == libc::SIGSYS && unsafe { user_dispatch::is_raised(thread, information) };
    let mut left = *registers;
    // SAFETY: the frame of the system call that the thread is in, on its own stack; the kernel's frame.
    let goes_on = unsafe {
        let number = (*frame).rax;
        show_call(frame, information, context, || {
            let shown = &raw mut (*context).uc_mcontext.gregs;
            if raised {
                user_dispatch::show(number, information, &mut *shown);
            }
            returning(thread, call);
            left = *shown;
        })
    };
    if raised {
        user_dispatch::keep(thread, goes_on.then_some(&left));
    }
    if goes_on {
        let state = &thread.guest().frame;
        state.store(frame as usize, Ordering::Relaxed);
        if interrupted {
            runtime.resume_blocking();
        }
    }
    finish_where_it_is(context);
    entered
}

/// Returns true if a signal meets code in which no handler of the program may run: the runtime, or what the runtime's
/// own signal does on the stack of a thread that it has stopped.
fn meets_runtime(activation: &Activation) -> bool {
    let stopped = |thread: &Thread| thread.guest().stopped.load(Ordering::Relaxed);
    activation.is_inside() || activation.thread().is_some_and(stopped)
}

/// Called at the end of a handler, which may have made the process another: the child of a fork, or one with a runtime.
fn finish_where_it_is(context: *mut libc::ucontext_t) {
    match (GUEST.runtime(), caller::own_thread()) {
        (Some(runtime), Some(thread)) => finish(runtime, thread, context),
        _ => finish_alone(context),
    }
}

/// Takes the first steps of an activation in its own kernel thread. See [`upcall_linux::Hooks::begin`].
pub fn begin() {
    // The first one when the runtime is known.
    if GUEST.runtime().is_some() {
        // SAFETY: on an activation.
        altstack::install(unsafe { base::current() });
    }
    dispatch::begin();
}

/// Returns true if nothing happens for a signal that came inside the runtime, since the thread ignores it and does not
/// block it: such may come faster than they can be passed on.
///
/// # Safety
///
/// `information` is what the kernel passed.
#[inline(never)]
unsafe fn is_dropped(
    activation: &Activation,
    signal: i32,
    information: *const libc::siginfo_t,
) -> bool {
    // SAFETY: the caller's promise.
    let code = unsafe { (*information).si_code };
    let blocks = |thread: &Thread| thread.kernel.mask.load(Ordering::Relaxed) & bit(signal) != 0;
    disposition(signal) == Disposition::Ignored
        && !is_forced(signal, code)
        && activation.thread().is_some_and(|thread| !blocks(thread))
}

/// Returns true if a signal has come to a thread that does not get it: the thread blocks it and its activation never does, or
/// it is for the process, and so the first thread's. What the runtime has queued for the thread `is_meant` for it.
///
/// # Safety
///
/// `information` is what the kernel passed.
#[inline(never)]
unsafe fn is_anothers(
    thread: &'static Thread,
    signal: i32,
    information: *const libc::siginfo_t,
    is_meant: bool,
) -> bool {
    if blocked_by(thread) & preempt::OWN & bit(signal) != 0 {
        return true;
    }
    // SAFETY: the caller's promise; a siginfo_t is 128 bytes.
    let words = unsafe { &*information.cast::<pending::Information>() };
    !is_meant
        && !thread.guest().has_frame.load(Ordering::Relaxed)
        && disposition(signal) != Disposition::Ignored
        && receivers::is_of_another(thread, signal, words)
}

/// Handles a signal that has come to a thread and is not its. One that was sent goes to another or waits, as in the kernel; a
/// fault ends the process, as in the kernel.
///
/// # Safety
///
/// `information` is what the kernel passed, in the handler, with all signals blocked.
#[inline(never)]
unsafe fn give_away(
    activation: &Activation,
    thread: &'static Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
) {
    // SAFETY: the caller's promise; a siginfo_t is 128 bytes.
    let (code, words) = unsafe {
        (
            (*information).si_code,
            &*information.cast::<pending::Information>(),
        )
    };
    if is_forced(signal, code) {
        end_by(signal, code);
        return;
    }
    thread.guest().disturbed.store(true, Ordering::Relaxed);
    let runtime = activation.runtime();
    let interrupted = activation.is_in_call();
    runtime.kernel().set_inside();
    set_kernel_mask(activation.kernel.mask.load(Ordering::Relaxed));
    if interrupted {
        runtime.interrupt_blocking();
    }
    let inside = runtime.enter();
    pending::pass(&inside, signal, words);
    inside.leave();
    if interrupted {
        runtime.resume_blocking();
    }
}

/// Handles a signal that the thread blocks by a lazy mask, and its activation does not: as one that comes inside the runtime
/// just before the thread leaves it. The activation has the thread's mask afterwards.
///
/// # Safety
///
/// As [`defer`].
#[inline(never)]
unsafe fn hold_back(
    activation: &Activation,
    thread: &'static Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the caller's promise.
    let code = unsafe { (*information).si_code };
    if is_forced(signal, code) {
        end_by(signal, code);
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { defer(activation, signal, information, context) };
    thread.guest().disturbed.store(true, Ordering::Relaxed);
    let runtime = activation.runtime();
    let interrupted = activation.is_in_call();
    runtime.kernel().set_inside();
    if interrupted {
        runtime.interrupt_blocking();
    }
    runtime.enter().leave();
    if interrupted {
        runtime.resume_blocking();
    }
    show_own_mask(context);
}

/// Makes the frame's mask that of the activation, which may be another one by now. From here to the end of the handler the
/// thread stays there.
fn show_own_mask(context: *mut libc::ucontext_t) {
    set_kernel_mask(ALL);
    // SAFETY: on an activation.
    let activation = unsafe { base::current() };
    set_frame_mask(context, activation.kernel.mask.load(Ordering::Relaxed));
}

/// Ends or stops the process by a signal of this code, if that is its default action.
fn end_by(signal: i32, code: i32) {
    take_default(signal);
    if code > 0 && is_fault(signal) {
        // It happens again.
        return;
    }
    // SAFETY: ends the process, or stops it.
    unsafe {
        let pid = raw_syscall(libc::SYS_getpid, [0; 6]) as u64;
        let tid = raw_syscall(libc::SYS_gettid, [0; 6]) as u64;
        raw_syscall(libc::SYS_tgkill, [pid, tid, signal as u64, 0, 0, 0]);
    }
}

/// Called when a dispatched call has been served. The kernel will set the mask in the frame: it becomes what it is now,
/// after the call and perhaps on another activation. The alternate stack does not change.
fn settle(context: *mut libc::ucontext_t) {
    match GUEST.runtime().filter(|_| !caller::is_outside()) {
        // A call of the runtime's own, in a vDSO that is not rewritten: nothing has changed.
        // SAFETY: on an activation.
        Some(_) if unsafe { base::is_inside() } => return,
        Some(_) => show_own_mask(context),
        None => set_frame_mask(context, kernel_mask()),
    }
    // The call may have begun before there was a runtime, or may have changed it.
    altstack::leave_as_it_is(context);
}

/// A signal for a kernel thread that is the thread. Without a runtime the kernel has set the
/// handler's mask already. `entered` and the answer are as for [`caller::leave`].
///
/// # Safety
///
/// The arguments are what the kernel passed.
#[inline(never)]
unsafe fn alone(
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    entered: usize,
) -> usize {
    // SAFETY: the kernel's siginfo_t; a siginfo_t is 128 bytes.
    let (code, words) = unsafe {
        (
            (*information).si_code,
            &*information.cast::<pending::Information>(),
        )
    };
    if alone::hidden() & bit(signal) != 0 && code > 0 {
        end_by(signal, code);
        return entered;
    }
    if alone::keep(signal, words) {
        return entered;
    }
    if let Some(carried) = carried::open(signal, words) {
        carried.deliver_from_outside();
        return entered;
    }
    if let Some(thread) = record::current_thread() {
        // SAFETY: as the kernel passed them.
        return unsafe { outside::serve(thread, signal, information, context, entered) };
    }
    let before = frame_mask(context) | alone::hidden();
    set_frame_mask(context, before);
    if GUEST.runtime().is_some() || signal == libc::SIGSYS {
        alone::set_mask(action_mask(signal, before));
    } else if dispatch::is_on() {
        alone::set_mask(kernel_mask() | alone::hidden());
    }
    let was_ready = state::is_ready();
    // SAFETY: in the kernel's frame.
    let call = || unsafe { call_handler(signal, information, context) };
    match alone::take_frame() {
        None => call(),
        // SAFETY: the frame of the system call in which the process is, on its own stack; the kernel's frame.
        Some(frame) => unsafe {
            if show_call(frame, information, context, call) {
                alone::give_frame_back(frame);
            }
        },
    }
    go_on_where_rewritten(was_ready, context);
    finish_where_it_is(context);
    entered
}

/// Called at the end of a handler, with what [`state::is_ready`] was at its beginning. If sites were rewritten in it, what it has
/// interrupted may have been at one.
fn go_on_where_rewritten(was_ready: bool, context: *mut libc::ucontext_t) {
    if !was_ready && state::is_ready() {
        go_on_in_stub(context);
    }
}

#[cold]
fn go_on_in_stub(context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's frame.
    let pc = unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    if let Some(instead) = patch::replaced(*pc as usize) {
        *pc = instead as i64;
    }
}

/// Called at the end of a handler on a kernel thread that is the thread.
fn finish_alone(context: *mut libc::ucontext_t) {
    let after = frame_mask(context);
    alone::note_mask(after);
    set_frame_mask(context, dispatch::blockable(after));
    alone::deliver_kept();
}

/// Returns true if a fault was the runtime's own and its instruction can be executed again: in the memory that programs
/// share to take turns, which one of them may have cut short.
///
/// # Safety
///
/// `information` is that of a fault.
#[cold]
unsafe fn is_mended(information: *const libc::siginfo_t) -> bool {
    // SAFETY: the caller's promise.
    turns::registry::mend(unsafe { (*information).si_addr() } as usize)
}

/// Makes the frame's mask the thread's, which may block what its activation does not.
fn show_mask(thread: &'static Thread, context: *mut libc::ucontext_t) {
    set_frame_mask(context, frame_mask(context) | hidden(thread));
}

/// Keeps a signal that came inside the runtime with the activation until it leaves.
///
/// # Safety
///
/// The arguments are what the kernel passed.
#[inline(never)]
unsafe fn defer(
    activation: &Activation,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the kernel's siginfo_t; the code tells who made it.
    let code = unsafe { (*information).si_code };
    if is_fault(signal) && code > 0 {
        // A fault of the runtime itself, or of a thread that came with a stack nearly used up. With the
        // default action the fault repeats and ends the process where it happened, with a core that shows it.
        // SAFETY: as the kernel passed it; of a fault it has an address.
        let address = unsafe { (*information).si_addr() } as usize;
        let thread = activation.thread();
        if !thread.is_some_and(|thread| (hooks().report_overflow)(thread, address)) {
            sys::say(b"upcall: fault inside the runtime: this is a bug in upcall\n");
        }
        set_kernel_action(signal, &KernelAction::default());
        return;
    }
    let all = !preempt::OWN;
    // Before the mask is noted: a thread that finds the mask closed looks here afterwards.
    activation
        .kernel
        .at_hand
        .fetch_or(bit(signal), Ordering::SeqCst);
    // What the kernel thread gets when the handler returns.
    set_frame_mask(context, all);
    activation.kernel.mask.store(all, Ordering::Relaxed);
    // SAFETY: as the kernel passed it.
    unsafe { queued::complete(activation, signal, information) };
    // SAFETY: a siginfo_t is 128 bytes.
    let words = unsafe { &*information.cast::<pending::Information>() };
    if !activation.kernel.inbox.put(signal, words) {
        activation
            .runtime()
            .kernel()
            .broken("more signals inside the runtime than the masks let through");
    }
    activation.attend(Activation::DEFERRED);
    // A thread that is about to sleep must look again; one that has looked and is about to poll must be told.
    activation.wake_word().fetch_add(1, Ordering::SeqCst);
    if activation.thread().is_none() {
        activation.runtime().kernel().wake(activation);
    }
}
