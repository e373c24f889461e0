//! Processes: fork, vfork, posix_spawn, exec, and what belongs to a process and not to a thread.
//!
//! | call | what happens |
//! |---|---|
//! | fork | in the handler; the child has one thread and leaves the runtime behind |
//! | vfork | at libc's own site; until the child is gone the thread is *lent*: calls pass through |
//! | clone with CLONE_VM (posix_spawn) | the child is a kernel thread of its own, marked as no activation |
//! | exec | by the kernel; without this library where the new program could not load it ([`preload`]) |
//! | set*id by libc | on every activation: a kernel thread that kept the old identity would be a hole |
//!
//! Children and executed programs have the affinity that the thread has asked for, or the program
//! was given, not the virtual processor's; where the runtime has bound nothing it changes nothing. The same holds for the
//! policy and the nice value that the thread has asked the runtime for ([`scheduling`]).
//!
//! To the kernel a child's parent, and its tracer if it asks for that, is the kernel thread that has
//! made it (PR_SET_PDEATHSIG, PTRACE_TRACEME): that activation must not end, and no other. Up to the
//! call the thread may migrate with every signal. So fork is made with all signals blocked, and a
//! child that shares the memory says itself from which activation it comes.

pub mod dispatch;
pub mod loads;
pub mod preload;

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};

use upcall_core::{Kernel, SpinLock};
use upcall_linux::poller::prepared;
use upcall_linux::{
    Activation, Runtime, Thread, activations, affinity, base, descriptors, preempt, spawn,
};

use crate::call::{credentials, futex};
use crate::ground::entry::{Frame, mode, pass_through, raw_syscall};
use crate::ground::state::GUEST;
use crate::ground::{caller, entry};
use crate::rewrite::sud;
use crate::signal;
use crate::signal::{alone, pending, timers};
use crate::thread::lifetime::Request;
use crate::thread::{agents, bound, lifetime, scheduling};

const CLONE_VM: u64 = libc::CLONE_VM as u64;
const CLONE_VFORK: u64 = libc::CLONE_VFORK as u64;
/// clone3's flags that clone(2) does not know.
const CLONE3_ONLY: u64 = !0xffff_ffff;

/// Set while a child of vfork runs on the memory of a process without a runtime.
static LENT: AtomicI32 = AtomicI32::new(0);

/// Whether the calling kernel thread is a child of vfork on borrowed memory.
pub fn is_lent() -> bool {
    LENT.load(Ordering::Relaxed) != 0
}

/// clone, clone3, fork or vfork that asks for a process.
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
    refresh();
    match request {
        Some(request) if shares && request.stack != 0 => share(frame, &request),
        Some(request) if request.stack != 0 && has_site(frame) => frame.mode = mode::AT_SITE,
        _ if shares && has_site(frame) => {
            lend(thread, true);
            frame.mode = mode::AT_SITE;
        }
        request => fork_here(frame, request, thread),
    }
}

/// The same for a kernel thread that is no activation: it has nobody to lend its memory for, so
/// where it asks for vfork it gets fork.
pub fn create_outside(frame: &mut Frame) {
    match Request::of(frame) {
        Some(request) if request.is_thread() => lifetime::create_helper(frame, &request),
        Some(request) if request.flags & CLONE_VM != 0 && request.stack != 0 => {
            share(frame, &request);
        }
        None if frame.rax as i64 == libc::SYS_clone3 => frame.rax = refused(frame),
        request => fork_here(frame, request, None),
    }
}

/// The kernel's answer to a clone3(2) whose arguments cannot be read: it makes no process.
fn refused(frame: &Frame) -> u64 {
    // SAFETY: the program's own call, which the kernel refuses.
    unsafe { frame.raw() as u64 }
}

/// The activation on whose kernel thread, or the copy of one in a child, the call is made: it is
/// bound to the processor of its virtual processor. None where there is no runtime, nor for kernel
/// threads of libc's own.
fn bound() -> Option<&'static Activation> {
    // SAFETY: the pseudo-register is set.
    let activation = base::is_set().then(|| unsafe { base::current() })?;
    (!caller::is_mark(activation)).then_some(activation)
}

/// What the program may use, for a thread that is about to pass it on.
fn refresh() {
    if let Some(runtime) = GUEST.runtime().filter(|_| !caller::is_outside()) {
        let activation = runtime.enter();
        affinity::refresh(runtime, activation);
        runtime.leave(activation);
    }
}

/// Gives the calling kernel thread, if it is bound, the mask that it would have without the runtime.
fn release() {
    if bound().is_some_and(affinity::is_ours) {
        affinity::release(caller::current_thread().map(|thread| &thread.kernel.asked));
    }
}

