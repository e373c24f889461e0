//! The system-call table: what becomes of each call that a rewritten site makes.
//!
//! | class | calls | what happens |
//! |---|---|---|
//! | thread | clone, exit, futex, sleep, yield, signals, names, … | served for the user-level thread |
//! | pollable | read, write, recv…, send…, accept, poll, select, epoll_wait | tried without waiting; the thread parks on the poller |
//! | plain | getpid, mmap, … | passed on: they do not wait for anything |
//! | any other | open, fsync, wait4, … | passed on; if it blocks, the activation is replaced |
//!
//! What was interrupted is made again where the kernel would have done so ([`again`]).

use core::sync::atomic::Ordering;

use upcall_core::Errno;
use upcall_linux::poller::prepared;
use upcall_linux::{Runtime, Thread, base, descriptors};

use crate::call::credentials::{self, changes_of_one, identity_calls};
use crate::call::procfs::{self, listing_calls, status_calls};
use crate::call::{again, attributes, futex, helpers, ids, io, kill, poll, segments, time, uring};
use crate::ground::caller::{self, Caller};
use crate::ground::entry::{self, Frame};
use crate::ground::state::{self, GUEST};
use crate::ground::{mask, record};
use crate::process::{self, loads};
use crate::signal::{self, alone, carried, dispatch, everywhere, settled, timers, user_dispatch};
use crate::thread::lifetime::{self, Request};
use crate::thread::{bound, deadlines, names, scheduling};

/// The ioctl that sets or clears O_NONBLOCK.
const FIONBIO: u64 = 0x5421;

/// The request by which a child asks to be traced.
const PTRACE_TRACEME: u64 = 0;

const ENOSYS: i64 = -(libc::ENOSYS as i64);
const EBADF: i64 = -(libc::EBADF as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);

/// What every rewritten site calls.
///
/// # Safety
///
/// Called by the entry, on the program's stack.
pub unsafe extern "C" fn handler(frame: &mut Frame) {
    // Nothing of the stack is in use here, each of these being reached by a jump: for the last call it may be small.
    match GUEST.runtime() {
        Some(runtime) if frame.rax as i64 == libc::SYS_exit => exit(runtime, frame),
        Some(runtime) => dispatch(runtime, frame),
        None => without_runtime(frame),
    }
}

#[inline(never)]
fn without_runtime(frame: &mut Frame) {
    if state::is_lent() || base::is_set() {
        outside(frame);
        return;
    }
    alone::in_call(frame, alone);
    if GUEST.runtime().is_some()
        && let Some(thread) = caller::own_thread()
    {
        caller::give_back(thread);
    }
}

/// exit(2), which uses little of the stack.
#[inline(never)]
fn exit(runtime: &'static Runtime, frame: &mut Frame) {
    match ending(runtime) {
        Caller::Thread(thread, _) => lifetime::exit(runtime, thread, frame.rdi),
        Caller::Outside(own) => caller::serve_outside(frame, own, outside),
        // SAFETY: the entry's own frame.
        Caller::Activation => unsafe { entry::native(frame) },
    }
}

/// What ends by exit(2): a thread, a child on its memory or another kernel thread, or one of the runtime's own. Apart,
/// so that the stack that this takes is free again for what follows.
#[inline(never)]
fn ending(runtime: &'static Runtime) -> Caller {
    let caller = match base::program_thread() {
        Some(thread) => Caller::Thread(thread, false),
        None => caller::identify(runtime),
    };
    match caller {
        Caller::Thread(thread, _) if thread.kernel.lent.load(Ordering::Relaxed) => {
            Caller::Outside(None)
        }
        // SAFETY: the register leads to the activation.
        Caller::Thread(..) if unsafe { base::is_inside() } => Caller::Activation,
        other => other,
    }
}

