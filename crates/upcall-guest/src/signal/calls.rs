//! The calls about a thread's mask: rt_sigprocmask(2).

use core::sync::atomic::Ordering;

use upcall_linux::{Activation, Runtime, Thread};

use crate::ground::access;
use crate::ground::entry::Frame;
use crate::ground::mask::{bit, set_kernel_mask};
use crate::signal::{dispatch, masks, pending};

/// rt_sigprocmask(2).
pub fn sigprocmask(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let before = thread.kernel.mask.load(Ordering::Relaxed);
    match next_mask(frame, before) {
        Err(error) => error,
        Ok(mask) => {
            if mask != before {
                set_thread_mask(runtime, thread, mask);
            }
            answer_mask(frame, before)
        }
    }
}

/// rt_sigprocmask(2) of a bound thread.
pub fn sigprocmask_of_bound(thread: &'static Thread, frame: &Frame) -> i64 {
    let before = thread.kernel.mask.load(Ordering::Relaxed);
    match next_mask(frame, before) {
        Err(error) => error,
        Ok(mask) => {
            thread.kernel.mask.store(mask, Ordering::SeqCst);
            set_kernel_mask(dispatch::blockable(mask));
            answer_mask(frame, before)
        }
    }
}

/// Returns the mask that rt_sigprocmask(2) asks for, where it was `before`, or the call's error.
pub fn next_mask(frame: &Frame, before: u64) -> Result<u64, i64> {
    let (how, new) = (frame.rdi as i32, frame.rsi as usize);
    if frame.r10 != 8 {
        return Err(-i64::from(libc::EINVAL));
    }
    if new == 0 {
        return Ok(before);
    }
    let set = access::load_u64(new).map_err(|_| -i64::from(libc::EFAULT))?;
    let set = set & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
    match how {
        libc::SIG_BLOCK => Ok(before | set),
        libc::SIG_UNBLOCK => Ok(before & !set),
        libc::SIG_SETMASK => Ok(set),
        _ => Err(-i64::from(libc::EINVAL)),
    }
}

/// Stores the old mask where rt_sigprocmask(2) asks for it. Returns the call's answer.
pub fn answer_mask(frame: &Frame, before: u64) -> i64 {
    let old = frame.rdx as usize;
    if old != 0 && access::store_u64(old, before).is_err() {
        return -i64::from(libc::EFAULT);
    }
    0
}

/// Stores the siginfo_t that rt_sigtimedwait(2) found. Returns the call's answer.
pub fn answer_wait(frame: &Frame, signal: i32, information: &pending::Information) -> i64 {
    frame.made.set(1);
    let to = frame.rsi as usize;
    if to != 0 {
        for (index, word) in information.iter().enumerate() {
            if access::store_u64(to + 8 * index, *word).is_err() {
                return -i64::from(libc::EFAULT);
            }
        }
    }
    i64::from(signal)
}

/// Changes the current thread's mask. Signals that it unblocks are delivered before this returns.
pub fn set_thread_mask(runtime: &'static Runtime, thread: &'static Thread, mask: u64) {
    let inside = runtime.enter();
    thread.kernel.mask.store(mask, Ordering::SeqCst);
    runtime.kernel().set_mask(&inside, mask);
    // After its own: what was pending for the process is this thread's.
    masks::opens(mask);
    if pending::for_thread(thread) & !mask != 0 {
        inside.attend(Activation::DEFERRED);
    }
    pending::pass_shared(&inside, thread, mask);
    inside.leave();
}
