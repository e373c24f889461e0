//! The calls about a thread's mask and its alternate stack: rt_sigprocmask(2), sigaltstack(2).

use core::sync::atomic::Ordering;

use upcall_linux::{Activation, Runtime, Thread, preempt};

use crate::entry::{Frame, raw_syscall};
use crate::guest::GUEST;
use crate::{access, arch, masks, pending};

use super::actions::{bit, install_own_again};

/// The signal mask of the calling kernel thread, as the kernel has it.
pub fn kernel_mask() -> u64 {
    let mut mask = 0u64;
    // SAFETY: writes eight bytes.
    unsafe {
        raw_syscall(
            libc::SYS_rt_sigprocmask,
            [0, 0, (&raw mut mask) as u64, 8, 0, 0],
        )
    };
    mask
}

/// Sets the signal mask of the calling kernel thread.
pub fn set_kernel_mask(mask: u64) {
    // SAFETY: reads eight bytes.
    unsafe {
        raw_syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as u64,
                (&raw const mask) as u64,
                0,
                8,
                0,
                0,
            ],
        )
    };
}

/// The first thread keeps the alternate stack that it has set before there was a runtime.
pub fn adopt_altstack(activation: &'static Activation, thread: &'static Thread) {
    let mut stack = libc::stack_t {
        ss_sp: core::ptr::null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    // SAFETY: writes the structure.
    unsafe {
        raw_syscall(
            libc::SYS_sigaltstack,
            [0, (&raw mut stack) as u64, 0, 0, 0, 0],
        )
    };
    if stack.ss_flags & libc::SS_DISABLE == 0 {
        let words = [stack.ss_sp as usize, stack.ss_size, 0];
        // The address last: with it the thread has a stack, for others.
        for (slot, word) in thread.kernel.altstack.iter().zip(words).rev() {
            // SeqCst: as `preempt::want_altstack` says.
            slot.store(word, Ordering::SeqCst);
        }
        if stack.ss_size < preempt::ALTSTACK_ROOM
            || preempt::wants_altstack() && shares_altstack(thread)
        {
            preempt::refuse_altstack();
            install_own_again();
        }
        activation
            .kernel
            .altstack
            .store(stack.ss_sp as usize, Ordering::Relaxed);
    }
}

/// Whether another thread's alternate stack lies in this thread's. A program may do that whose
/// handlers end the process.
fn shares_altstack(thread: &'static Thread) -> bool {
    let range = |of: &'static Thread| {
        // SeqCst: as `preempt::want_altstack` says.
        let [start, size, _] = of
            .kernel
            .altstack
            .each_ref()
            .map(|w| w.load(Ordering::SeqCst));
        start..start.saturating_add(if start == 0 { 0 } else { size })
    };
    let own = range(thread);
    let mut shared = false;
    GUEST.identities.each(|other| {
        let its = range(other);
        shared = !core::ptr::eq(other, thread) && own.start < its.end && its.start < own.end;
        !shared
    });
    shared
}

/// Whether any two threads have an alternate stack in common.
pub(super) fn some_share_altstack() -> bool {
    let mut shared = false;
    GUEST.identities.each(|thread| {
        shared = shares_altstack(thread);
        !shared
    });
    shared
}

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

/// The mask that rt_sigprocmask(2) asks for where it was `before`, or the call's error.
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

/// Stores what the mask was, where rt_sigprocmask(2) asks for it, and returns the call's answer.
pub fn answer_mask(frame: &Frame, before: u64) -> i64 {
    let old = frame.rdx as usize;
    if old != 0 && access::store_u64(old, before).is_err() {
        return -i64::from(libc::EFAULT);
    }
    0
}

/// Stores the siginfo_t that rt_sigtimedwait(2) found, and returns the call's answer.
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

/// Changes the current thread's mask; what it unblocks is delivered before this returns.
pub fn set_thread_mask(runtime: &'static Runtime, thread: &'static Thread, mask: u64) {
    let activation = runtime.enter();
    thread.kernel.mask.store(mask, Ordering::SeqCst);
    runtime.kernel().set_mask(activation, mask);
    // After its own: what was pending for the process is this thread's.
    masks::opens(mask);
    if pending::for_thread(thread) & !mask != 0 {
        activation.attend(Activation::DEFERRED);
    }
    pending::pass_shared(runtime, activation, thread, mask);
    runtime.leave(activation);
}

/// sigaltstack(2) as the kernel answers it to the program where it stands. A dispatched call is
/// served in a handler, which is on the alternate stack itself if the program's SIGSYS is: the
/// kernel would not let it be changed.
pub fn altstack_call(frame: &Frame) -> i64 {
    let (all, mut mask) = (!0u64, 0u64);
    // SAFETY: reads and writes eight bytes. In one call: a signal that is deferred before it
    // changes the mask.
    unsafe {
        let words = [&raw const all as u64, &raw mut mask as u64];
        let how = libc::SIG_SETMASK as u64;
        raw_syscall(libc::SYS_rt_sigprocmask, [how, words[0], words[1], 8, 0, 0]);
    }
    // SAFETY: the program's own arguments; all signals are blocked.
    let answer =
        unsafe { arch::raw_syscall_at(frame.rsp, libc::SYS_sigaltstack, [frame.rdi, frame.rsi]) };
    set_kernel_mask(mask);
    answer as i64
}

/// sigaltstack(2).
pub fn sigaltstack(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let activation = runtime.enter();
    // The activation's kernel thread has this thread's stack installed: the kernel checks, and
    // answers, for the thread.
    let answer = altstack_call(frame);
    if answer == 0 && frame.rdi != 0 {
        adopt_none(thread);
        adopt_altstack(activation, thread);
        let now = thread.kernel.altstack[0].load(Ordering::Relaxed);
        activation.kernel.altstack.store(now, Ordering::Relaxed);
    }
    runtime.leave(activation);
    answer
}

pub(super) fn adopt_none(thread: &'static Thread) {
    thread.kernel.altstack[0].store(0, Ordering::Relaxed);
}
