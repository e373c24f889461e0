//! The handler that every rewritten site enters. It finds out who makes the call, and asks the table
//! ([`crate::call::table`]).

use core::sync::atomic::Ordering;

use upcall_linux::{Runtime, Thread, base};

use crate::call::again;
use crate::call::table::{Row, row_of};
use crate::ground::attributes::GuestAttributes;
use crate::ground::caller::{self, Caller};
use crate::ground::entry::{self, Frame};
use crate::ground::hooks::hooks;
use crate::ground::record;
use crate::ground::state::{self, GUEST};
use crate::process::loads;
use crate::signal::seen::{SEEN, UNSEEN};
use crate::signal::{self, alone, dispatch};
use crate::thread::{bound, deadlines, lifetime};

const EINTR: i64 = -(libc::EINTR as i64);

/// Called by every rewritten site.
///
/// # Safety
///
/// Called by the entry, on the program's stack.
pub unsafe extern "C" fn handler(frame: &mut Frame) {
    // Each of these functions is reached by a jump, so nothing of the stack is in use here: the last call of a thread may
    // have little of it.
    match GUEST.runtime() {
        Some(runtime) if frame.rax as i64 == libc::SYS_exit => exit(runtime, frame),
        Some(runtime) => dispatch(runtime, frame),
        None => without_runtime(frame),
    }
}

#[inline(never)]
// Beside what else a fork runs (ADR 32).
#[unsafe(link_section = ".text.forks")]
fn without_runtime(frame: &mut Frame) {
    if state::is_lent() || base::is_set() {
        outside(frame);
        return;
    }
    if dispatch::traps_often() && loads::may_make_ready(frame) {
        (hooks().make_ready)();
    }
    alone::in_call(frame, alone);
    if GUEST.runtime().is_some()
        && let Some(thread) = caller::own_thread()
    {
        caller::give_back(thread);
    }
}

/// Serves exit(2), with little of the stack.
#[inline(never)]
fn exit(runtime: &'static Runtime, frame: &mut Frame) {
    match ending(runtime) {
        Caller::Thread(thread, _) => lifetime::exit(runtime, thread, frame.rdi),
        Caller::Outside(own) => caller::serve_outside(frame, own, outside),
        // SAFETY: the entry's own frame.
        Caller::Activation => unsafe { entry::native(frame) },
    }
}

/// Returns what ends by exit(2): a thread, a child on its memory, another kernel thread, or one of the runtime's own. A
/// function of its own, so that its part of the stack is free again for what follows.
#[inline(never)]
fn ending(runtime: &'static Runtime) -> Caller {
    let caller = match base::program_thread() {
        Some(thread) => Caller::Thread(thread, false),
        None => caller::identify(runtime),
    };
    match caller {
        Caller::Thread(thread, _) if thread.guest().lent.load(Ordering::Relaxed) => {
            Caller::Outside(None)
        }
        // SAFETY: the register leads to the activation.
        Caller::Thread(..) if unsafe { base::is_inside() } => Caller::Activation,
        other => other,
    }
}

/// Serves a call in a process without a runtime, which has one thread.
fn alone(frame: &mut Frame) {
    answer_or_native(row_of(frame.rax).alone, frame);
}

/// Leaves the answer of `serve` in the frame, or makes the call as it stands.
fn answer_or_native(serve: impl FnOnce(&mut Frame) -> Option<i64>, frame: &mut Frame) {
    match serve(frame) {
        Some(answer) => frame.rax = answer as u64,
        // SAFETY: the entry's own frame.
        None => unsafe { entry::native(frame) },
    }
}

/// Serves a call of an outside kernel thread, or of a child of vfork.
fn outside(frame: &mut Frame) {
    if let Some(thread) = record::current_thread() {
        crate::call::of_bound::serve(thread, frame);
        return;
    }
    if frame.rax as i64 == libc::SYS_exit {
        lifetime::exit_outside(frame);
    } else {
        helper(frame);
    }
}

/// Serves a call of an outside kernel thread, but for its last one.
#[inline(never)]
fn helper(frame: &mut Frame) {
    let row = row_of(frame.rax);
    if caller::is_helper()
        && let Some(runtime) = GUEST.runtime()
        && let Some(answer) = (row.helper)(runtime, frame)
    {
        frame.rax = answer as u64;
        return;
    }
    answer_or_native(row.child, frame);
}