/// A process without a runtime, which has one thread.
fn alone(frame: &mut Frame) {
    match frame.rax as i64 {
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            match Request::of(frame) {
                Some(request) if request.is_thread() => lifetime::create(frame, &request),
                _ => process::create(frame, None),
            }
        }
        libc::SYS_rt_sigaction => frame.rax = signal::sigaction(frame) as u64,
        libc::SYS_signalfd | libc::SYS_signalfd4 => frame.rax = signal::signalfd(frame) as u64,
        libc::SYS_sched_setscheduler | libc::SYS_sched_setattr => {
            match scheduling::before_threads(frame) {
                Some(answer) => frame.rax = answer as u64,
                None => match GUEST.start() {
                    Ok(runtime) => dispatch(runtime, frame),
                    Err(Errno(_)) => frame.rax = -i64::from(libc::EPERM) as u64,
                },
            }
        }
        libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_shmat
            if loads::is_executable(frame) =>
        {
            frame.rax = loads::map(frame) as u64;
        }
        libc::SYS_munmap => frame.rax = loads::unmap(frame) as u64,
        libc::SYS_execve | libc::SYS_execveat => frame.rax = process::exec(frame) as u64,
        libc::SYS_setsockopt => {
            poll::note_option(frame);
            // SAFETY: the entry's own frame.
            unsafe { entry::native(frame) };
        }
        libc::SYS_rseq => frame.rax = attributes::rseq(frame) as u64,
        libc::SYS_pkey_alloc => frame.rax = segments::allocate_key(frame) as u64,
        libc::SYS_io_uring_setup | libc::SYS_io_uring_register if uring::is_for_one(frame) => {
            match GUEST.start() {
                Ok(runtime) => dispatch(runtime, frame),
                Err(Errno(_)) => frame.rax = EINVAL as u64,
            }
        }
        libc::SYS_io_uring_setup => frame.rax = uring::setup(frame) as u64,
        libc::SYS_io_uring_enter => {
            uring::enter();
            // SAFETY: the entry's own frame.
            unsafe { entry::native(frame) };
        }
        libc::SYS_prctl if user_dispatch::is_request(frame) => user_dispatch::begin(frame),
        libc::SYS_seccomp | libc::SYS_prctl if installs_filter(frame) => {
            prepared::open();
            // SAFETY: the entry's own frame.
            unsafe { entry::native(frame) };
        }
        libc::SYS_close | libc::SYS_dup2 | libc::SYS_dup3
            if descriptors::is_ours(frame.rdi as i32)
                || frame.rax as i64 != libc::SYS_close
                    && descriptors::is_ours(frame.rsi as i32) =>
        {
            frame.rax = EBADF as u64;
        }
        libc::SYS_close_range => {
            frame.rax = attributes::close_ranges(frame) as u64;
        }
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo
            if let Some(answer) = carried::send(frame) =>
        {
            frame.rax = answer as u64;
        }
        number if dispatch::is_on() => {
            let served = match number {
                libc::SYS_rt_sigprocmask => Some(alone::sigprocmask(frame)),
                libc::SYS_rt_sigpending => Some(alone::sigpending(frame)),
                libc::SYS_sigaltstack => Some(signal::altstack::call_of_kernel(frame)),
                libc::SYS_rt_sigtimedwait
                | libc::SYS_rt_sigsuspend
                | libc::SYS_ppoll
                | libc::SYS_pselect6
                | libc::SYS_epoll_pwait
                | libc::SYS_epoll_pwait2 => alone::wait(frame),
                libc::SYS_ptrace if frame.rdi == PTRACE_TRACEME => {
                    dispatch::end();
                    None
                }
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

/// Whether the program asks for a seccomp filter, or for the strict mode.
fn installs_filter(frame: &Frame) -> bool {
    const SECCOMP_GET_ACTION_AVAIL: u64 = 2;
    if frame.rax as i64 == libc::SYS_seccomp {
        frame.rdi < SECCOMP_GET_ACTION_AVAIL
    } else {
        frame.rdi as i32 == libc::PR_SET_SECCOMP
    }
}

/// A kernel thread that is no activation, or a child of vfork.
fn outside(frame: &mut Frame) {
    if let Some(thread) = record::current_thread() {
        crate::call::outside::serve(thread, frame);
        return;
    }
    if frame.rax as i64 == libc::SYS_exit {
        lifetime::exit_foreign(frame);
    } else {
        helper(frame);
    }
}

/// Serves a call of such a kernel thread that is not its last.
#[inline(never)]
fn helper(frame: &mut Frame) {
    if caller::is_helper()
        && let Some(answer) = helpers::serve(frame)
    {
        frame.rax = answer as u64;
        return;
    }
    match frame.rax as i64 {
        libc::SYS_execve | libc::SYS_execveat => frame.rax = process::exec(frame) as u64,
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork
            if caller::is_helper() =>
        {
            process::create_outside(frame);
        }
        libc::SYS_rt_sigaction => {
            // SAFETY: the program's own call.
            frame.rax = unsafe { frame.raw() } as u64;
        }
        libc::SYS_rt_sigprocmask => {
            // SAFETY: the program's own call.
            frame.rax = unsafe { frame.raw() } as u64;
            if caller::is_helper() {
                // Unblocked again, without a moment for a dispatched call in between.
                mask::set_kernel_mask(dispatch::blockable(mask::kernel_mask()));
            }
        }
        libc::SYS_futex => futex::outside(frame),
        // In the register is a mark of the runtime's.
        libc::SYS_arch_prctl if frame.rdi as i32 == segments::ARCH_GET_GS => {
            frame.rax = segments::answer(frame, 0) as u64;
        }
        identity_calls!() if caller::is_helper() && credentials::is_for_all(frame) => {
            frame.rax = credentials::of_helper(frame) as u64;
        }
        libc::SYS_pkey_alloc => frame.rax = segments::allocate_key(frame) as u64,
        // The kernel's is the runtime's.
        libc::SYS_prctl if user_dispatch::is_request(frame) => {
            frame.rax = -i64::from(libc::EINVAL) as u64;
        }
        // SAFETY: the entry's own frame.
        _ => unsafe { entry::native(frame) },
    }
}

#[inline(never)]
fn dispatch(runtime: &'static Runtime, frame: &mut Frame) {
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
    if thread.kernel.lent.load(Ordering::Relaxed) {
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
    match frame.rax as i64 {
        libc::SYS_sched_yield if !deadlines::has(thread) => {
            in_call(thread, frame, |frame| {
                runtime.yield_now();
                frame.rax = 0;
            });
        }
        libc::SYS_futex if futex::is_wake(frame) => {
            in_call(thread, frame, |frame| {
                frame.rax = futex::serve_wake(runtime, frame) as u64;
            });
        }
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            signal::forget_left(thread, frame.rsp as usize);
            in_call(thread, frame, |frame| match Request::of(frame) {
                Some(request) if request.is_thread() => lifetime::create(frame, &request),
                _ => process::create(frame, Some(thread)),
            });
        }
        libc::SYS_rt_sigreturn => frame.mode = entry::mode::AT_SITE,
        _ => {
            signal::forget_left(thread, frame.rsp as usize);
            frame.rax = again::call(thread, frame, |frame| once(runtime, thread, frame)) as u64;
            deadlines::came_back(runtime, thread);
            if thread.kernel.bound.load(Ordering::Relaxed) != 0 {
                bound::go(runtime, thread);
            }
        }
    }
    // A call at its site is the runtime's until the hook after it; but from a signal the program's code goes on.
    if frame.mode != entry::mode::AT_SITE || frame.rax as i64 == libc::SYS_rt_sigreturn {
        caller::give_back(thread);
    }
}

/// A call of a bound thread that visits the runtime.
pub fn once_more(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let mut frame = frame.clone();
    once(runtime, thread, &mut frame)
}

/// Serves a call that is not made again: handlers that come find the thread behind it.
#[inline(always)]
fn in_call(thread: &'static Thread, frame: &mut Frame, serve: impl FnOnce(&mut Frame)) {
    let state = &thread.kernel.frame;
    frame.made.set(1);
    state.store(core::ptr::from_mut(frame) as usize, Ordering::Relaxed);
    serve(frame);
    state.store(0, Ordering::Relaxed);
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
        libc::SYS_sched_yield => deadlines::end_job(runtime, thread, frame),
        libc::SYS_nanosleep => time::nanosleep(runtime, thread, frame),
        libc::SYS_clock_nanosleep => time::clock_nanosleep(runtime, thread, frame),
        libc::SYS_exit_group => {
            GUEST.report();
            pass(frame)
        }
        libc::SYS_gettid => i64::from(state.tid.load(Ordering::Relaxed)),
        libc::SYS_set_tid_address => {
            state.clear_tid.store(frame.rdi as usize, Ordering::Relaxed);
            i64::from(state.tid.load(Ordering::Relaxed))
        }
        libc::SYS_set_robust_list => attributes::set_robust_list(runtime, thread, frame),
        libc::SYS_get_robust_list => attributes::get_robust_list(thread, frame),
        libc::SYS_rseq => attributes::rseq(frame),
        // Waits in the kernel would not meet wake-ups at user level.
        libc::SYS_futex_waitv | 454..=456 => ENOSYS,

        libc::SYS_clock_gettime => {
            time::clock_gettime(thread, frame).unwrap_or_else(|| pass(frame))
        }
        libc::SYS_clock_getres => time::clock_getres(thread, frame).unwrap_or_else(|| pass(frame)),
        libc::SYS_getrusage => time::getrusage(thread, frame),
        libc::SYS_timer_create => time::create_timer(runtime, thread, frame),
        libc::SYS_timer_delete => {
            timers::delete(frame);
            pass(frame)
        }

        libc::SYS_rt_sigaction => signal::sigaction(frame),
        libc::SYS_rt_sigprocmask => signal::sigprocmask(runtime, thread, frame),
        libc::SYS_rt_sigsuspend => signal::with_mask(runtime, thread, frame, frame.rdi as usize),
        descriptor_waits!() => poll::serve(runtime, thread, frame),
        libc::SYS_epoll_ctl => poll::control(runtime, frame),
        libc::SYS_setsockopt => poll::set_option(runtime, frame),
        libc::SYS_rt_sigtimedwait => signal::sigtimedwait(runtime, thread, frame),
        signal::IO_PGETEVENTS => signal::get_events(runtime, thread, frame),
        libc::SYS_fallocate => io::allocate(runtime, frame),
        libc::SYS_signalfd | libc::SYS_signalfd4 => {
            // What its reader blocks is found there at once, if nobody opens it.
            settled::settle_for_call(runtime, thread.kernel.mask.load(Ordering::Relaxed));
            signal::signalfd(frame)
        }
        libc::SYS_rt_sigpending => attributes::sigpending(runtime, thread, frame),
        libc::SYS_sigaltstack => signal::altstack::sigaltstack(runtime, thread, frame),
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
        libc::SYS_kill => kill::kill(runtime, thread, frame),
        libc::SYS_rt_sigqueueinfo => kill::queue(runtime, thread, frame),
        libc::SYS_pidfd_send_signal => {
            kill::send_by_descriptor(runtime, thread, frame).unwrap_or_else(|| pass(frame))
        }
        libc::SYS_rt_tgsigqueueinfo => attributes::queue_signal(runtime, frame),

        scheduling::calls_about_one!() | libc::SYS_setpriority | libc::SYS_getpriority => {
            scheduling::serve(runtime, thread, frame)
        }
        libc::SYS_prctl if user_dispatch::is_request(frame) => user_dispatch::set(thread, frame),
        libc::SYS_prctl => attributes::prctl(runtime, thread, frame),
        identity_calls!() if credentials::is_for_all(frame) => {
            credentials::change(runtime, thread, frame)
        }
        changes_of_one!() if credentials::is_change(frame) => {
            credentials::change_own(runtime, thread, frame)
        }
        libc::SYS_ptrace => everywhere::trace(runtime, frame),
        libc::SYS_execve | libc::SYS_execveat => process::exec(frame),
        libc::SYS_wait4 | libc::SYS_waitid if let Some(words) = process::wait_for_one(frame) => {
            // SAFETY: the program's own call, for the same child.
            runtime.blocking(|| unsafe { entry::program_call(&words, &frame.made, &entry::NEVER) })
                as i64
        }

        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
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
        libc::SYS_sendmmsg => io::send_many(runtime, frame),
        libc::SYS_recvmmsg => io::receive_many(runtime, frame),
        libc::SYS_sendfile => io::send_file(runtime, frame),
        libc::SYS_getrandom if frame.rsi > io::NEVER_SHORT => io::fill(runtime, frame),
        libc::SYS_open | libc::SYS_openat => {
            names::open(runtime, frame).unwrap_or_else(|| blocking(frame))
        }
        libc::SYS_pread64 => procfs::counts::read(frame, blocking(frame)),
        listing_calls!() => procfs::entries(frame).unwrap_or_else(|| blocking(frame)),
        status_calls!() => {
            let answer = blocking(frame);
            procfs::count_links(frame, answer);
            answer
        }
        libc::SYS_fcntl if frame.rsi as i32 == libc::F_SETFL => {
            let answer = blocking(frame);
            runtime.kernel().poller().flags_change();
            answer
        }
        libc::SYS_fcntl if frame.rsi as i32 == ids::F_SETOWN_EX => ids::set_owner(frame),
        libc::SYS_fcntl if ids::takes_ownership(frame.rsi as i32) => {
            ids::own_by_process(frame, || blocking(frame))
        }
        libc::SYS_fcntl | libc::SYS_ioctl if ids::names_owner(frame) => ids::name_owner(frame),
        libc::SYS_ioctl if frame.rsi == FIONBIO => {
            let answer = blocking(frame);
            runtime.kernel().poller().flags_change();
            answer
        }
        libc::SYS_close => attributes::close(runtime, frame),
        libc::SYS_io_uring_setup => uring::setup(frame),
        libc::SYS_io_uring_enter => {
            uring::enter();
            uring::wait(runtime, thread, frame)
        }
        libc::SYS_dup2 | libc::SYS_dup3 => attributes::duplicate(runtime, frame),
        libc::SYS_close_range => attributes::close_range(runtime, frame),

        libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_shmat
            if loads::is_executable(frame) =>
        {
            loads::map(frame)
        }
        libc::SYS_munmap => loads::unmap(frame),
        libc::SYS_pkey_alloc => segments::allocate_key(frame),

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
        | libc::SYS_getrandom => pass(frame),
        ids::process_calls!() => ids::serve(runtime, frame),
        libc::SYS_arch_prctl => segments::arch_prctl(thread, frame),
        _ => blocking(frame),
    }
}
