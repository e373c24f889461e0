//! wait4(2) and waitid(2).
//!
//! The kernel sends SIGCHLD before a wait can find the child, so a handler of the thread that waits runs before its call returns. Here the
//! signal may have come to another activation, which is about to pass it on: the thread waits for that. Programs rely on it: the
//! handler waits for a child itself, and would find the next one, which has not ended. One of whose end a handler was told is not waited
//! for: a program that learns so that it may wait pays nothing.

use upcall_linux::{Runtime, Thread};

use crate::call::of_bound;
use crate::ground::access;
use crate::ground::entry::Frame;
use crate::ground::mask::bit;
use crate::signal::{Disposition, children, disposition, receivers, settled};

/// The call of a thread on an activation.
pub fn of_thread(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let answer = runtime.blocking(|| match for_one(frame) {
        Some(words) => of_bound::program_call(words, frame),
        None => of_bound::raw(frame),
    });
    let found = match frame.rax as i64 {
        libc::SYS_wait4 => (answer > 0).then_some(answer as i32),
        _ if answer == 0 => child_in(frame.rdx as usize),
        _ => None,
    };
    let is_told = disposition(libc::SIGCHLD) == Disposition::Handled
        && receivers::accepts(thread, libc::SIGCHLD);
    if is_told && found.is_some_and(|child| !children::was_told(child)) {
        settled::meeting_handler(runtime, thread, bit(libc::SIGCHLD), || {});
    }
    answer
}

/// Returns the child that waitid(2) has found, or 0 where the program does not want to know.
fn child_in(information: usize) -> Option<i32> {
    /// Of `si_pid` in a siginfo_t, which is 0 if there was no child.
    const PID: usize = 16;
    if information == 0 {
        return Some(0);
    }
    let child = access::load_u32(information.wrapping_add(PID)).ok()? as i32;
    (child != 0).then_some(child)
}

/// The call of a bound thread, if it is another than the program's.
pub fn of_bound(frame: &Frame) -> Option<i64> {
    Some(of_bound::program_call(for_one(frame)?, frame))
}

/// Returns the call without `__WNOTHREAD`, for one that waits for one named child of the calling thread alone: to the kernel the child
/// belongs to the activation that has made it. Returns `None` for other calls.
fn for_one(frame: &Frame) -> Option<[u64; 7]> {
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
