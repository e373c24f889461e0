//! Processes: fork, vfork, posix_spawn, exec, and what belongs to a process and not to a thread.
//!
//! | call | what happens |
//! |---|---|
//! | fork | in the handler; the child has one thread and leaves the runtime behind |
//! | vfork | at libc's own site; until the child is gone the thread is *lent*: calls pass through |
//! | clone with CLONE_VM (posix_spawn) | the child is a kernel thread of its own, marked as an outside one |
//! | exec | by the kernel; without this library where the new program could not load it ([`preload`]) |
//! | set*id by libc | on every activation: a kernel thread that kept the old identity would be a hole |
//!
//! Children and executed programs have the affinity that the thread has asked for, or that the program was given, not the
//! virtual processor's. Where the runtime has bound nothing it changes nothing. The same holds for the policy of sched(7)
//! and the nice value that the thread has asked the runtime for ([`scheduling`]).
//!
//! To the kernel a child's parent, and its tracer if the child asks for that, is the kernel thread that made it
//! (PR_SET_PDEATHSIG, PTRACE_TRACEME): that one activation must not end. Up to the call the thread may migrate with every
//! signal. So fork is made with all signals blocked, and a child that shares the memory itself reports from which
//! activation it comes.

mod entries;
pub mod loads;
pub mod preload;

use core::sync::atomic::Ordering;

use upcall_core::Errno;
use upcall_linux::poller::prepared;
use upcall_linux::{Thread, activations, affinity, base, descriptors, kernel_slices, spawn};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, mode, raw_syscall};
use crate::ground::hooks::hooks;
use crate::ground::state::{self, GUEST, is_lent};
use crate::ground::{caller, kernel_futex, mask};
use crate::rewrite::sud;
use crate::signal::{self, alone, children, dispatch, everywhere, pending, timers};
use crate::thread::lifetime::{self, Request};
use crate::thread::outside::{self, bound};
use crate::thread::{agents, bound, deadlines, lending, listed, scheduling};

const CLONE_VM: u64 = libc::CLONE_VM as u64;
const CLONE_VFORK: u64 = libc::CLONE_VFORK as u64;
/// clone3's flags that clone(2) does not know.
const CLONE3_ONLY: u64 = !0xffff_ffff;

/// Serves a clone, clone3, fork or vfork that asks for a process.
// Beside what else a fork runs (ADR 32).
#[unsafe(link_section = ".text.forks")]
pub fn create(frame: &mut Frame, thread: Option<&'static Thread>) {
    let number = frame.rax as i64;
    let request = Request::of(frame);
    if number == libc::SYS_clone3 && request.is_none() {
        frame.rax = refused(frame);
        return;
    }
    let flags = match (number, &request) {
        (libc::SYS_vfork, _) => CLONE_VM | CLONE_VFORK,
        (_, Some(request)) => request.flags,
        _ => 0,
    };
    let shares = flags & CLONE_VM != 0;
    if shares && flags & CLONE_VFORK == 0 {
        // From now on another kernel thread runs the same code.
        (hooks().make_ready)();
    }
    refresh();
    match request {
        Some(request) if shares && request.stack != 0 => {
            children::begins(thread);
            share(frame, &request);
            children::made(thread, frame.rax as i64);
        }
        Some(request) if request.stack != 0 && has_site(frame) => {
            children::begins(thread);
            frame.mode = mode::AT_SITE;
        }
        _ if shares && has_site(frame) => {
            children::begins(thread);
            lend(thread, true);
            frame.mode = mode::AT_SITE;
        }
        request => fork_here(frame, request, thread),
    }
}

/// As [`create`], for an outside kernel thread. It has nobody to lend its memory for, so in place of vfork it gets fork.
pub fn create_outside(frame: &mut Frame) {
    match Request::of(frame) {
        Some(request) if request.is_thread() => lifetime::create_helper(frame, &request),
        Some(request) if request.flags & CLONE_VM != 0 && request.stack != 0 => {
            share(frame, &request);
        }
        Some(request) if request.stack != 0 && has_site(frame) => frame.mode = mode::AT_SITE,
        None if frame.rax as i64 == libc::SYS_clone3 => frame.rax = refused(frame),
        request => fork_here(frame, request, None),
    }
}