/// Whether the call can be made at a site of the program's: the site is not one of code that was
/// made at run time, and its stub is not one whose call would be dispatched.
fn has_site(frame: &Frame) -> bool {
    let at_site = frame.at_site as usize;
    at_site != 0 && (!dispatch::is_on() || sud::range().contains(&at_site))
}

/// fork: the child returns through a copy of all frames. So does one of vfork where there is no site
/// to make it at: it would return through its parent's.
fn fork_here(frame: &mut Frame, request: Option<Request>, thread: Option<&'static Thread>) {
    let shares = |request: &Request| request.flags & CLONE_VM != 0;
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
        let before = signal::kernel_mask();
        signal::set_kernel_mask(signal::ALL);
        before
    });
    if let Some(activation) = bound() {
        activation.stay();
    }
    // SAFETY: the program's own call; the child has a copy of this stack.
    frame.rax = unsafe { frame.raw() } as u64;
    if frame.rax == 0 {
        forked(thread);
    } else if let (Some(runtime), Some(before)) = (runtime, before) {
        signal::set_kernel_mask(before);
        runtime.interrupt_blocking();
    }
}

fn lend(thread: Option<&'static Thread>, lent: bool) {
    match thread {
        Some(thread) => thread.kernel.lent.store(lent, Ordering::SeqCst),
        None => LENT.store(i32::from(lent), Ordering::SeqCst),
    }
}

/// A child that shares the memory, on a stack of its own.
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
    let result = foreign(frame, request, request.flags | signal);
    if request.flags & CLONE_VFORK != 0 {
        preload::reclaim(result);
    }
    frame.rax = result as u64;
}

/// What is put on the stack of a child that shares the memory.
#[repr(C)]
struct Start {
    frame: Frame,
    /// Whether its creator is bound to a processor, and its thread, which knows what it has asked for.
    bound: bool,
    thread: Option<&'static Thread>,
}

/// Starts a kernel thread or process that shares the memory but is no activation: it continues
/// at the site like the child of the real call, marked for [`caller::is_outside`].
pub fn foreign(frame: &Frame, request: &Request, flags: u64) -> i64 {
    let place = (request.stack - size_of::<Start>()) & !63;
    let bound = bound().is_some();
    let mut frame = frame.clone();
    frame.rax = 0;
    frame.rsp = request.stack as u64;
    frame.mode = mode::RELOAD;
    frame.wide = core::ptr::null_mut();
    // SAFETY: the program gives the stack to the child, which has nothing there before it runs.
    unsafe {
        (place as *mut Start).write(Start {
            frame,
            bound,
            thread: if bound {
                caller::current_thread()
            } else {
                None
            },
        });
        spawn::clone_raw(
            flags as usize,
            place,
            request.parent_tid,
            request.child_tid,
            request.tls,
            if request.is_thread() {
                begin_helper
            } else {
                begin_foreign
            },
            place,
        ) as i64
    }
}

extern "C" fn begin_helper(start: usize) -> ! {
    caller::mark_outside(true);
    signal::set_kernel_mask(dispatch::blockable(signal::kernel_mask()));
    dispatch::begin();
    // SAFETY: `foreign` put it there.
    unsafe { begin(start) }
}

extern "C" fn begin_foreign(start: usize) -> ! {
    if let Some(parent) = bound() {
        parent.stay();
    }
    caller::mark_outside(false);
    // SAFETY: `foreign` put it there.
    unsafe { begin(start) }
}

/// # Safety
///
/// `start` is a [`Start`] for the calling kernel thread.
unsafe fn begin(start: usize) -> ! {
    let start = start as *const Start;
    // SAFETY: the caller's promise.
    unsafe {
        if (*start).bound {
            affinity::release((*start).thread.map(|thread| &thread.kernel.asked));
        }
        if let Some(thread) = (*start).thread {
            scheduling::pass_on(thread);
        }
        entry::resume(&raw const (*start).frame)
    }
}

/// After a call at its site, in the parent and in the child. The pseudo-register is as it was at the call.
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
        thread.kernel.lent.load(Ordering::SeqCst)
    });
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
        (false, false) => forked(thread),
    }
    if let Some(thread) = thread {
        caller::give_back(thread);
    }
}

/// The process is the child of a fork in a handler that returned, or will, into the runtime, and has no runtime of
/// its own.
static IN_HANDLER: AtomicBool = AtomicBool::new(false);

/// Whether the process was forked in a handler and has no runtime: there is a pseudo-register all the same.
pub fn was_forked_in_handler() -> bool {
    IN_HANDLER.load(Ordering::Relaxed)
}

