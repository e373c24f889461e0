//! System calls without libc: one instruction each, errors as negative numbers.
//!
//! rustix and libc would do, but both end in code that the guest may have rewritten, and both
//! use the thread-local `errno` or libc's own state, which an activation does not have.

use core::arch::asm;

pub use libc::{
    SYS_arch_prctl, SYS_clock_gettime, SYS_close, SYS_epoll_create1, SYS_epoll_ctl,
    SYS_epoll_pwait, SYS_eventfd2, SYS_exit, SYS_exit_group, SYS_fcntl, SYS_futex, SYS_getpid,
    SYS_gettid, SYS_madvise, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_openat, SYS_perf_event_open,
    SYS_pread64, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_tgsigqueueinfo,
    SYS_sched_setaffinity, SYS_sched_yield, SYS_sigaltstack, SYS_tgkill, SYS_timer_create,
    SYS_timer_settime, SYS_timerfd_create, SYS_timerfd_settime, SYS_write,
};

/// sched_getaffinity(2).
pub const SYS_SCHED_GETAFFINITY: i64 = libc::SYS_sched_getaffinity;

/// What the kernel returned: negative numbers from -4095 on are errors.
pub type Answer = isize;

/// A system call with up to six words.
///
/// # Safety
///
/// That of the call itself: pointers are valid for what the kernel does with them, and memory,
/// descriptors and signal state of others are not touched.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn call(number: i64, words: [usize; 6]) -> Answer {
    let answer: isize;
    // SAFETY: the caller vouches for the call; the kernel changes rax, rcx and r11 only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") words[0],
            in("rsi") words[1],
            in("rdx") words[2],
            in("r10") words[3],
            in("r8") words[4],
            in("r9") words[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// A system call with up to six words.
///
/// # Safety
///
/// That of the call itself.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn call(number: i64, words: [usize; 6]) -> Answer {
    let answer: isize;
    // SAFETY: the caller vouches for the call; the kernel changes x0 only.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") words[0] as isize => answer,
            in("x1") words[1],
            in("x2") words[2],
            in("x3") words[3],
            in("x4") words[4],
            in("x5") words[5],
            options(nostack),
        );
    }
    answer
}

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
        $crate::sys::call($number, words)
    }};
}

/// The error in an answer, as positive number.
pub fn error(answer: Answer) -> Option<i32> {
    (-4095..0).contains(&answer).then_some(-answer as i32)
}

/// Writes to standard error as far as the kernel takes it.
pub fn say(text: &[u8]) {
    // SAFETY: reads `text` only.
    unsafe { sys!(SYS_write, 2, text.as_ptr(), text.len()) };
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
