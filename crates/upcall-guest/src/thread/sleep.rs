//! Sleeping until a deadline.

use core::sync::atomic::Ordering;

use upcall_core::Waited;
use upcall_core::{Machine, WakeReason};
use upcall_linux::{Runtime, Thread, base};

use crate::ground::access;
use crate::ground::entry::{Frame, NEVER, program_call};
use crate::signal::seen::{self, UNSEEN};
use crate::thread::deadlines;

const NS: u64 = 1_000_000_000;
const TIMER_ABSTIME: u64 = 1;
const EINTR: i64 = -(libc::EINTR as i64);

/// Sleeps until the deadline. If a handler ran, the time that is left is written to `rest`, unless that is 0.
pub fn sleep(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    deadline: u64,
    rest: usize,
) -> i64 {
    deadlines::will_wake(runtime, thread, deadline);
    let answer = loop {
        // A hint: the thread may be on another activation next.
        // SAFETY: on an activation.
        let blocks = unsafe { base::current() }.prefers_blocking();
        // One that is over gives way, without the kernel.
        let answer = if blocks && deadline > runtime.kernel().now() {
            block(runtime, frame, deadline)
        } else {
            park(runtime, deadline)
        };
        // An end that no handler of the program's explains was the runtime's doing.
        if answer != EINTR || thread.kernel.seen.load(Ordering::Relaxed) != UNSEEN {
            break answer;
        }
    };
    if answer == EINTR && rest != 0 {
        let left = deadline.saturating_sub(runtime.kernel().now());
        let stored = store(rest, [left / NS, left % NS]);
        if stored != 0 {
            return stored;
        }
    }
    answer
}

fn park(runtime: &'static Runtime, deadline: u64) -> i64 {
    let inside = runtime.enter();
    let (inside, waited) = inside.sleep_until(deadline);
    seen::note_waited(&inside, &waited);
    inside.leave();
    match waited {
        Waited::Ended(WakeReason::Interrupted) => EINTR,
        _ => 0,
    }
}

/// Sleeps in the kernel, which wakes the activation where it is.
fn block(runtime: &'static Runtime, frame: &Frame, deadline: u64) -> i64 {
    let time = [deadline / NS, deadline % NS];
    let words = [
        libc::SYS_clock_nanosleep as u64,
        libc::CLOCK_MONOTONIC as u64,
        TIMER_ABSTIME,
        time.as_ptr() as u64,
        0,
        0,
        0,
    ];
    // SAFETY: reads two words.
    runtime.blocking(|| unsafe { program_call(&words, &frame.made, &NEVER) }) as i64
}

pub fn store(address: usize, words: [u64; 2]) -> i64 {
    for (index, word) in words.into_iter().enumerate() {
        if access::store_u64(address + 8 * index, word).is_err() {
            return -i64::from(libc::EFAULT);
        }
    }
    0
}
