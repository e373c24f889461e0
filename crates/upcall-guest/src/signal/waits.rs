//! Calls that wait for signals, or with a signal mask of their own: what comes for the thread alone
//! ends them, and the kernel knows nothing of it.

use core::sync::atomic::Ordering;

use upcall_linux::{Runtime, Thread};

use super::{answer_wait, bit, set_thread_mask};
use crate::again::UNSEEN;
use crate::entry::Frame;
use crate::{access, pending};

const EINTR: i64 = -(libc::EINTR as i64);

/// A call that waits, in the kernel, for the signals in `set`: gives up when one comes for the
/// thread alone. `suspended`: the call lets them through while it waits.
fn wait_for_signals(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    set: u64,
    suspended: bool,
) -> i64 {
    let state = &thread.kernel;
    state.forbidden.store(0, Ordering::Relaxed);
    state.suspended.store(suspended, Ordering::Relaxed);
    state.waited_for.store(set, Ordering::SeqCst);
    if pending::are_waited_for(thread) {
        state.forbidden.store(1, Ordering::Relaxed);
    }
    // SAFETY: the program's own call.
    let answer = runtime.blocking(|| unsafe { frame.raw_unless(&state.forbidden) }) as i64;
    state.waited_for.store(0, Ordering::SeqCst);
    state.suspended.store(false, Ordering::Relaxed);
    answer
}

/// A call that sets the mask at `at` while it waits: rt_sigsuspend(2), ppoll(2) and others. What
/// came for the thread alone is delivered by hand.
pub fn with_mask(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    at: usize,
) -> i64 {
    let Ok(mask) = access::load_u64(at) else {
        return -i64::from(libc::EFAULT);
    };
    let state = &thread.kernel;
    loop {
        let before = state.mask.load(Ordering::Relaxed);
        if pending::for_thread(thread) & !mask != 0 {
            // Delivers it.
            set_thread_mask(runtime, thread, mask);
            set_thread_mask(runtime, thread, before);
            if state.seen.load(Ordering::Relaxed) != UNSEEN {
                return EINTR;
            }
        }
        let answer = wait_for_signals(runtime, thread, frame, !mask, true);
        if answer != EINTR || state.seen.load(Ordering::Relaxed) != UNSEEN {
            return answer;
        }
        if pending::for_thread(thread) & !mask == 0 {
            return EINTR;
        }
    }
}

/// ppoll(2) and the like, if they come with a mask; `at` is where, 0 for none.
pub fn maybe_with_mask(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    at: u64,
) -> i64 {
    if at == 0 {
        // SAFETY: the program's own call.
        return runtime.blocking(|| unsafe { frame.raw() }) as i64;
    }
    with_mask(runtime, thread, frame, at as usize)
}

/// rt_sigtimedwait(2): signals for the thread first, then the kernel's wait.
pub fn sigtimedwait(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let Ok(set) = access::load_u64(frame.rdi as usize) else {
        return -i64::from(libc::EFAULT);
    };
    let set = set & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
    let activation = runtime.enter();
    let found = pending::dequeue(runtime, thread, set);
    runtime.leave(activation);
    let Some((signal, information)) = found else {
        return wait_for_signals(runtime, thread, frame, set, false);
    };
    answer_wait(frame, signal, &information)
}
