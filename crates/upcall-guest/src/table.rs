//! The system-call table: what becomes of each call that a rewritten site makes.
//!
//! | class | calls | what happens |
//! |---|---|---|
//! | thread | clone, exit, futex, sleep, yield, signals, names, … | served for the user-level thread |
//! | pollable | read, write, recv…, send…, accept, poll, select, epoll_wait | tried without waiting; the thread parks on the poller |
//! | plain | getpid, mmap, … | passed on: they do not wait for anything |
//! | any other | open, fsync, wait4, … | passed on; if it blocks, the activation is replaced |
//!
//! A call that ended in EINTR although no handler of the program ran was interrupted by the
//! runtime: it is made again. If handlers with SA_RESTART ran, it is made again where the kernel
//! would have done so (signal(7)).

use core::sync::atomic::{AtomicUsize, Ordering};

use upcall_linux::{Activation, Runtime, Thread, base, descriptors};

use crate::entry::{self, Frame};
use crate::guest::GUEST;
use crate::threads::Request;
use crate::{
    alone, attributes, dispatch, futex, io, loads, names, pending, poll, process, signal, threads,
    time, timers,
};

/// No handler of the program ran during the call.
const UNSEEN: u32 = 0;
/// Handlers ran, all with SA_RESTART.
pub const SEEN_RESTART: u32 = 1;
/// A handler ran that interrupts calls.
pub const SEEN: u32 = 2;

const EINTR: i64 = -(libc::EINTR as i64);
/// The ioctl that sets or clears O_NONBLOCK.
const FIONBIO: u64 = 0x5421;

const ENOSYS: i64 = -(libc::ENOSYS as i64);
const EBADF: i64 = -(libc::EBADF as i64);

/// What marks kernel threads that are no activations: memory that looks like an activation inside
/// the runtime, without a thread. One mark for processes that share the memory, one for threads.
static OUTSIDE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Maps the marks. At start, while there is one kernel thread.
pub fn prepare() {
    for own in &OUTSIDE {
        let size = size_of::<Activation>();
        let mark = Box::leak(vec![0u64; size.div_ceil(8) + 8].into_boxed_slice());
        let address = (mark.as_mut_ptr() as usize).next_multiple_of(align_of::<Activation>());
        // SAFETY: inside the allocation; the words that are read through the pseudo-register.
        unsafe {
            ((address + Activation::OFFSET_THIS) as *mut usize).write(address);
            ((address + Activation::OFFSET_INSIDE) as *mut u32).write(1);
        }
        own.store(address, Ordering::Relaxed);
    }
}

/// Marks the calling kernel thread; `helper`: it is a thread of this process.
pub fn mark_outside(helper: bool) {
    let mark = OUTSIDE[usize::from(helper)].load(Ordering::Relaxed) as *const Activation;
    // SAFETY: leaked, and as large as an activation.
    base::set(unsafe { mark.as_ref() });
}

/// Whether the calling kernel thread is one that libc has started for itself.
fn is_helper() -> bool {
    // SAFETY: the pseudo-register is set.
    base::is_set()
        && core::ptr::from_ref(unsafe { base::current() }) as usize
            == OUTSIDE[1].load(Ordering::Relaxed)
}

/// Whether the calling kernel thread is no activation, or runs on borrowed memory.
pub fn is_outside() -> bool {
    if !base::is_set() {
        return true;
    }
    // SAFETY: the pseudo-register is set.
    let (activation, thread) = unsafe { (base::current(), base::current_thread()) };
    let address = core::ptr::from_ref(activation) as usize;
    OUTSIDE
        .iter()
        .any(|mark| mark.load(Ordering::Relaxed) == address)
        || thread.is_some_and(|thread| thread.kernel.lent.load(Ordering::Relaxed))
}

/// The thread that makes the call.
pub fn current_thread() -> Option<&'static Thread> {
    // SAFETY: called for threads only.
    unsafe { base::current_thread() }
}

/// The calling thread, if it runs on an activation and its memory is not lent.
pub fn own_thread() -> Option<&'static Thread> {
    if is_outside() { None } else { current_thread() }
}

/// What every rewritten site calls.
///
/// # Safety
///
/// Called by the entry, on the program's stack.
pub unsafe extern "C" fn handler(frame: &mut Frame) {
    match GUEST.runtime() {
        None => alone(frame),
        Some(runtime) => dispatch(runtime, frame),
    }
}