/// Serves a call in a process with a runtime.
#[inline(never)]
pub fn dispatch(runtime: &'static Runtime, frame: &mut Frame) {
    let thread = match base::program_thread() {
        Some(thread) => {
            if thread.kernel.program_base.load(Ordering::Relaxed) != 0 {
                caller::forget_base(thread);
            }
            thread
        }
        None => match caller::identify(runtime) {
            Caller::Thread(thread, _) => thread,
            Caller::Outside(own) => {
                caller::serve_outside(frame, own, outside);
                return;
            }
            Caller::Activation => {
                // libc called by the runtime itself, on an activation's own stack.
                // SAFETY: the entry's own frame.
                unsafe { entry::native(frame) };
                return;
            }
        },
    };
    if thread.guest().lent.load(Ordering::Relaxed) {
        outside(frame);
        return;
    }
    // One instruction on the pseudo-register: the thread may migrate before and after it.
    // SAFETY: it leads to the activation.
    let inside = unsafe { base::is_inside() };
    if inside {
        // libc called by the runtime itself.
        // SAFETY: the entry's own frame.
        unsafe { entry::native(frame) };
        return;
    }
    let row = row_of(frame.rax);
    if thread.kernel.has_lazy_mask.load(Ordering::Relaxed) && !row.ignores_mask {
        signal::end_lazy_mask(runtime, thread);
    }
    let is_served = row
        .at_once
        .is_some_and(|serve| serve(runtime, thread, frame));
    if !is_served {
        signal::forget_left(thread, frame.rsp as usize);
        frame.rax = again::call(runtime, thread, frame, |frame| {
            once(runtime, thread, frame, row)
        }) as u64;
        deadlines::came_back(runtime, thread);
        if thread.guest().bound.load(Ordering::Relaxed) != 0 {
            bound::go(runtime, thread);
        }
    }
    // While a call is made at its site, it counts as the runtime's until the hook behind it. After a signal the program's
    // code goes on instead.
    if frame.mode != entry::mode::AT_SITE || frame.rax as i64 == libc::SYS_rt_sigreturn {
        caller::give_back(thread);
    }
}

/// Serves a call of a bound thread that visits the runtime.
pub fn once_more(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let mut frame = frame.clone();
    let row = row_of(frame.rax);
    once(runtime, thread, &mut frame, row)
}

/// Serves a call that is not made again: a handler that comes now finds the thread behind the call.
#[inline(always)]
pub fn in_call(thread: &'static Thread, frame: &mut Frame, serve: impl FnOnce(&mut Frame)) {
    let state = &thread.guest().frame;
    frame.made.set(1);
    state.store(core::ptr::from_mut(frame) as usize, Ordering::Relaxed);
    serve(frame);
    state.store(0, Ordering::Relaxed);
}

/// Makes a call that does not wait, as it stands and without the runtime. Returns false if it has to be made again, or if the
/// thread has something to do after a call.
#[inline(always)]
pub fn promptly(thread: &'static Thread, frame: &mut Frame) -> bool {
    let (guest, seen) = (thread.guest(), &thread.kernel.seen);
    if guest.bound.load(Ordering::Relaxed) != 0 || deadlines::has(thread) {
        return false;
    }
    signal::forget_left(thread, frame.rsp as usize);
    let place = core::ptr::from_ref(frame) as usize;
    guest.frame.store(place, Ordering::Relaxed);
    let before = seen.load(Ordering::Relaxed);
    seen.store(UNSEEN, Ordering::Relaxed);
    // SAFETY: the program's own call, as it made it.
    let answer = unsafe { frame.raw() } as i64;
    let is_over = answer != EINTR || seen.load(Ordering::Relaxed) == SEEN;
    // Handlers that ran meanwhile have interrupted no call around this one.
    seen.store(before, Ordering::Relaxed);
    guest.frame.store(0, Ordering::Relaxed);
    if is_over {
        frame.rax = answer as u64;
    }
    is_over
}

/// Makes the call once.
#[inline(always)]
fn once(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &mut Frame,
    row: &'static Row,
) -> i64 {
    // SAFETY: the program's own call, as it made it.
    (row.thread)(runtime, thread, frame)
        .unwrap_or_else(|| runtime.blocking(|| unsafe { frame.raw() }) as i64)
}
