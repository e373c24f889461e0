//! Calls that wait for signals, or with a signal mask of their own. A signal for the thread alone, of which the kernel
//! knows nothing, ends them.
//!
//! No mask that reaches the kernel blocks a signal of the runtime's own, and no set takes one away ([`preempt::OWN`]): a
//! thread in such a call must hear of signals for it alone, and of the runtime. The program's signals among these that it
//! blocks by such a mask wait here ([`blocked_by`]).

use core::sync::atomic::Ordering;

use upcall_linux::{Runtime, Thread, preempt};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, program_call};
use crate::ground::{access, mask};
use crate::signal::seen::UNSEEN;
use crate::signal::{pending, settled};

use super::{answer_wait, set_thread_mask};

const EINTR: i64 = -(libc::EINTR as i64);
const EFAULT: i64 = -(libc::EFAULT as i64);

/// Returns the signals that the thread blocks now, by its own mask or by that of the call in which it waits.
pub fn blocked_by(thread: &Thread) -> u64 {
    // SeqCst: pairs with `wait_for_signals`. A thread that meets it half-way finds everything blocked, and this thread
    // looks for what was left to it then.
    if thread.guest().suspended.load(Ordering::SeqCst) {
        !thread.guest().waited_for.load(Ordering::SeqCst)
    } else {
        thread.kernel.mask.load(Ordering::SeqCst)
    }
}

/// Makes a call that waits, in the kernel, for the signals in `set`. It gives up when one comes for the thread alone. With
/// `suspended` the call lets them through while it waits. The thread waits for them until [`end_wait`].
fn wait_for_signals(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    words: &[u64; 7],
    (set, suspended): (u64, bool),
) -> i64 {
    let state = thread.guest();
    state.forbidden.store(0, Ordering::Relaxed);
    state.suspended.store(suspended, Ordering::SeqCst);
    state.waited_for.store(set, Ordering::SeqCst);
    if pending::are_waited_for(thread) {
        state.forbidden.store(1, Ordering::Relaxed);
    }
    // SAFETY: the program's own call, with a set of ours.
    let make = || unsafe { program_call(words, &frame.made, &state.forbidden) };
    runtime.blocking(make) as i64
}

/// The thread waits for no signals any more. What a call's mask has held back comes now. Signals for the process that were
/// given to the thread for its wait, and have come too late, go to others.
pub fn end_wait(runtime: &'static Runtime, thread: &'static Thread) {
    let state = thread.guest();
    state.waited_for.store(0, Ordering::SeqCst);
    state.suspended.store(false, Ordering::SeqCst);
    let own = thread.kernel.mask.load(Ordering::Relaxed);
    if pending::has_some(thread) {
        let inside = runtime.enter();
        pending::pass_shared(&inside, thread, own);
        inside.leave();
    }
    if pending::for_thread(thread) & !own != 0 {
        set_thread_mask(runtime, thread, own);
    }
}

/// Calls a handler of the program's. It has ended the wait of the call that it meets, if that has begun: the thread has
/// the handler's mask, also if the handler never returns. A call that has not begun finds all as it was.
pub(super) fn interrupting(thread: &'static Thread, handler: impl FnOnce()) {
    let state = thread.guest();
    let suspended = state.suspended.load(Ordering::Relaxed);
    let waited_for = state.waited_for.load(Ordering::Relaxed);
    if !suspended && waited_for == 0 {
        return handler();
    }
    // In this order: who meets it half-way finds the handler's mask.
    state.suspended.store(false, Ordering::SeqCst);
    state.waited_for.store(0, Ordering::SeqCst);
    handler();
    state.suspended.store(suspended, Ordering::SeqCst);
    state.waited_for.store(waited_for, Ordering::SeqCst);
}

/// The words of a call with a mask, and the mask, as the kernel gets them.
struct Masked {
    words: [u64; 7],
    /// The mask, and for some calls what leads to it.
    memory: [u64; 4],
}

impl Masked {
    // Written in place: the words lead to the memory.
    fn fill(&mut self, frame: &Frame, mask: u64) -> Result<(), access::Fault> {
        self.words = frame.words();
        self.memory[0] = mask & !preempt::OWN;
        let at = |index: usize| (&raw const self.memory[index]) as u64;
        let (mask, behind) = (at(0), at(1));
        match frame.rax as i64 {
            libc::SYS_rt_sigsuspend => self.words[1] = mask,
            libc::SYS_ppoll => self.words[4] = mask,
            libc::SYS_pselect6 | IO_PGETEVENTS => {
                self.memory[2] = access::load_u64(frame.r9 as usize + 8)?;
                self.memory[1] = mask;
                self.words[6] = behind;
            }
            libc::SYS_io_uring_enter if frame.r10 & ENTER_EXT_ARG != 0 => {
                for index in 2..4 {
                    let at = frame.r8 as usize + 8 * (index - 1);
                    self.memory[index] = access::load_u64(at)?;
                }
                self.memory[1] = mask;
                self.words[5] = behind;
            }
            _ => self.words[5] = mask,
        }
        Ok(())
    }
}

