//! The calls of bound threads ([`crate::thread::bound`]): the kernel's, but for those that are about what the runtime keeps.

use core::sync::atomic::Ordering;

use upcall_linux::{Runtime, Thread, descriptors};

use crate::call::procfs::{self, listing_calls, status_calls};
use crate::call::{
    again, attributes, credentials, futex, helpers, ids, segments, table, time, uring,
};
use crate::ground::entry::{self, Frame, NEVER, pass_through, program_call};
use crate::ground::record;
use crate::ground::state::GUEST;
use crate::process::{self, loads};
use crate::signal::{self, carried, timers};
use crate::thread::{bound, names, scheduling};

const ENOSYS: i64 = -(libc::ENOSYS as i64);
const EBADF: i64 = -(libc::EBADF as i64);

/// Serves a call of a bound thread.
pub fn serve(thread: &'static Thread, frame: &mut Frame) {
    let state = &thread.kernel;
    let own = core::ptr::from_ref(frame) as usize;
    // As for others, so that a handler finds the thread at its call.
    let before = state.frame.swap(own, Ordering::Relaxed);
    if entry::needs_site(frame.rax) {
        once(thread, frame);
    } else {
        frame.rax = again::call_in_kernel(thread, frame, |frame| {
            let number = frame.rax;
            once(thread, frame);
            let answer = core::mem::replace(&mut frame.rax, number);
            answer as i64
        }) as u64;
    }
    state.frame.store(before, Ordering::Relaxed);
}

/// Makes the call once. Its answer replaces the number.
fn once(thread: &'static Thread, frame: &mut Frame) {
    match answer(thread, frame) {
        Some(answer) => frame.rax = answer as u64,
        // SAFETY: the entry's own frame.
        None => unsafe { entry::native(frame) },
    }
}

