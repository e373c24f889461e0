//! Sleeping and deadlines: nanosleep(2), clock_nanosleep(2), and the times of other calls.

use core::sync::atomic::Ordering;

use upcall_core::Machine;
use upcall_linux::{Runtime, Thread, clock, cpu_time};

use crate::call::{of_bound, time};
use crate::ground::access::nanoseconds;
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, NEVER, program_call, raw_syscall};
use crate::ground::record;
use crate::ground::state::GUEST;
use crate::signal::seen::UNSEEN;
use crate::signal::timers;
use crate::thread::bound;
use crate::thread::sleep::{sleep, store};

const NS: u64 = 1_000_000_000;
const TIMER_ABSTIME: u64 = 1;
const EINTR: i64 = -(libc::EINTR as i64);

/// Returns the deadline that a timespec pointer means, in nanoseconds of CLOCK_MONOTONIC; none for a null pointer. A time
/// on CLOCK_REALTIME is converted once: it does not move when the clock is set.
///
/// # Errors
///
/// `EFAULT` or `EINVAL`, positive.
pub fn deadline(address: usize, relative: bool, real_time: bool) -> Result<Option<u64>, i32> {
    if address == 0 {
        return Ok(None);
    }
    let time = nanoseconds(address)?;
    if !relative && !real_time {
        return Ok(Some(time));
    }
    let left = if relative {
        time
    } else {
        time.saturating_sub(clock(libc::CLOCK_REALTIME))
    };
    // Read last: what passes between the two clocks' times makes the deadline later, and never early.
    Ok(Some(clock(libc::CLOCK_MONOTONIC).saturating_add(left)))
}

/// nanosleep(2).
pub fn nanosleep(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    match nanoseconds(frame.rdi as usize) {
        Ok(time) => {
            let deadline = runtime.kernel().now().saturating_add(time);
            sleep(runtime, thread, frame, deadline, frame.rsi as usize)
        }
        Err(number) => -i64::from(number),
    }
}

/// clock_nanosleep(2).
pub fn clock_nanosleep(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    sleep_on_wall(runtime, thread, frame).unwrap_or_else(|| sleep_on_other(runtime, thread, frame))
}

/// Sleeps on a clock that is not wall time.
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
fn sleep_on_other(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let make = |words: &[u64; 7]| {
        // SAFETY: the program's own call, or one that reads two words.
        runtime.blocking(|| unsafe { program_call(words, &frame.made, &NEVER) }) as i64
    };
    let Some(whose) = thread_slept_on(thread, frame) else {
        return sleep_in_kernel(thread, frame, None, make);
    };
    match begin_on_thread(runtime, thread, whose, frame) {
        Ok(tid) => sleep_in_kernel(thread, frame, Some((whose, tid)), make),
        Err(answer) => answer,
    }
}

/// clock_nanosleep(2) of a bound thread. Returns `None` if the kernel must serve it.
pub fn sleep_of_bound(thread: &'static Thread, frame: &Frame) -> Option<i64> {
    let whose = thread_slept_on(thread, frame)?;
    let begin = |runtime| begin_on_thread(runtime, thread, whose, frame);
    Some(match bound::visit(thread, begin)? {
        Ok(tid) => {
            let make = |words: &[u64; 7]| of_bound::program_call(*words, frame);
            sleep_in_kernel(thread, frame, Some((whose, tid)), make)
        }
        Err(answer) => answer,
    })
}