/// The process has a runtime.
pub fn has_runtime() {
    IN_HANDLER.store(false, Ordering::Relaxed);
}

/// The child of fork: one kernel thread, with a copy of everything.
fn forked(thread: Option<&'static Thread>) {
    let mut returns = false;
    if let Some(runtime) = GUEST.runtime() {
        returns = thread.is_some_and(signal::is_called_back);
        if returns {
            runtime.leave_behind();
            IN_HANDLER.store(true, Ordering::Relaxed);
        }
        let mask = thread.map(|thread| thread.kernel.mask.load(Ordering::Relaxed));
        if let Some(thread) = thread {
            signal::altstack::give_back(thread);
            scheduling::pass_on(thread);
        }
        release();
        // Who is in a handler that returns into the runtime needs what that finds there.
        if !returns {
            caller::give_up(thread);
            activations::forget();
        }
        GUEST.forget_runtime();
        signal::forget_own();
        // SAFETY: the only thread of the process; whoever held them stayed in the parent.
        unsafe {
            spawn::STARTS.unlock();
            ONE_AT_A_TIME.unlock();
            pending::forget(runtime);
            bound::forget_all(runtime);
        }
        timers::forget();
        futex::forget();
        credentials::forget();
        descriptors::close_all();
        if let Some(mask) = mask {
            alone::set_mask(mask);
        }
    }
    prepared::forget();
    // A child of one that shared the memory has its own.
    if !returns {
        caller::give_up(None);
    }
    alone::forget();
    dispatch::forked();
    // SAFETY: asks only.
    let pid = unsafe { raw_syscall(libc::SYS_getpid, [0; 6]) } as u32;
    GUEST.pid.store(pid, Ordering::Relaxed);
}

/// execve(2), execveat(2): returns only if it fails.
pub fn exec(frame: &Frame) -> i64 {
    let runtime = GUEST.runtime().filter(|_| !caller::is_outside());
    if let Some(runtime) = runtime {
        // The new program inherits what is pending, but not our memory.
        let activation = runtime.enter();
        pending::return_kept(runtime, activation);
        runtime.leave(activation);
    }
    refresh();
    release();
    // The new program inherits the mask: that of the thread, which its activation has but in part.
    let before = signal::kernel_mask();
    let hidden = match caller::own_thread() {
        Some(thread) => thread.kernel.mask.load(Ordering::Relaxed) & preempt::OWN,
        None => alone::hidden(),
    };
    if hidden != 0 {
        signal::set_kernel_mask(before | hidden);
    }
    let answer = scheduling::executing(caller::own_thread(), frame, || preload::execute(frame));
    if hidden != 0 {
        signal::set_kernel_mask(before);
    }
    if let Some(runtime) = runtime {
        let activation = runtime.enter();
        runtime.kernel().bind_again(activation);
        runtime.leave(activation);
    }
    answer
}

/// wait4(2) or waitid(2) for one child that it names, of the calling thread alone (`__WNOTHREAD`): the call without that, since
/// to the kernel the child is that of the activation which has made it. `None`: another call.
pub fn wait_for_one(frame: &Frame) -> Option<[u64; 7]> {
    let mut words = frame.words();
    let (names_one, options) = match frame.rax as i64 {
        libc::SYS_wait4 => (frame.rdi as i32 > 0, 3),
        _ => (matches!(frame.rdi as u32, libc::P_PID | libc::P_PIDFD), 4),
    };
    let of_one = libc::__WNOTHREAD as u32 as u64;
    let is_meant = names_one && words[options] & of_one != 0;
    words[options] &= !of_one;
    is_meant.then_some(words)
}

/// A call that every kernel thread of the process must make.
struct Everywhere {
    number: AtomicI64,
    words: [AtomicU64; 6],
    /// What the first one was answered.
    expected: AtomicI64,
    /// What another one was answered instead.
    answer: AtomicI64,
}

static EVERYWHERE: Everywhere = Everywhere {
    number: AtomicI64::new(0),
    words: [const { AtomicU64::new(0) }; 6],
    expected: AtomicI64::new(0),
    answer: AtomicI64::new(0),
};

static ONE_AT_A_TIME: SpinLock<()> = SpinLock::new(());

/// Makes a call that changes the calling kernel thread on every activation: its identity, as
/// setuid(2) requires of a process, or whether calls are dispatched. `call`: its number and words. In
/// program context.
pub fn everywhere(runtime: &'static Runtime, call: [u64; 7]) -> i64 {
    one_at_a_time(runtime, |activation| make(runtime, activation, call))
}

