//! Calls that are made again.
//!
//! If a call ended in EINTR and no handler of the program ran, the runtime has interrupted it: the call is made again. If
//! handlers with SA_RESTART ran, it is made again where the kernel would have done so (signal(7)). Its timeout shrinks by
//! the time that has passed.

use core::sync::atomic::Ordering;

use upcall_linux::{Runtime, Thread};

use crate::call::futex_calls;
use crate::ground::access;
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::Frame;
use crate::signal;
use crate::signal::seen::{SEEN_RESTART, UNSEEN};

const EINTR: i64 = -(libc::EINTR as i64);

/// Makes one call by `once`, and repeats it as signal(7) demands.
pub fn call(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &mut Frame,
    once: impl Fn(&mut Frame) -> i64,
) -> i64 {
    let timeout = Timeout::of(frame);
    // Its own signal mask, if it has one, has stayed.
    let end = || signal::end_wait(runtime, thread);
    repeat(thread, frame, timeout, once, end)
}

/// As [`call`], for a bound thread's call, which waits in the kernel. The kernel has restarted it where it must, except
/// after the runtime's own signal: the kernel does not know what the program wants then.
pub fn call_in_kernel(
    thread: &'static Thread,
    frame: &mut Frame,
    once: impl Fn(&mut Frame) -> i64,
) -> i64 {
    let timeout = Timeout::in_kernel(frame);
    repeat(thread, frame, timeout, once, || ())
}

/// `end` is called if it was made again.
#[inline(always)]
fn repeat(
    thread: &'static Thread,
    frame: &mut Frame,
    mut timeout: Timeout,
    once: impl Fn(&mut Frame) -> i64,
    end: impl FnOnce(),
) -> i64 {
    let state = &thread.kernel;
    // Only the thread and its own handlers write these, so no locked instruction is needed.
    thread
        .guest()
        .frame
        .store(core::ptr::from_ref(frame) as usize, Ordering::Relaxed);
    let before = state.seen.load(Ordering::Relaxed);
    state.seen.store(UNSEEN, Ordering::Relaxed);
    let mut is_made_again = false;
    let answer = loop {
        let answer = once(frame);
        if answer != EINTR {
            break answer;
        }
        match state.seen.swap(UNSEEN, Ordering::Relaxed) {
            UNSEEN => {}
            SEEN_RESTART if restarts(frame) => {}
            _ => break answer,
        }
        is_made_again = true;
        timeout.adjust(frame);
    };
    if is_made_again {
        end();
    }
    thread.guest().frame.store(0, Ordering::Relaxed);
    timeout.restore(frame);
    if before != UNSEEN {
        state.seen.fetch_max(before, Ordering::Relaxed);
    }
    answer
}

/// Returns true if the kernel restarts the call after a handler with SA_RESTART (signal(7)). It restarts a wait for a
/// futex only if that has no time limit.
fn restarts(frame: &Frame) -> bool {
    let number = frame.rax as i64;
    if number == libc::SYS_futex && futex_calls::is_wait(frame) && frame.r10 != 0 {
        return false;
    }
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
            | signal::IO_PGETEVENTS
            | libc::SYS_io_uring_enter
    )
}

/// A relative timeout, which must shrink when a call is made again. The kernel updates those of select(2), pselect(2) and
/// ppoll(2).
enum Timeout {
    None,
    /// In a register.
    Milliseconds {
        word: u64,
        began: u64,
    },
    /// Behind a register.
    Timespec {
        word: u64,
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
            libc::SYS_io_getevents | signal::IO_PGETEVENTS => Some(&mut frame.r8),
            libc::SYS_nanosleep => Some(&mut frame.rdi),
            libc::SYS_clock_nanosleep => Some(&mut frame.rdx),
            libc::SYS_futex => Some(&mut frame.r10),
            _ => None,
        }
    }

    /// Returns the timeout of a call that waits in the runtime, unless the call keeps the time itself.
    #[inline]
    fn of(frame: &mut Frame) -> Self {
        match frame.rax as i64 {
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_futex => Timeout::None,
            _ => Self::in_kernel(frame),
        }
    }

    /// Returns the timeout of a call that waits in the kernel.
    #[inline]
    fn in_kernel(frame: &mut Frame) -> Self {
        let is_a_time = match frame.rax as i64 {
            libc::SYS_clock_nanosleep => frame.rsi & libc::TIMER_ABSTIME as u64 != 0,
            libc::SYS_futex => !futex_calls::waits_for_a_while(frame),
            _ => false,
        };
        if is_a_time {
            return Timeout::None;
        }
        let behind = !matches!(
            frame.rax as i64,
            libc::SYS_poll | libc::SYS_epoll_wait | libc::SYS_epoll_pwait
        );
        let Some(word) = Self::register(frame).map(|register| *register) else {
            return Timeout::None;
        };
        let now = || upcall_linux::clock(libc::CLOCK_MONOTONIC);
        if behind {
            if word == 0 {
                return Timeout::None;
            }
            match access::nanoseconds(word as usize) {
                Ok(left) if left != 0 => Timeout::Timespec {
                    word,
                    rest: [0; 2],
                    left,
                    began: now(),
                },
                _ => Timeout::None,
            }
        } else {
            match word as i32 {
                ..=0 => Timeout::None,
                _ => Timeout::Milliseconds { word, began: now() },
            }
        }
    }

    fn adjust(&mut self, frame: &mut Frame) {
        const MILLION: u64 = 1_000_000;
        let now = upcall_linux::clock(libc::CLOCK_MONOTONIC);
        let word = match self {
            Timeout::None => return,
            Timeout::Milliseconds { word, began } => {
                u64::from(*word as u32).saturating_sub((now - *began) / MILLION)
            }
            Timeout::Timespec {
                rest, left, began, ..
            } => {
                let left = left.saturating_sub(now - *began);
                *rest = [left / (1000 * MILLION), left % (1000 * MILLION)];
                rest.as_ptr() as u64
            }
        };
        if let Some(register) = Self::register(frame) {
            *register = word;
        }
    }

    /// Restores the register as the program passed it, as after any call.
    #[inline]
    fn restore(&self, frame: &mut Frame) {
        let word = match *self {
            Timeout::None => return,
            Timeout::Milliseconds { word, .. } | Timeout::Timespec { word, .. } => word,
        };
        if let Some(register) = Self::register(frame) {
            *register = word;
        }
    }
}