/// Returns the kernel's answer to a clone3(2) whose arguments cannot be read: it makes no process.
fn refused(frame: &Frame) -> u64 {
    // SAFETY: the program's own call, which the kernel refuses.
    unsafe { frame.raw() as u64 }
}

/// Returns the processors that the program may use, for a thread that is about to pass them on.
fn refresh() {
    if let Some(runtime) = GUEST.runtime().filter(|_| !caller::is_outside()) {
        let inside = runtime.enter();
        affinity::refresh(&inside);
        kernel_slices::pass_none_on();
        inside.leave();
    }
}

/// Gives the calling kernel thread, if it is bound, the mask that it would have without the runtime.
fn release() {
    if bound().is_some_and(affinity::is_ours) {
        affinity::release(caller::current_thread().map(|thread| &thread.kernel.asked));
    }
}

/// Returns true if the call can be made at a site of the program's: the site is not one of code that was made at run
/// time, and its stub is not one whose call would be dispatched.
fn has_site(frame: &Frame) -> bool {
    let at_site = frame.at_site as usize;
    at_site != 0 && (!dispatch::is_on() || sud::range().contains(&at_site))
}

/// fork. The child returns through a copy of all frames. A vfork is made so too where no site can make it: its child would
/// return through its parent's frames.
// Beside what else a fork runs (ADR 32).
#[unsafe(link_section = ".text.forks")]
fn fork_here(frame: &mut Frame, request: Option<Request>, thread: Option<&'static Thread>) {
    let shares = |request: &Request| request.flags & CLONE_VM != 0;
    let may_clear = frame.rax as i64 == libc::SYS_clone3;
    match request {
        Some(request)
            if request.stack != 0 || shares(&request) && frame.rax as i64 == libc::SYS_clone3 =>
        {
            // Nobody who makes system calls by hand is known to ask for this.
            frame.rax = -i64::from(libc::ENOSYS) as u64;
            return;
        }
        Some(request) if shares(&request) => frame.rdi &= !(CLONE_VM | CLONE_VFORK),
        Some(_) => {}
        None => frame.rax = libc::SYS_fork as u64,
    }
    let runtime = GUEST.runtime().filter(|_| thread.is_some());
    if let Some(runtime) = runtime {
        runtime.resume_blocking();
    }
    let before = runtime.map(|_| {
        // From here on the thread stays on its activation.
        let before = mask::kernel_mask();
        mask::set_kernel_mask(mask::ALL);
        before
    });
    if let Some(activation) = bound() {
        activation.stay();
    }
    entries::before_fork();
    children::begins(thread);
    // SAFETY: the program's own call; the child has a copy of this stack.
    frame.rax = unsafe { frame.raw() } as u64;
    children::made(thread, frame.rax as i64);
    if frame.rax == 0 {
        forked(thread, may_clear);
    } else if let (Some(runtime), Some(before)) = (runtime, before) {
        mask::set_kernel_mask(before);
        runtime.interrupt_blocking();
    }
}

fn lend(thread: Option<&'static Thread>, lent: bool) {
    match thread {
        Some(thread) => thread.guest().lent.store(lent, Ordering::SeqCst),
        None => state::set_lent(lent),
    }
}

/// Makes a child that shares the memory, on a stack of its own.
fn share(frame: &mut Frame, request: &Request) {
    if request.flags & CLONE3_ONLY != 0 {
        // What only clone3 can do does not go with a shared memory in libc.
        frame.rax = -i64::from(libc::ENOSYS) as u64;
        return;
    }
    let signal = if frame.rax as i64 == libc::SYS_clone3 {
        crate::ground::access::load_u64(frame.rdi as usize + 32).unwrap_or(0)
    } else {
        0
    };
    // The child may wake threads of this process.
    if request.flags & CLONE_VFORK == 0
        && let Err(Errno(number)) = agents::expect_outsider()
    {
        frame.rax = -i64::from(number) as u64;
        return;
    }
    let result = outside::start(frame, request, request.flags | signal);
    if request.flags & CLONE_VFORK != 0 {
        preload::reclaim(result);
    }
    frame.rax = result as u64;
}