/// A process without a runtime: one thread.
fn alone(frame: &mut Frame) {
    if process::is_lent() {
        outside(frame);
        return;
    }
    match frame.rax as i64 {
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            match Request::of(frame) {
                Some(request) if request.is_thread() => threads::create(frame, &request),
                _ => process::create(frame, None),
            }
        }
        libc::SYS_rt_sigaction => frame.rax = signal::sigaction(frame) as u64,
        libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_shmat
            if loads::is_executable(frame) =>
        {
            frame.rax = loads::map(frame) as u64;
        }
        libc::SYS_munmap => frame.rax = loads::unmap(frame) as u64,
        number if dispatch::is_on() => {
            let served = match number {
                libc::SYS_rt_sigprocmask => Some(alone::sigprocmask(frame)),
                libc::SYS_rt_sigpending => Some(alone::sigpending(frame)),
                libc::SYS_rt_sigtimedwait => alone::sigtimedwait(frame),
                libc::SYS_execve | libc::SYS_execveat => Some(process::exec(frame)),
                _ => None,
            };
            match served {
                Some(answer) => frame.rax = answer as u64,
                // SAFETY: the entry's own frame.
                None => unsafe { entry::native(frame) },
            }
        }
        // SAFETY: the entry's own frame.
        _ => unsafe { entry::native(frame) },
    }
}

/// A kernel thread that is no activation, or a child of vfork.
fn outside(frame: &mut Frame) {
    let number = frame.rax as i64;
    match number {
        libc::SYS_execve | libc::SYS_execveat => frame.rax = process::exec(frame) as u64,
        libc::SYS_exit => threads::exit_foreign(frame),
        libc::SYS_rt_sigaction => {
            // SAFETY: the program's own call.
            frame.rax = unsafe { frame.raw() } as u64;
        }
        libc::SYS_rt_sigprocmask => {
            // SAFETY: the program's own call.
            frame.rax = unsafe { frame.raw() } as u64;
            if is_helper() {
                // Unblocked again, without a moment for a dispatched call in between.
                signal::set_kernel_mask(dispatch::blockable(signal::kernel_mask()));
            }
        }
        _ => {
            let request = frame.clone();
            // SAFETY: the entry's own frame.
            unsafe { entry::native(frame) };
            if number == libc::SYS_futex {
                frame.rax = futex::serve_foreign(&request, frame.rax as i64) as u64;
            }
        }
    }
}

fn dispatch(runtime: &'static Runtime, frame: &mut Frame) {
    // Each question is one instruction on the pseudo-register: between two of them the thread may
    // migrate.
    // SAFETY: the pseudo-register is set where it is read.
    let (thread, inside) = unsafe {
        match base::is_set() {
            true => (base::current_thread(), base::is_inside()),
            false => (None, false),
        }
    };
    let thread = match thread {
        Some(thread) if !thread.kernel.lent.load(Ordering::Relaxed) => thread,
        _ if is_outside() => {
            outside(frame);
            return;
        }
        _ => {
            // libc called by the runtime itself, on an activation's own stack.
            // SAFETY: the entry's own frame.
            unsafe { entry::native(frame) };
            return;
        }
    };
    if inside {
        // libc called by the runtime itself.
        // SAFETY: the entry's own frame.
        unsafe { entry::native(frame) };
        return;
    }
    match frame.rax as i64 {
        libc::SYS_sched_yield => {
            runtime.yield_now();
            frame.rax = 0;
        }
        libc::SYS_futex if futex::is_wake(frame) => {
            frame.rax = futex::serve(runtime, frame).unwrap_or(0) as u64;
        }
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            match Request::of(frame) {
                Some(request) if request.is_thread() => {
                    let place = core::ptr::from_ref(frame) as usize;
                    thread.kernel.frame.store(place, Ordering::Relaxed);
                    threads::create(frame, &request);
                    thread.kernel.frame.store(0, Ordering::Relaxed);
                }
                _ => process::create(frame, Some(thread)),
            }
        }
        libc::SYS_rt_sigreturn => frame.mode = entry::mode::AT_SITE,
        _ => frame.rax = call(runtime, thread, frame) as u64,
    }
}

