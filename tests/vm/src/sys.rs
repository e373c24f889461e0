//! The few system calls that the programs need, by name, with `errno` as the error.

use std::io;
use std::sync::atomic::AtomicU32;

/// `Err` with `errno` if a system call returned a negative value.
pub fn check(result: i64) -> io::Result<i64> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Restricts the calling thread to one processor.
pub fn pin(cpu: usize) -> io::Result<()> {
    restrict(&[cpu])
}

/// Restricts the calling thread to these processors.
pub fn restrict(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: each number is bounds-checked by CPU_SET, and the set outlives the call.
    let result = unsafe {
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    check(result.into()).map(drop)
}

/// Gives the calling thread a scheduling policy with static priority 0.
pub fn set_policy(policy: i32) -> io::Result<()> {
    // SAFETY: an all-zero sched_param is priority 0.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the parameter outlives the call.
    check(unsafe { libc::sched_setscheduler(0, policy, &param) }.into()).map(drop)
}

/// Gives the calling thread a nice value.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }.into()).map(drop)
}

/// The calling thread's kernel id.
pub fn tid() -> i32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// Reads a clock, in nanoseconds.
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `at` outlives the call.
    unsafe { libc::clock_gettime(clock, &mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Monotonic time, in nanoseconds.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time that kernel thread `tid` of process `pid` has used, in nanoseconds; none if it
/// has ended. It comes from `/proc`, so that no runtime under test can change it.
pub fn task_cpu_ns(pid: i32, tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// The kernel threads of a process.
pub fn tasks(pid: i32) -> Vec<i32> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Blocks for `ns` nanoseconds in `nanosleep`.
pub fn sleep_ns(ns: u64) {
    let span = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    // SAFETY: `span` outlives the call; no remainder is asked for.
    unsafe { libc::nanosleep(&span, std::ptr::null_mut()) };
}

/// Waits while `*word == value`, for at most `timeout_ns` if given.
pub fn futex_wait(word: &AtomicU32, value: u32, timeout_ns: Option<u64>) {
    let span = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    let span = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the timeout outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, span) };
}

/// Wakes one waiter of `word`.
pub fn futex_wake(word: &AtomicU32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, 1) };
}