/// Called after a call at its site, in the parent and in the child. The pseudo-register is as it was at the call.
///
/// # Safety
///
/// Called by the entry.
pub unsafe extern "C" fn after(frame: &mut Frame) {
    let thread = if base::is_set() {
        // SAFETY: the pseudo-register is set: an activation, or the mark of an outsider.
        unsafe { base::current_thread() }
    } else {
        None
    };
    let lent = thread.map_or(is_lent(), |thread| {
        thread.guest().lent.load(Ordering::SeqCst)
    });
    // One that is lent runs in the child until its parent goes on.
    if frame.rax != 0 || !lent {
        children::made(thread, frame.rax as i64);
    }
    match (frame.rax != 0, lent) {
        (true, true) => {
            preload::reclaim(frame.rax as i64);
            lend(thread, false);
        }
        (true, false) => {}
        (false, true) => {
            if let Some(parent) = bound() {
                parent.stay();
            }
            if let Some(thread) = thread {
                scheduling::pass_on(thread);
            }
        }
        (false, false) => forked(thread, true),
    }
    if let Some(thread) = thread {
        caller::give_back(thread);
    }
}

/// Called in the child of fork, which has one kernel thread and a copy of everything. `may_clear`: the call may have been
/// one that takes all handlers away.
// Beside what else a fork runs (ADR 32).
#[unsafe(link_section = ".text.forks")]
fn forked(thread: Option<&'static Thread>, may_clear: bool) {
    let mut returns = false;
    let is_cleared = may_clear && signal::are_cleared();
    if let Some(runtime) = GUEST.runtime() {
        returns = thread.is_some_and(signal::is_called_back);
        if returns {
            runtime.leave_behind();
            state::set_forked_in_handler(true);
        }
        let mask = thread.map(|thread| thread.kernel.mask.load(Ordering::Relaxed));
        if let Some(thread) = thread {
            signal::altstack::give_back(thread);
            scheduling::pass_on(thread);
        }
        release();
        // A thread in a handler that returns into the runtime needs what that handler finds there.
        if !returns {
            caller::give_up(thread);
            activations::forget();
        }
        GUEST.forget_runtime();
        if is_cleared {
            signal::clear_actions();
        } else {
            signal::forget_own();
        }
        // SAFETY: the only thread of the process; the holders of the locks stayed in the parent.
        unsafe {
            spawn::STARTS.unlock();
            everywhere::forget();
            pending::forget(runtime);
            bound::forget_all(runtime);
            lending::forget();
            deadlines::forget_all();
        }
        timers::forget();
        kernel_futex::forget();
        descriptors::close_all();
        if let Some(mask) = mask {
            alone::set_mask(mask);
        }
    } else if is_cleared {
        signal::clear_actions();
    }
    entries::forget();
    listed::forget();
    prepared::forget();
    // A child of one that shared the memory has its own.
    if !returns {
        caller::give_up(None);
    }
    alone::forget();
    dispatch::again();
    // SAFETY: asks only.
    let pid = unsafe { raw_syscall(libc::SYS_getpid, [0; 6]) } as u32;
    GUEST.pid.store(pid, Ordering::Relaxed);
}

/// execve(2), execveat(2). Returns only if the call fails.
pub fn exec(frame: &Frame) -> i64 {
    let runtime = GUEST.runtime().filter(|_| !caller::is_outside());
    if let Some(runtime) = runtime {
        // The new program inherits what is pending, but not our memory.
        let inside = runtime.enter();
        pending::return_kept(&inside);
        inside.leave();
    }
    refresh();
    release();
    // The new program inherits the mask: that of the thread, which its activation has but in part.
    let before = mask::kernel_mask();
    let hidden = match caller::own_thread() {
        Some(thread) => signal::hidden(thread),
        None => alone::hidden(),
    };
    if hidden != 0 {
        mask::set_kernel_mask(before | hidden);
    }
    let answer = scheduling::executing(caller::own_thread(), frame, || preload::execute(frame));
    if hidden != 0 {
        mask::set_kernel_mask(before);
    }
    if let Some(runtime) = runtime {
        let inside = runtime.enter();
        runtime.kernel().bind_again(&inside);
        inside.leave();
    }
    answer
}