/// Makes one call, again as often as signal(7) demands.
fn call(runtime: &'static Runtime, thread: &'static Thread, frame: &mut Frame) -> i64 {
    let state = &thread.kernel;
    // Only the thread itself and its own handlers write these: no locked instruction is needed.
    state
        .frame
        .store(core::ptr::from_ref(frame) as usize, Ordering::Relaxed);
    let before = state.seen.load(Ordering::Relaxed);
    state.seen.store(UNSEEN, Ordering::Relaxed);
    let registers = [frame.rdx, frame.r10, frame.r8];
    let mut timeout = Timeout::of(frame);
    let answer = loop {
        let answer = once(runtime, thread, frame);
        if answer != EINTR {
            break answer;
        }
        match state.seen.swap(UNSEEN, Ordering::Relaxed) {
            UNSEEN => {}
            SEEN_RESTART if restarts(frame.rax as i64) => {}
            _ => break answer,
        }
        timeout.adjust(frame);
    };
    state.frame.store(0, Ordering::Relaxed);
    [frame.rdx, frame.r10, frame.r8] = registers;
    if before != UNSEEN {
        state.seen.fetch_max(before, Ordering::Relaxed);
    }
    answer
}

/// Whether the kernel restarts the call after a handler with SA_RESTART.
fn restarts(number: i64) -> bool {
    !matches!(
        number,
        libc::SYS_poll
            | libc::SYS_ppoll
            | libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | libc::SYS_rt_sigtimedwait
            | libc::SYS_rt_sigsuspend
            | libc::SYS_pause
            | libc::SYS_semop
            | libc::SYS_semtimedop
            | libc::SYS_msgrcv
            | libc::SYS_msgsnd
            | libc::SYS_io_getevents
    )
}

/// A relative timeout, which must shrink when a call is made again. Those of select(2), pselect(2)
/// and ppoll(2) are kept up to date by the kernel.
enum Timeout {
    None,
    /// In a register.
    Milliseconds {
        left: u64,
        began: u64,
    },
    /// Behind a register.
    Timespec {
        rest: [u64; 2],
        left: u64,
        began: u64,
    },
}

impl Timeout {
    fn register(frame: &mut Frame) -> Option<&mut u64> {
        match frame.rax as i64 {
            libc::SYS_poll | libc::SYS_rt_sigtimedwait => Some(&mut frame.rdx),
            libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
            | libc::SYS_semtimedop => Some(&mut frame.r10),
            libc::SYS_io_getevents => Some(&mut frame.r8),
            _ => None,
        }
    }

    #[inline]
    fn of(frame: &mut Frame) -> Self {
        let behind = !matches!(
            frame.rax as i64,
            libc::SYS_poll | libc::SYS_epoll_wait | libc::SYS_epoll_pwait
        );
        let Some(word) = Self::register(frame).map(|register| *register) else {
            return Timeout::None;
        };
        let now = || upcall_linux::clock(libc::CLOCK_MONOTONIC);
        if behind {
            match time::nanoseconds(word as usize) {
                Ok(left) if word != 0 && left != 0 => Timeout::Timespec {
                    rest: [0; 2],
                    left,
                    began: now(),
                },
                _ => Timeout::None,
            }
        } else {
            match word as i32 {
                ..=0 => Timeout::None,
                left => Timeout::Milliseconds {
                    left: left as u64,
                    began: now(),
                },
            }
        }
    }

    fn adjust(&mut self, frame: &mut Frame) {
        const MILLION: u64 = 1_000_000;
        let now = upcall_linux::clock(libc::CLOCK_MONOTONIC);
        let word = match self {
            Timeout::None => return,
            Timeout::Milliseconds { left, began } => left.saturating_sub((now - *began) / MILLION),
            Timeout::Timespec { rest, left, began } => {
                let left = left.saturating_sub(now - *began);
                *rest = [left / (1000 * MILLION), left % (1000 * MILLION)];
                rest.as_ptr() as u64
            }
        };
        if let Some(register) = Self::register(frame) {
            *register = word;
        }
    }
}