/// Returns the thread of ours on whose processor time a thread would sleep. On CLOCK_THREAD_CPUTIME_ID nobody can, as the
/// kernel tells.
fn thread_slept_on(thread: &'static Thread, frame: &Frame) -> Option<&'static Thread> {
    let clock_id = frame.rdi as i32;
    let is_named = clock_id != CLOCK_THREAD_CPUTIME_ID;
    thread_of_clock(Some(thread), clock_id).filter(|_| is_named)
}

/// Binds the thread on whose processor time another one will sleep, because the kernel follows kernel threads. Returns the
/// id of its kernel thread.
///
/// # Errors
///
/// The answer, where there is nothing to wait for.
fn begin_on_thread(
    runtime: &'static Runtime,
    thread: &'static Thread,
    whose: &'static Thread,
    frame: &Frame,
) -> Result<i32, i64> {
    const EINVAL: i64 = -(libc::EINVAL as i64);
    let time = nanoseconds(frame.rdx as usize).map_err(|number| -i64::from(number))?;
    if core::ptr::eq(whose, thread) {
        return Err(EINVAL);
    }
    if time == 0 {
        return Err(0);
    }
    if record::kernel_id(whose).is_none() {
        let id = whose.guest().tid.load(Ordering::Relaxed);
        let nothing = [libc::SYS_gettid as u64, 0, 0, 0, 0, 0, 0];
        let answer = bound::change(runtime, (whose, id), &[nothing]);
        // Another thread may have bound it meanwhile.
        if answer < 0 && record::kernel_id(whose).is_none() {
            return Err(answer);
        }
    }
    let tid = record::kernel_id(whose).filter(|&tid| tid != 0);
    tid.ok_or(EINVAL)
}

/// Sleeps on a clock that only the kernel knows, or on the processor time of a bound thread, whose kernel thread has that
/// id. A length of time becomes a point in time, which does not move when a signal of the runtime's own ends the wait.
fn sleep_in_kernel(
    thread: &'static Thread,
    frame: &Frame,
    whose: Option<(&'static Thread, i32)>,
    make: impl Fn(&[u64; 7]) -> i64,
) -> i64 {
    let mut words = frame.words();
    let mut point = [0u64; 2];
    let time = nanoseconds(frame.rdx as usize).unwrap_or(0);
    let is_length = frame.rsi & TIMER_ABSTIME == 0 && time != 0;
    if let Some((_, tid)) = whose {
        words[1] = clock_of_kernel_thread(tid);
    }
    let clock = words[1];
    // What the kernel does not count: what the thread used before it was bound, and on its visits.
    let before = || whose.map_or(0, |(whose, _)| cpu_time::of(whose));
    let now = || kernel_clock(clock).map(|now| now + before());
    let deadline = match whose {
        Some(_) if !is_length => Some(time),
        _ => now()
            .filter(|_| is_length)
            .map(|now| now.saturating_add(time)),
    };
    if let Some(deadline) = deadline {
        // Of one that is over, the least that the kernel does not take for none.
        let there = deadline.saturating_sub(before()).max(1);
        point = [there / NS, there % NS];
        words[2] |= TIMER_ABSTIME;
        words[3] = point.as_ptr() as u64;
        words[4] = 0;
    }
    loop {
        let answer = make(&words);
        core::hint::black_box(&mut point);
        if answer != EINTR {
            return answer;
        }
        if thread.kernel.seen.load(Ordering::Relaxed) == UNSEEN {
            continue;
        }
        if let (Some(deadline), Some(now)) = (deadline, now())
            && frame.r10 != 0
            && is_length
        {
            let left = deadline.saturating_sub(now);
            let stored = store(frame.r10 as usize, [left / NS, left % NS]);
            return if stored == 0 { EINTR } else { stored };
        }
        return EINTR;
    }
}

/// Returns the time of a clock on which a thread can sleep; `None` if there is no clock of that number.
fn kernel_clock(id: u64) -> Option<u64> {
    let mut time = [0u64; 2];
    let words = [id, time.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: writes two words.
    let answer = unsafe { raw_syscall(libc::SYS_clock_gettime, words) };
    let is_there = answer == 0 && id as i32 != CLOCK_THREAD_CPUTIME_ID;
    is_there.then(|| time[0].saturating_mul(NS).saturating_add(time[1]))
}

/// clock_nanosleep(2) on the clocks that stand for wall time. Returns `None` for others, which the kernel serves.
fn sleep_on_wall(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> Option<i64> {
    let clock_id = frame.rdi as i32;
    if !matches!(clock_id, libc::CLOCK_MONOTONIC | libc::CLOCK_REALTIME) {
        return None;
    }
    let absolute = frame.rsi & TIMER_ABSTIME != 0;
    let deadline = match deadline(
        frame.rdx as usize,
        !absolute,
        clock_id == libc::CLOCK_REALTIME,
    ) {
        Ok(Some(deadline)) => deadline,
        Ok(None) => return Some(-i64::from(libc::EFAULT)),
        Err(number) => return Some(-i64::from(number)),
    };
    let rest = if absolute { 0 } else { frame.r10 as usize };
    Some(sleep(runtime, thread, frame, deadline, rest))
}

const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
/// CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD_MASK, in the low three bits of a clock with a thread's id.
const OF_THREAD: i32 = 6;

/// Returns the thread whose processor time a clock counts, if it is one of ours. A clock's number holds the id's complement
/// (pthread_getcpuclockid(3)), without three bits. `own`: the thread that asks, unless that is a helper.
pub fn thread_of_clock(own: Option<&'static Thread>, clock_id: i32) -> Option<&'static Thread> {
    const KEPT: i32 = (1 << 29) - 1;
    match clock_id {
        CLOCK_THREAD_CPUTIME_ID => own,
        id if id & 7 != OF_THREAD => None,
        id if id < 0 => match !(id >> 3) {
            0 => own,
            tid => GUEST.identities.find(tid),
        },
        id => GUEST.identities.find(!(id >> 3) & KEPT),
    }
}

/// Returns true if a call's first word names the clock of another thread of ours.
pub fn is_clock_of_other(thread: &'static Thread, frame: &Frame) -> bool {
    thread_of_clock(Some(thread), frame.rdi as i32)
        .is_some_and(|whose| !core::ptr::eq(whose, thread))
}

/// Returns the kernel's number of the clock that counts a kernel thread's processor time.
pub fn clock_of_kernel_thread(tid: i32) -> u64 {
    ((!tid << 3) | OF_THREAD) as u64
}

/// clock_gettime(2) of a bound thread on a clock of threads. Its own clock adds what its kernel thread has used and what
/// the thread used before. Returns `None` if the kernel must serve it.
pub fn clock_of_bound(thread: &'static Thread, frame: &Frame) -> Option<i64> {
    let whose = thread_of_clock(Some(thread), frame.rdi as i32)?;
    if !core::ptr::eq(whose, thread) {
        return bound::visit(thread, |_| clock_gettime(Some(thread), frame))?;
    }
    let time = used_by_bound(thread);
    Some(store(frame.rsi as usize, [time / NS, time % NS]))
}

/// Returns the processor time of a bound thread, which is the calling one.
fn used_by_bound(thread: &'static Thread) -> u64 {
    let mut now = [0u64; 2];
    let words = [
        CLOCK_THREAD_CPUTIME_ID as u64,
        now.as_mut_ptr() as u64,
        0,
        0,
        0,
        0,
    ];
    // Not through libc, whose call would be served here. SAFETY: writes two words.
    unsafe { raw_syscall(libc::SYS_clock_gettime, words) };
    now[0] * NS + now[1] + thread.kernel.cpu_ns.load(Ordering::Relaxed)
}

/// clock_gettime(2) on the clocks of threads. Returns `None` for others, which the kernel serves.
pub fn clock_gettime(own: Option<&'static Thread>, frame: &Frame) -> Option<i64> {
    let whose = thread_of_clock(own, frame.rdi as i32)?;
    // For a bound thread: what it used before, and on its visits.
    let mut time = cpu_time::of(whose);
    if let Some(tid) = record::kernel_id(whose).filter(|&tid| tid != 0) {
        time += kernel_clock(clock_of_kernel_thread(tid)).unwrap_or(0);
    }
    Some(store(frame.rsi as usize, [time / NS, time % NS]))
}

/// clock_getres(2), as [`clock_gettime`].
pub fn clock_getres(own: Option<&'static Thread>, frame: &Frame) -> Option<i64> {
    thread_of_clock(own, frame.rdi as i32)?;
    if frame.rsi == 0 {
        return Some(0);
    }
    Some(store(frame.rsi as usize, [0, 1]))
}

/// getrusage(2). The times of RUSAGE_THREAD are the thread's, and count as spent in its own code. The counts are the
/// activation's.
pub fn getrusage(thread: &'static Thread, frame: &Frame) -> i64 {
    usage(frame, || cpu_time::of(thread))
}

pub fn usage_of_bound(thread: &'static Thread, frame: &Frame) -> i64 {
    usage(frame, || used_by_bound(thread))
}

fn usage(frame: &Frame, used: impl FnOnce() -> u64) -> i64 {
    // SAFETY: the program's own call.
    let answer = unsafe { frame.raw() } as i64;
    if answer != 0 || frame.rdi as i32 != libc::RUSAGE_THREAD {
        return answer;
    }
    let time = used();
    let stored = store(frame.rsi as usize, [time / NS, time % NS / 1000]);
    if stored != 0 {
        return stored;
    }
    store(frame.rsi as usize + 16, [0, 0])
}

/// timer_create(2) of a thread on an activation. A timer on a thread's processor time binds that thread, because the kernel
/// follows kernel threads.
pub fn create_timer(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let whose = time::thread_of_clock(Some(thread), frame.rdi as i32);
    let id = whose.map(|whose| whose.guest().tid.load(Ordering::Relaxed));
    timers::create_by(frame, id, |mut call| {
        if let (Some(whose), Some(id)) = (whose, id) {
            match record::kernel_id(whose) {
                Some(tid) => call[1] = time::clock_of_kernel_thread(tid),
                None => {
                    call[1] = libc::CLOCK_THREAD_CPUTIME_ID as u64;
                    return bound::change(runtime, (whose, id), &[call]);
                }
            }
        }
        of_bound::call(call)
    })
}

/// timer_create(2) of a bound thread, not on the clock of another thread of ours.
pub fn create_timer_of_bound(thread: &'static Thread, frame: &Frame) -> i64 {
    let is_own = thread_of_clock(Some(thread), frame.rdi as i32).is_some();
    let id = is_own.then(|| thread.guest().tid.load(Ordering::Relaxed));
    timers::create_by(frame, id, |mut call| {
        if is_own {
            call[1] = libc::CLOCK_THREAD_CPUTIME_ID as u64;
        }
        of_bound::call(call)
    })
}
