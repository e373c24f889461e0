//! The calls about a thread's mask: rt_sigprocmask(2).

use core::sync::atomic::Ordering;

use upcall_linux::{Activation, Runtime, Thread, base, preempt};

use crate::ground::access;
use crate::ground::entry::Frame;
use crate::ground::mask::{UNBLOCKABLE, bit, set_kernel_mask};
use crate::ground::state::GUEST;
use crate::signal::everywhere::SETXID;
use crate::signal::{alone, blocked_by, dispatch, masks, pending};

/// rt_sigprocmask(2). `by_libc`: the call stands in one of libc's functions.
pub fn sigprocmask(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    by_libc: bool,
) -> i64 {
    if pending::has_some(thread) {
        take_accepted(runtime, thread);
        if GUEST.runtime().is_none() {
            // A handler has made this the child of a fork.
            return if dispatch::is_on() {
                alone::sigprocmask(frame)
            } else {
                // SAFETY: the program's own call, as it made it.
                (unsafe { frame.raw() }) as i64
            };
        }
    }
    let before = thread.kernel.mask.load(Ordering::Relaxed);
    match next_mask(frame, before) {
        Err(error) => error,
        Ok(mask) => {
            if mask != before && !(by_libc && change_lazily(thread, mask)) {
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
    let set = set & !UNBLOCKABLE;
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

/// What a mask blocks by which libc protects a few instructions of its own, but for SIGSETXID, which only some of them do. By
/// libc's interface no program can ask for that: SIGCANCEL is among them.
const OF_LIBC: u64 = !(UNBLOCKABLE | bit(SETXID));

/// Notes the mask without a system call, if it is the one of libc, or follows on that and its activation has it. Returns
/// true if it did. See docs/adr/0044.
fn change_lazily(thread: &'static Thread, mask: u64) -> bool {
    let state = &thread.kernel;
    if mask & OF_LIBC == OF_LIBC {
        // In this order: a signal finds a mask that it need not heed, or one that is lazy.
        state.has_lazy_mask.store(true, Ordering::Relaxed);
        state.mask.store(mask, Ordering::SeqCst);
        return !pending::has_some(thread);
    }
    if !state.has_lazy_mask.load(Ordering::Relaxed) {
        return false;
    }
    state.mask.store(mask, Ordering::SeqCst);
    state.has_lazy_mask.store(false, Ordering::Relaxed);
    // The last question after that: whoever installs the thread from now on sets its mask.
    masks::are_open(mask) && pending::for_thread(thread) & !mask == 0 && has_carrier(mask)
}

/// Returns true if the calling thread's activation has the mask.
fn has_carrier(mask: u64) -> bool {
    // SAFETY: on an activation. If the thread migrates meanwhile, it is one that is never freed.
    let activation = unsafe { base::current() };
    activation.kernel.mask.load(Ordering::Relaxed) == mask & !preempt::OWN
}

/// Returns the signals that the thread blocks and its activation need not.
pub fn hidden(thread: &Thread) -> u64 {
    let mask = thread.kernel.mask.load(Ordering::Relaxed);
    if thread.kernel.has_lazy_mask.load(Ordering::Relaxed) {
        mask
    } else {
        mask & preempt::OWN
    }
}

/// Gives the current thread's activation the thread's mask.
#[cold]
pub fn end_lazy_mask(runtime: &'static Runtime, thread: &'static Thread) {
    set_thread_mask(runtime, thread, thread.kernel.mask.load(Ordering::Relaxed));
}

/// Delivers the signals that have been sent to the current thread and that it accepts. Called before it may close its mask: whoever
/// has sent one has seen it sent, and perhaps nobody else accepts it.
#[cold]
pub fn take_accepted(runtime: &'static Runtime, thread: &'static Thread) {
    while GUEST.runtime().is_some() && pending::for_thread(thread) & !blocked_by(thread) != 0 {
        let inside = runtime.enter();
        inside.attend(Activation::DEFERRED);
        inside.leave();
    }
}

/// Called before the current thread, if there is a runtime, makes a process or a kernel thread, which inherits its mask.
pub fn pass_mask_on(thread: Option<&'static Thread>) {
    if let (Some(runtime), Some(thread)) = (GUEST.runtime(), thread) {
        end_lazy_mask(runtime, thread);
    }
}

/// Changes the current thread's mask. Signals that it unblocks are delivered before this returns.
pub fn set_thread_mask(runtime: &'static Runtime, thread: &'static Thread, mask: u64) {
    if GUEST.runtime().is_none() {
        // A handler has made this the child of a fork.
        thread.kernel.mask.store(mask, Ordering::SeqCst);
        set_kernel_mask(dispatch::blockable(mask));
        return;
    }
    let inside = runtime.enter();
    thread.kernel.mask.store(mask, Ordering::SeqCst);
    thread.kernel.has_lazy_mask.store(false, Ordering::Relaxed);
    runtime.kernel().set_mask(&inside, mask);
    // After its own: what was pending for the process is this thread's.
    masks::opens(mask);
    if pending::for_thread(thread) & !mask != 0 {
        inside.attend(Activation::DEFERRED);
    }
    pending::pass_shared(&inside, thread, mask);
    inside.leave();
}