/// Makes the call once.
fn once(runtime: &'static Runtime, thread: &'static Thread, frame: &mut Frame) -> i64 {
    let state = &thread.kernel;
    // SAFETY: the program's own call, as it made it.
    let pass = |frame: &Frame| unsafe { frame.raw() } as i64;
    // SAFETY: as above.
    let blocking = |frame: &Frame| runtime.blocking(|| unsafe { frame.raw() }) as i64;
    match frame.rax as i64 {
        libc::SYS_futex => {
            futex::serve(runtime, frame).unwrap_or_else(|| futex::shared(runtime, frame))
        }
        libc::SYS_nanosleep => time::nanosleep(runtime, frame),
        libc::SYS_clock_nanosleep => {
            time::clock_nanosleep(runtime, frame).unwrap_or_else(|| blocking(frame))
        }
        libc::SYS_exit => threads::exit(runtime, frame.rdi),
        libc::SYS_exit_group => {
            GUEST.report();
            pass(frame)
        }
        libc::SYS_gettid => i64::from(state.tid.load(Ordering::Relaxed)),
        libc::SYS_set_tid_address => {
            state.clear_tid.store(frame.rdi as usize, Ordering::Relaxed);
            i64::from(state.tid.load(Ordering::Relaxed))
        }
        libc::SYS_set_robust_list => {
            state
                .robust_list
                .store(frame.rdi as usize, Ordering::Relaxed);
            0
        }
        libc::SYS_get_robust_list => attributes::get_robust_list(thread, frame),
        libc::SYS_rseq => attributes::rseq(frame),
        // Waits in the kernel would not meet wake-ups at user level.
        libc::SYS_futex_waitv | 454..=456 => ENOSYS,

        libc::SYS_clock_gettime => {
            time::clock_gettime(thread, frame).unwrap_or_else(|| pass(frame))
        }
        libc::SYS_clock_getres => time::clock_getres(thread, frame).unwrap_or_else(|| pass(frame)),
        libc::SYS_getrusage => time::getrusage(thread, frame),
        libc::SYS_timer_create => timers::create(frame).unwrap_or_else(|| pass(frame)),
        libc::SYS_timer_delete => {
            timers::delete(frame);
            pass(frame)
        }

        libc::SYS_rt_sigaction => signal::sigaction(frame),
        libc::SYS_rt_sigprocmask => signal::sigprocmask(runtime, thread, frame),
        libc::SYS_rt_sigsuspend => with_mask(runtime, thread, frame, frame.rdi as usize),
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2 => poll::serve(runtime, thread, frame),
        libc::SYS_epoll_ctl => poll::control(runtime, frame),
        libc::SYS_setsockopt => poll::set_option(runtime, frame),
        libc::SYS_rt_sigtimedwait => sigtimedwait(runtime, thread, frame),
        libc::SYS_rt_sigpending => attributes::sigpending(thread, frame),
        libc::SYS_sigaltstack => signal::sigaltstack(runtime, thread, frame),
        libc::SYS_tgkill => attributes::kill_thread(
            runtime,
            frame,
            frame.rsi as i32,
            frame.rdx as i32,
            Some(frame.rdi as i32),
        ),
        libc::SYS_tkill => {
            attributes::kill_thread(runtime, frame, frame.rdi as i32, frame.rsi as i32, None)
        }
        libc::SYS_rt_tgsigqueueinfo => attributes::queue_signal(runtime, frame),

        libc::SYS_sched_setaffinity
        | libc::SYS_sched_getaffinity
        | libc::SYS_sched_setscheduler
        | libc::SYS_sched_getscheduler
        | libc::SYS_sched_setparam
        | libc::SYS_sched_getparam
        | libc::SYS_sched_setattr
        | libc::SYS_sched_getattr
        | libc::SYS_setpriority
        | libc::SYS_getpriority => attributes::scheduling(frame),
        libc::SYS_prctl => attributes::prctl(thread, frame),
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setfsuid
        | libc::SYS_setfsgid
        | libc::SYS_setgroups => {
            let [number, words @ ..] = frame.words();
            process::everywhere(runtime, number as i64, words)
        }
        libc::SYS_execve | libc::SYS_execveat => process::exec(frame),

        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_recvfrom
        | libc::SYS_sendto
        | libc::SYS_recvmsg
        | libc::SYS_sendmsg
        | libc::SYS_accept
        | libc::SYS_accept4 => {
            if descriptors::is_ours(frame.rdi as i32) {
                return EBADF;
            }
            io::serve(runtime, frame)
        }
        libc::SYS_open | libc::SYS_openat => names::open(frame).unwrap_or_else(|| blocking(frame)),
        libc::SYS_fcntl if frame.rsi as i32 == libc::F_SETFL => {
            let answer = blocking(frame);
            runtime.kernel().poller().flags_change();
            answer
        }
        libc::SYS_ioctl if frame.rsi == FIONBIO => {
            let answer = blocking(frame);
            runtime.kernel().poller().flags_change();
            answer
        }
        libc::SYS_close => attributes::close(runtime, frame),
        libc::SYS_dup2 | libc::SYS_dup3 => attributes::duplicate(runtime, frame),
        libc::SYS_close_range => attributes::close_range(runtime, frame),

        libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_shmat
            if loads::is_executable(frame) =>
        {
            loads::map(frame)
        }
        libc::SYS_munmap => loads::unmap(frame),

        libc::SYS_getpid
        | libc::SYS_getppid
        | libc::SYS_getuid
        | libc::SYS_geteuid
        | libc::SYS_getgid
        | libc::SYS_getegid
        | libc::SYS_brk
        | libc::SYS_mmap
        | libc::SYS_mprotect
        | libc::SYS_madvise
        | libc::SYS_mremap
        | libc::SYS_lseek
        | libc::SYS_gettimeofday
        | libc::SYS_time
        | libc::SYS_getcpu
        | libc::SYS_uname
        | libc::SYS_prlimit64
        | libc::SYS_getrandom
        | libc::SYS_arch_prctl => pass(frame),
        _ => blocking(frame),
    }
}