/// Serves a call that sets the mask at `at` while it waits: rt_sigsuspend(2), ppoll(2) and others. Signals that came for
/// the thread alone are delivered by hand. If the call is to be made again, its mask stays until [`end_wait`].
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
pub fn with_mask(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    at: usize,
) -> i64 {
    let mut call = Masked {
        words: [0; 7],
        memory: [0; 4],
    };
    let mask = match access::load_u64(at) {
        Ok(mask) => mask & !mask::UNBLOCKABLE,
        Err(access::Fault) => return EFAULT,
    };
    if call.fill(frame, mask).is_err() {
        return EFAULT;
    }
    let state = &thread.kernel;
    let answer = loop {
        let before = state.mask.load(Ordering::Relaxed);
        if pending::for_thread(thread) & !mask != 0 {
            // Delivers it.
            set_thread_mask(runtime, thread, mask);
            set_thread_mask(runtime, thread, before);
            if state.seen.load(Ordering::Relaxed) != UNSEEN {
                break EINTR;
            }
        }
        let answer = wait_for_signals(runtime, thread, frame, &call.words, (!mask, true));
        if answer != EINTR || state.seen.load(Ordering::Relaxed) != UNSEEN {
            break answer;
        }
        if pending::for_thread(thread) & !mask == 0 {
            // It is made again.
            return EINTR;
        }
    };
    core::hint::black_box(&mut call);
    end_wait(runtime, thread);
    answer
}

/// The number of io_pgetevents(2).
pub const IO_PGETEVENTS: i64 = 333;

/// io_pgetevents(2), which may come with a mask.
pub fn get_events(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let place = match frame.r9 {
        0 => Ok(0),
        at => access::load_u64(at as usize),
    };
    match place {
        Ok(at) => maybe_with_mask(runtime, thread, frame, at),
        Err(access::Fault) => EFAULT,
    }
}

/// A flag of io_uring_enter(2): it waits for completions.
pub const ENTER_GETEVENTS: u64 = 1;
/// The fifth word leads to the place and the size of the mask, and to a time.
const ENTER_EXT_ARG: u64 = 8;
/// Beside it: the argument is no address but the place in a region that the ring knows.
const ENTER_EXT_ARG_REG: u64 = 64;

/// io_uring_enter(2), which may come with a mask.
pub fn enter_ring(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    /// Of a mask, and of struct io_uring_getevents_arg; with another one the kernel refuses the call.
    const SIZES: [u64; 2] = [8, 24];
    let (at, size, flags) = (frame.r8, frame.r9, frame.r10);
    let has = |some: u64| flags & some != 0;
    let place = match has(ENTER_EXT_ARG) {
        // Where the kernel finds the time and the mask in memory that the ring knows, they are its own.
        _ if at == 0 || !has(ENTER_GETEVENTS) || has(ENTER_EXT_ARG_REG) => Ok(0),
        extended if size != SIZES[usize::from(extended)] => Ok(0),
        true => match access::load_u32(at as usize + 8) {
            Ok(size) if u64::from(size) != SIZES[0] => Ok(0),
            _ => access::load_u64(at as usize),
        },
        false => Ok(at),
    };
    match place {
        Ok(at) => maybe_with_mask(runtime, thread, frame, at),
        Err(access::Fault) => EFAULT,
    }
}

/// Serves ppoll(2) and others if they come with a mask, whose address is `at`, 0 for none.
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

/// rt_sigtimedwait(2): looks for the thread's signals first, then waits in the kernel.
pub fn sigtimedwait(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    if frame.r10 != 8 {
        return -i64::from(libc::EINVAL);
    }
    let time = match frame.rdx as usize {
        0 => None,
        at => match access::nanoseconds(at) {
            Ok(time) => Some(time),
            Err(number) => return -i64::from(number),
        },
    };
    let Ok(set) = access::load_u64(frame.rdi as usize) else {
        return -i64::from(libc::EFAULT);
    };
    let set = set & !mask::UNBLOCKABLE;
    let inside = runtime.enter();
    if time == Some(0) {
        // It does not wait for what an activation is about to give back to the kernel.
        settled::settle(&inside, set);
    }
    let found = pending::dequeue(runtime, thread, set);
    inside.leave();
    if let Some((signal, information)) = found {
        return answer_wait(frame, signal, &information);
    }
    let from_kernel = set & !preempt::OWN;
    let mut words = frame.words();
    words[1] = (&raw const from_kernel) as u64;
    let answer = wait_for_signals(runtime, thread, frame, &words, (set, false));
    // As in the kernel, also if the time is over.
    let mut found = None;
    if answer < 0 && pending::for_thread(thread) & set != 0 {
        let inside = runtime.enter();
        found = pending::dequeue(runtime, thread, set);
        inside.leave();
    }
    end_wait(runtime, thread);
    match found {
        Some((signal, information)) => answer_wait(frame, signal, &information),
        None => answer,
    }
}

/// Returns where the mask is and how long it is; 0 for none.
pub fn mask_place(frame: &Frame) -> Option<(u64, u64)> {
    match frame.rax as i64 {
        libc::SYS_ppoll => Some((frame.r10, frame.r8)),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Some((frame.r8, frame.r9)),
        libc::SYS_pselect6 if frame.r9 != 0 => {
            let word = |at: usize| access::load_u64(frame.r9 as usize + at).ok();
            Some((word(0)?, word(8)?))
        }
        _ => Some((0, 8)),
    }
}