/// The answer; `None`: it is the kernel's, or there already.
fn answer(thread: &'static Thread, frame: &mut Frame) -> Option<i64> {
    let state = &thread.kernel;
    let own = state.tid.load(Ordering::Relaxed);
    // SAFETY: the program's own call, as it made it.
    let raw = |frame: &Frame| unsafe { frame.raw() } as i64;
    Some(match frame.rax as i64 {
        libc::SYS_gettid => i64::from(own),
        libc::SYS_exit => bound::exit(thread, frame.rdi),
        libc::SYS_exit_group => {
            GUEST.report();
            raw(frame)
        }
        libc::SYS_set_tid_address => {
            state.clear_tid.store(frame.rdi as usize, Ordering::Relaxed);
            i64::from(own)
        }
        libc::SYS_set_robust_list => attributes::set_robust_list(GUEST.runtime()?, thread, frame),
        libc::SYS_get_robust_list => attributes::get_robust_list(thread, frame),
        libc::SYS_rseq => attributes::rseq(frame),
        libc::SYS_futex_waitv | 454..=456 => ENOSYS,
        libc::SYS_futex => futex::of_bound(thread, frame),
        libc::SYS_clock_gettime => time::clock_of_bound(thread, frame)?,
        libc::SYS_clock_getres => time::clock_getres(thread, frame)?,
        libc::SYS_getrusage => time::usage_of_bound(thread, frame),
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo
            if let Some(answer) = carried::send(frame) =>
        {
            answer
        }
        libc::SYS_tgkill => to_thread(thread, frame, frame.rsi as i32, 1)?,
        libc::SYS_tkill => to_thread(thread, frame, frame.rdi as i32, 0)?,
        libc::SYS_rt_tgsigqueueinfo => to_thread(thread, frame, frame.rsi as i32, 1)?,
        scheduling::calls_about_one!() => to_thread(thread, frame, frame.rdi as i32, 0)?,
        libc::SYS_perf_event_open if credentials::is_change(frame) => {
            to_thread(thread, frame, frame.rsi as i32, 1)?
        }
        libc::SYS_sched_rr_get_interval if frame.rdi as i32 == own => {
            to_thread(thread, frame, own, 0)?
        }
        libc::SYS_setpriority
        | libc::SYS_getpriority
        | libc::SYS_ioprio_set
        | libc::SYS_ioprio_get
            if scheduling::is_about_one(frame) =>
        {
            to_thread(thread, frame, frame.rsi as i32, 1)?
        }
        ids::process_calls!() | libc::SYS_kill | libc::SYS_rt_sigqueueinfo => {
            ids::serve_outside(frame)
        }
        libc::SYS_rt_sigaction => signal::sigaction(frame),
        libc::SYS_rt_sigprocmask => signal::sigprocmask_of_bound(thread, frame),
        libc::SYS_signalfd | libc::SYS_signalfd4 => signal::signalfd(frame),
        libc::SYS_prctl if frame.rdi as i32 == libc::PR_SET_NAME => {
            match names::set_own(thread, frame.rsi as usize) {
                0 => raw(frame),
                error => error,
            }
        }
        libc::SYS_arch_prctl if frame.rdi as i32 == segments::ARCH_GET_GS => {
            segments::arch_prctl(thread, frame)
        }
        libc::SYS_fcntl if frame.rsi as i32 == ids::F_SETOWN_EX => ids::set_owner(frame),
        libc::SYS_fcntl | libc::SYS_ioctl if ids::names_owner(frame) => ids::name_owner(frame),
        libc::SYS_timer_create if !time::is_clock_of_other(thread, frame) => {
            timers::create_by(frame, raw_call)
        }
        libc::SYS_timer_create => {
            bound::visit(thread, |runtime| time::create_timer(runtime, thread, frame))?
        }
        libc::SYS_pkey_alloc => segments::allocate_key(frame),
        libc::SYS_timer_delete => {
            timers::delete(frame);
            return None;
        }
        libc::SYS_execve | libc::SYS_execveat => process::exec(frame),
        libc::SYS_wait4 | libc::SYS_waitid => {
            let words = process::wait_for_one(frame)?;
            // SAFETY: the program's own call, for the same child.
            (unsafe { program_call(&words, &frame.made, &NEVER) }) as i64
        }
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            process::create_outside(frame);
            frame.rax as i64
        }
        libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_shmat
            if loads::is_executable(frame) =>
        {
            loads::map(frame)
        }
        libc::SYS_munmap => loads::unmap(frame),
        libc::SYS_io_uring_setup if !uring::is_for_one(frame) => uring::setup(frame),
        libc::SYS_io_uring_enter => {
            uring::enter();
            return None;
        }
        libc::SYS_unshare if bound::unshares_descriptors(&frame.words()) => {
            let answer = raw(frame);
            if answer == 0 {
                bound::has_got_descriptors(thread);
            }
            answer
        }
        libc::SYS_close_range if frame.rdx & credentials::CLOSE_RANGE_UNSHARE != 0 => {
            let answer = attributes::close_ranges(frame);
            if answer == 0 {
                bound::has_got_descriptors(thread);
            }
            answer
        }
        libc::SYS_close | libc::SYS_dup2 | libc::SYS_dup3
            if descriptors::is_ours(frame.rdi as i32)
                || frame.rax as i64 != libc::SYS_close
                    && descriptors::is_ours(frame.rsi as i32) =>
        {
            EBADF
        }
        libc::SYS_close_range if bound::has_descriptors(thread) => attributes::close_ranges(frame),
        libc::SYS_close | libc::SYS_dup2 | libc::SYS_dup3 | libc::SYS_epoll_ctl
            if bound::has_descriptors(thread) =>
        {
            raw(frame)
        }
        libc::SYS_open | libc::SYS_openat => names::open(GUEST.runtime()?, frame)?,
        // What the poller knows of descriptors.
        libc::SYS_close
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_close_range
        | libc::SYS_epoll_ctl => {
            bound::visit(thread, |runtime| table::once_more(runtime, thread, frame))?
        }
        libc::SYS_read | libc::SYS_pread64 => procfs::counts::read(frame, raw(frame)),
        listing_calls!() => procfs::entries(frame)?,
        status_calls!() => {
            let answer = raw(frame);
            procfs::count_links(frame, answer);
            answer
        }
        libc::SYS_fcntl | libc::SYS_ioctl | libc::SYS_setsockopt => helpers::change_flags(frame)?,
        _ if credentials::is_for_all(frame) => credentials::of_bound(thread, frame),
        _ => return None,
    })
}

/// A call of the program's, with these words.
fn raw_call([number, words @ ..]: [u64; 7]) -> i64 {
    // SAFETY: what the program has asked for, as it stands or with what the runtime puts in its place.
    (unsafe { pass_through(number as i64, words) }) as i64
}

/// A call about the thread of that id, which stands in the word of that index: the calling one or another.
fn to_thread(thread: &'static Thread, frame: &mut Frame, id: i32, index: usize) -> Option<i64> {
    let own = thread.kernel.tid.load(Ordering::Relaxed);
    if id == own {
        let mut asked = frame.clone();
        let of_kernel = record::kernel_id(thread)? as u64;
        match index {
            0 => asked.rdi = of_kernel,
            _ => asked.rsi = of_kernel,
        }
        // SAFETY: the program's own call, with the kernel's id for its own.
        return Some(unsafe { asked.raw() } as i64);
    }
    GUEST.identities.find(id)?;
    bound::visit(thread, |runtime: &'static Runtime| {
        table::once_more(runtime, thread, frame)
    })
}