/// Notes that the call in which the current thread is has left something behind: it will not be
/// made again, and cancellation must not forget its result.
pub fn note_made(thread: &'static Thread) {
    let frame = thread.kernel.frame.load(Ordering::Relaxed) as *const Frame;
    // SAFETY: null, or the frame of the thread's system call, which lives until the call is over.
    if let Some(frame) = unsafe { frame.as_ref() } {
        frame.made.set(1);
    }
}

/// A call that waits, in the kernel, for the signals in `set`: gives up when one comes for the
/// thread alone. `suspended`: the call lets them through while it waits.
fn wait_for_signals(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    set: u64,
    suspended: bool,
) -> i64 {
    let state = &thread.kernel;
    state.forbidden.store(0, Ordering::Relaxed);
    state.suspended.store(suspended, Ordering::Relaxed);
    state.waited_for.store(set, Ordering::SeqCst);
    if state.pending.load(Ordering::SeqCst) & set != 0 {
        state.forbidden.store(1, Ordering::Relaxed);
    }
    // SAFETY: the program's own call.
    let answer = runtime.blocking(|| unsafe { frame.raw_unless(&state.forbidden) }) as i64;
    state.waited_for.store(0, Ordering::SeqCst);
    state.suspended.store(false, Ordering::Relaxed);
    answer
}

/// A call that sets the mask at `at` while it waits: rt_sigsuspend(2), ppoll(2) and others. What
/// came for the thread alone is delivered by hand.
fn with_mask(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame, at: usize) -> i64 {
    let Ok(mask) = crate::access::load_u64(at) else {
        return -i64::from(libc::EFAULT);
    };
    let state = &thread.kernel;
    loop {
        let before = state.mask.load(Ordering::Relaxed);
        if state.pending.load(Ordering::SeqCst) & !mask != 0 {
            // Delivers it.
            signal::set_thread_mask(runtime, thread, mask);
            signal::set_thread_mask(runtime, thread, before);
            if state.seen.load(Ordering::Relaxed) != UNSEEN {
                return EINTR;
            }
        }
        let answer = wait_for_signals(runtime, thread, frame, !mask, true);
        if answer != EINTR || state.seen.load(Ordering::Relaxed) != UNSEEN {
            return answer;
        }
        if state.pending.load(Ordering::SeqCst) & !mask == 0 {
            return EINTR;
        }
    }
}

/// ppoll(2) and the like, if they come with a mask; `at` is where, 0 for none.
pub fn maybe_with_mask(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    at: u64,
) -> i64 {
    if at == 0 {
        // SAFETY: the program's own call.
        return runtime.blocking(|| unsafe { frame.raw() }) as i64;
    }
    with_mask(runtime, thread, frame, at as usize)
}

/// rt_sigtimedwait(2): signals for the thread first, then the kernel's wait.
fn sigtimedwait(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let Ok(set) = crate::access::load_u64(frame.rdi as usize) else {
        return -i64::from(libc::EFAULT);
    };
    let set = set & !(signal::bit(libc::SIGKILL) | signal::bit(libc::SIGSTOP));
    let activation = runtime.enter();
    let found = pending::dequeue(runtime, thread, set);
    runtime.leave(activation);
    let Some((signal, information)) = found else {
        return wait_for_signals(runtime, thread, frame, set, false);
    };
    signal::answer_wait(frame, signal, &information)
}
