//! System calls without libc: one instruction each. Errors are negative numbers.
//!
//! rustix and libc would do, but both end in code that the guest may have rewritten. Both also use the thread-local
//! `errno` or libc's own state, which an activation does not have.

pub use libc::{
    SYS_clock_gettime, SYS_close, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_eventfd2,
    SYS_exit, SYS_exit_group, SYS_fcntl, SYS_futex, SYS_getpid, SYS_gettid, SYS_madvise,
    SYS_membarrier, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_openat, SYS_perf_event_open,
    SYS_pread64, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_tgsigqueueinfo,
    SYS_sched_setaffinity, SYS_sched_yield, SYS_tgkill, SYS_timer_create, SYS_timer_settime,
    SYS_timerfd_create, SYS_timerfd_settime, SYS_write,
};

/// sched_getaffinity(2).
pub(crate) const SYS_SCHED_GETAFFINITY: i64 = libc::SYS_sched_getaffinity;

/// What the kernel returned: negative numbers from -4095 on are errors.
pub type Answer = isize;

/// Makes a system call with the words given, the rest zero: `sys!(SYS_close, fd)`.
#[macro_export]
macro_rules! sys {
    ($number:expr $(, $word:expr)* $(,)?) => {{
        let given: &[usize] = &[$($word as usize),*];
        let mut words = [0usize; 6];
        let mut at = 0;
        while at < given.len() {
            words[at] = given[at];
            at += 1;
        }
        $crate::sys::own($number, words)
    }};
}

// After the macro, which they use.
pub mod arch;
pub mod clone;
pub mod descriptors;
#[cfg(feature = "inject")]
pub mod inject;
pub mod limits;
pub mod live;
pub mod memory;
pub(crate) mod procfs;
pub(crate) mod vdso;

/// Nanoseconds of a clock (`CLOCK_MONOTONIC`, `CLOCK_REALTIME`), without libc.
pub fn clock(id: i32) -> u64 {
    vdso::clock_ns(id)
}

/// Returns true if there is a filter (seccomp(2)): it may end the process for a call that this does not make otherwise. To ask
/// that is no such call, since the runtime uses prctl(2) anyhow.
pub fn is_filtered() -> bool {
    // SAFETY: asks only.
    (unsafe { sys!(libc::SYS_prctl, libc::PR_GET_SECCOMP) }) != 0
}

/// From here on every clock is read by a system call: for a process with a kernel thread in which reading the time stamp
/// counter is a fault (`PR_SET_TSC`), as the vDSO does.
pub fn read_clocks_by_call() {
    vdso::forget();
}

/// A system call of the runtime's own: what [`sys!`] expands to.
///
/// # Safety
///
/// As [`crate::sys::arch::call`].
#[inline(always)]
#[cfg_attr(feature = "inject", track_caller)]
pub unsafe fn own(number: i64, words: [usize; 6]) -> Answer {
    #[cfg(feature = "inject")]
    if let Some(answer) = crate::sys::inject::answer(number, &words) {
        return answer;
    }
    // SAFETY: the caller's conditions.
    unsafe { crate::sys::arch::call(number, words) }
}

/// The error in an answer, as positive number.
pub fn error(answer: Answer) -> Option<i32> {
    (-4095..0).contains(&answer).then_some(-answer as i32)
}

/// Writes to standard error as far as the kernel takes it.
pub fn say(text: &[u8]) {
    say_to(libc::STDERR_FILENO, text);
}

/// Writes to a descriptor as far as the kernel takes it.
pub fn say_to(descriptor: i32, text: &[u8]) {
    // SAFETY: reads `text` only.
    unsafe { sys!(SYS_write, descriptor, text.as_ptr(), text.len()) };
}

/// The processor on which the caller runs, at some moment, if the kernel tells.
pub(crate) fn this_processor() -> Option<u32> {
    let mut processor = 0u32;
    // SAFETY: writes the number.
    let answer = unsafe { sys!(libc::SYS_getcpu, &raw mut processor, 0, 0) };
    (answer == 0).then_some(processor)
}

/// sched_yield(2).
pub(crate) fn yield_processor() {
    // SAFETY: takes nothing, and touches no memory.
    unsafe { sys!(SYS_sched_yield) };
}

/// Sets the signal mask of the calling kernel thread. Returns what it was.
#[inline]
#[cfg_attr(feature = "inject", track_caller)]
pub(crate) fn set_signal_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: reads and writes eight bytes.
    unsafe {
        sys!(
            SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut before,
            8
        )
    };
    before
}

/// Processor time of a kernel thread of this process, nanoseconds; 0 when it is gone.
pub(crate) fn processor_time(tid: i32) -> u64 {
    // clock_getcpuclockid(3): the complement of the id, "of one kernel thread", "scheduled time".
    let clock = (!tid << 3) | 4 | 2;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the structure.
    unsafe { sys!(SYS_clock_gettime, clock, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_the_caller_grows() {
        // SAFETY: asks only.
        let tid = unsafe { libc::gettid() };
        let before = processor_time(tid);
        let mut noise = 1u64;
        for _ in 0..1_000_000 {
            noise = std::hint::black_box(noise.wrapping_mul(3));
        }
        assert!(processor_time(tid) > before);
        assert_eq!(processor_time(i32::MAX - 1), 0);
    }
}