/// As [`everywhere`], if `decide`, which returns the answer, asks for it by what it is given; nobody else decides
/// meanwhile.
pub fn change(
    runtime: &'static Runtime,
    call: [u64; 7],
    decide: impl FnOnce(&dyn Fn() -> i64) -> i64,
) -> i64 {
    one_at_a_time(runtime, |activation| {
        decide(&|| make(runtime, activation, call))
    })
}

/// Makes the call on every activation, in [`one_at_a_time`].
fn make(runtime: &'static Runtime, activation: Option<&'static Activation>, call: [u64; 7]) -> i64 {
    // First here: if it is not allowed, nobody does it.
    let (first, other) = ask_all(runtime, activation, call, 0);
    if first == 0 && other != 0 {
        // As glibc: a process with two identities must not go on.
        runtime
            .kernel()
            .broken("a kernel thread could not make a call that the others have made");
    }
    first
}

/// ptrace(2). The kernel takes requests from the kernel thread that is the tracer, and the thread may
/// have become one on another activation: no two trace the same one.
pub fn trace(runtime: &'static Runtime, frame: &Frame) -> i64 {
    const NOT_THE_TRACER: i64 = -(libc::ESRCH as i64);
    let (first, other) = ask(runtime, frame.words(), NOT_THE_TRACER);
    if first == NOT_THE_TRACER {
        other
    } else {
        first
    }
}

/// Makes a call here, and if it is answered so, on every other activation. Returns the answer here
/// and the one elsewhere that differs, if there is one.
fn ask(runtime: &'static Runtime, call: [u64; 7], expected: i64) -> (i64, i64) {
    one_at_a_time(runtime, |activation| {
        ask_all(runtime, activation, call, expected)
    })
}

/// Calls `act`, nobody else being there; with the calling activation, if it is one.
fn one_at_a_time<R>(
    runtime: &'static Runtime,
    act: impl FnOnce(Option<&'static Activation>) -> R,
) -> R {
    // A kernel thread of libc's own is not inside and need not leave.
    let activation = (!caller::is_outside()).then(|| runtime.enter());
    let guard = ONE_AT_A_TIME.lock(runtime.kernel());
    let result = act(activation);
    drop(guard);
    if let Some(activation) = activation {
        runtime.leave(activation);
    }
    result
}

/// As [`ask`], in [`one_at_a_time`].
fn ask_all(
    runtime: &'static Runtime,
    activation: Option<&'static Activation>,
    call: [u64; 7],
    expected: i64,
) -> (i64, i64) {
    let [number, words @ ..] = call;
    let number = number as i64;
    // SAFETY: the program's own arguments, or those of `sud::request`.
    let first = unsafe { raw_syscall(number, words) } as i64;
    let mut other = expected;
    if first == expected {
        EVERYWHERE.number.store(number, Ordering::Relaxed);
        for (own, word) in EVERYWHERE.words.iter().zip(words) {
            own.store(word, Ordering::Relaxed);
        }
        EVERYWHERE.expected.store(expected, Ordering::Relaxed);
        EVERYWHERE.answer.store(expected, Ordering::Relaxed);
        // No kernel thread may be started meanwhile by somebody who has not changed yet.
        let starts = spawn::STARTS.lock(runtime.kernel());
        preempt::new_call(activation);
        runtime.each_activation(|other| {
            if preempt::owes_call(other) {
                preempt::request_call(runtime.kernel().pid(), other);
            }
        });
        runtime.each_activation(|other| {
            while preempt::owes_call(other) {
                runtime.kernel().yield_processor();
            }
        });
        if number != libc::SYS_ptrace {
            agents::change(runtime);
        }
        drop(starts);
        other = EVERYWHERE.answer.load(Ordering::Relaxed);
    } else if number == libc::SYS_ptrace
        && let Some(activation) = activation
    {
        // Perhaps a tracer now, as long as it lives.
        activation.stay();
    }
    (first, other)
}

/// In the handler, on each of the other activations, wherever it is.
pub fn make_requested_call(activation: &'static Activation) {
    if !preempt::owes_call(activation) {
        return;
    }
    make_call_of_all();
    preempt::note_call(activation);
}

/// Makes the call that every kernel thread of the process must make.
pub fn make_call_of_all() {
    let words = core::array::from_fn(|index| EVERYWHERE.words[index].load(Ordering::Relaxed));
    // SAFETY: the program's own call with its own arguments.
    let answer = unsafe { pass_through(EVERYWHERE.number.load(Ordering::Relaxed), words) } as i64;
    if answer != EVERYWHERE.expected.load(Ordering::Relaxed) {
        EVERYWHERE.answer.store(answer, Ordering::Relaxed);
    }
}
