//! What helpers do with the state that the runtime keeps: signal actions, what the poller knows of descriptors, and threads
//! that they signal, name or ask about. A helper has no activation, so nothing here enters the runtime. While a helper
//! holds a lock of the poller's its signals are blocked, because a handler might want the same lock.

use core::sync::atomic::Ordering;

use upcall_linux::poller::When;
use upcall_linux::{Runtime, descriptors};

use crate::call::of_bound::raw;
use crate::call::table::FIONBIO;
use crate::call::{attributes, poll};
use crate::ground::entry::Frame;
use crate::ground::state::GUEST;
use crate::ground::{mask, record};
use crate::thread::{affinity, bound, deadlines, names, scheduling};

const EBADF: i64 = -(libc::EBADF as i64);

/// close(2).
pub fn close(runtime: &'static Runtime, frame: &mut Frame) -> Option<i64> {
    if descriptors::is_ours(frame.rdi as i32) {
        return Some(EBADF);
    }
    let closed = frame.rdi as u32;
    Some(forgetting(runtime, closed..=closed, || raw(frame)))
}

/// dup2(2), dup3(2).
pub fn duplicate(runtime: &'static Runtime, frame: &mut Frame) -> Option<i64> {
    let (first, second) = (frame.rdi as i32, frame.rsi as i32);
    if descriptors::is_ours(first) || descriptors::is_ours(second) {
        return Some(EBADF);
    }
    if frame.rax as i64 == libc::SYS_dup2 && first == second {
        return Some(raw(frame));
    }
    let closed = frame.rsi as u32;
    let call = || descriptors::place(|| raw(frame));
    Some(forgetting(runtime, closed..=closed, call))
}

/// close_range(2).
pub fn close_range(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let call = || attributes::close_ranges(frame);
    if attributes::is_closing(frame) {
        forgetting(runtime, frame.rdi as u32..=frame.rsi as u32, call)
    } else {
        call()
    }
}

/// Serves a call about the scheduling of a thread: its processors, and what the kernel keeps of a bound thread. A helper
/// can ask for the policy and nice value of an ordinary thread. It cannot change them, because that takes an activation.
pub fn about_thread(runtime: &'static Runtime, frame: &mut Frame) -> Option<i64> {
    let id = scheduling::named(frame)?;
    let thread = GUEST.identities.find(id)?;
    if frame.rax as i64 == libc::SYS_sched_setaffinity {
        return Some(affinity::set_affinity((thread, id), frame, |call| {
            bound::change_from_outside(runtime, (thread, id), &[call])
        }));
    }
    if let Some(kernel_id) = record::kernel_id(thread) {
        return Some(scheduling::of_bound(frame, kernel_id));
    }
    match frame.rax as i64 {
        libc::SYS_sched_getaffinity => Some(affinity::get_affinity(thread, frame)),
        libc::SYS_sched_getscheduler
        | libc::SYS_sched_getparam
        | libc::SYS_sched_getattr
        | libc::SYS_getpriority
            if !deadlines::order() =>
        {
            Some(if GUEST.orders_by_priority() {
                scheduling::by_priority(runtime, (thread, id), frame)
            } else {
                // Answered as for the process.
                let process = GUEST.pid.load(Ordering::Relaxed) as i32;
                raw(&scheduling::about(frame, process))
            })
        }
        _ => None,
    }
}

/// Serves a call of an outside kernel thread that may change a description's flags or time limits; else `None`.
pub fn change_flags(runtime: &'static Runtime, frame: &mut Frame) -> Option<i64> {
    let may_change = match frame.rax as i64 {
        libc::SYS_fcntl => frame.rsi as i32 == libc::F_SETFL,
        libc::SYS_ioctl => frame.rsi == FIONBIO,
        libc::SYS_setsockopt => true,
        _ => false,
    };
    may_change.then_some(())?;
    let answer = raw(frame);
    runtime.kernel().poller().flags_change();
    if frame.rax as i64 == libc::SYS_setsockopt {
        poll::note_option(frame);
    }
    Some(answer)
}

/// Makes a call that closes these descriptors. The call may wait.
fn forgetting(
    runtime: &'static Runtime,
    closed: core::ops::RangeInclusive<u32>,
    call: impl FnOnce() -> i64,
) -> i64 {
    let forget = |when: When| {
        let before = mask::change_kernel_mask(mask::ALL);
        let poller = runtime.kernel().poller();
        poller.forget_range(runtime, *closed.start(), *closed.end(), when);
        mask::set_kernel_mask(before);
    };
    names::closes(runtime, *closed.start(), *closed.end());
    forget(When::Before);
    let answer = call();
    forget(When::After);
    answer
}
