//! Signals that the runtime gives to the kernel, and takes from it.
//!
//! A signal that is about to be delivered is queued to the activation's kernel thread (rt_tgsigqueueinfo(2)). The kernel may
//! have no room for what is known of it, and keeps one of each standard number: so the activation notes it, and it is
//! completed when it comes ([`complete`], [`complete_dropped`]).

use core::sync::atomic::Ordering;

use upcall_core::kernel::Vessels;
use upcall_linux::{Activation, preempt};

use crate::ground::entry::raw_syscall;
use crate::ground::mask::bit;
use crate::ground::state::GUEST;
use crate::signal::lists::Information;
use crate::signal::timers;

/// The code of kill(2).
pub const SI_USER: i32 = 0;
/// The code of sigqueue(3).
pub const SI_QUEUE: i32 = -1;
/// The code of tgkill(2).
pub const SI_TKILL: i32 = -6;

/// rt_tgsigqueueinfo(2) to a kernel thread of this process.
pub fn queue_to(kernel_id: i32, signal: i32, information: &Information) -> i64 {
    let words = [
        u64::from(GUEST.pid.load(Ordering::Relaxed)),
        kernel_id as u64,
        signal as u64,
        information.as_ptr() as u64,
        0,
        0,
    ];
    // SAFETY: reads 128 bytes.
    (unsafe { raw_syscall(libc::SYS_rt_tgsigqueueinfo, words) }) as i64
}

/// Returns a siginfo_t that says no more than what kill(2) says: the kernel delivers such a signal even when it has no room
/// to queue it.
pub const fn bare(signal: i32) -> Information {
    let mut information = [0; 16];
    information[0] = signal as u32 as u64;
    information
}

/// Queues a signal to the calling activation's kernel thread.
pub fn queue_to_kernel(activation: &Activation, signal: i32, information: &Information) {
    let own = activation.kernel.tid.load(Ordering::Relaxed);
    let queue = |information: &Information| queue_to(own, signal, information);
    activation.kernel.queued.put_over(signal, information);
    match -queue(information) as i32 {
        libc::EAGAIN => {
            queue(&bare(signal));
        }
        // A filter of the program's.
        libc::ENOSYS | libc::EPERM | libc::EACCES => {
            let pid = u64::from(GUEST.pid.load(Ordering::Relaxed));
            let tid = activation.kernel.tid.load(Ordering::Relaxed) as u64;
            // SAFETY: a signal to the calling kernel thread.
            unsafe { raw_syscall(libc::SYS_tgkill, [pid, tid, signal as u64, 0, 0, 0]) };
        }
        _ => {}
    }
}

/// Called when a signal was delivered on an activation. Returns true if it is the one that the runtime has queued. If the kernel
/// had no room for its information, that is restored.
///
/// # Safety
///
/// `information` is what the kernel passed to the handler.
#[inline(never)]
pub unsafe fn complete(
    activation: &Activation,
    signal: i32,
    information: *mut libc::siginfo_t,
) -> bool {
    if activation.kernel.queued.signal() != signal {
        return false;
    }
    let Some((_, queued)) = activation.kernel.queued.take() else {
        return false;
    };
    // SAFETY: the caller's promise; a siginfo_t is 128 bytes.
    complete_by(unsafe { &mut *information.cast() }, &queued);
    true
}

/// As [`complete`], before anything else is done about a signal of the runtime's own number. The kernel keeps one of a
/// number: with one of the runtime's pending it has dropped the program's that was queued, which takes its place now.
///
/// # Safety
///
/// `information` is what the kernel passed to the handler.
#[inline(never)]
pub unsafe fn complete_dropped(
    activation: &Activation,
    signal: i32,
    information: *mut libc::siginfo_t,
) {
    if signal != preempt::SIGNAL || activation.kernel.queued.signal() != signal {
        return;
    }
    // SAFETY: the caller's promise.
    match unsafe { preempt::meaning(information) } {
        preempt::Meaning::OfProgram => return,
        preempt::Meaning::Timer { number, times } => {
            timers::expired(activation, number, times);
        }
        // Looked at whatever comes.
        preempt::Meaning::Call => {}
        preempt::Meaning::Tick | preempt::Meaning::Interrupt => {
            activation.runtime().kernel().interrupt(activation);
        }
    }
    if let Some((_, queued)) = activation.kernel.queued.take() {
        // SAFETY: the caller's promise; a siginfo_t is 128 bytes.
        unsafe { *information.cast() = queued };
    }
}

fn complete_by(information: &mut Information, queued: &Information) {
    // Code SI_USER of process and user 0; or by tgkill(2), which the program's own threads do not use among each other.
    if information[1] as u32 == 0 && information[2] == 0 || information[1] as i32 == SI_TKILL {
        *information = *queued;
    }
}

/// Takes back from the kernel what was queued to the activation's kernel thread and has not been delivered. With
/// all signals blocked.
pub fn take_back(activation: &Activation) -> Option<(i32, Information)> {
    let queued = &activation.kernel.queued;
    if !queued.is_full() {
        return None;
    }
    // If the kernel does not give it back, it is delivered, and must be completed then.
    let (signal, mut information) = take(bit(queued.signal()))?;
    complete_by(&mut information, &queued.take()?.1);
    Some((signal, information))
}

/// Leaves a signal to the process, in the kernel. Returns false if there is no room.
pub fn queue_to_process(activation: &Activation, signal: i32, information: &Information) -> bool {
    // Only to its own id may a kernel thread send what looks as if the kernel had sent it; the
    // signal is the process's all the same.
    // SAFETY: reads 128 bytes.
    let answer = unsafe {
        raw_syscall(
            libc::SYS_rt_sigqueueinfo,
            [
                activation.kernel.tid.load(Ordering::Relaxed) as u64,
                signal as u64,
                information.as_ptr() as u64,
                0,
                0,
                0,
            ],
        )
    };
    answer as i64 != -i64::from(libc::EAGAIN)
}

/// Takes a blocked signal in `set` from the kernel, one for the calling kernel thread alone first.
pub fn take(set: u64) -> Option<(i32, Information)> {
    let now = [0u64; 2];
    let mut information: Information = [0; 16];
    // SAFETY: reads the set and the time, writes 128 bytes.
    let signal = unsafe {
        raw_syscall(
            libc::SYS_rt_sigtimedwait,
            [
                (&raw const set) as u64,
                information.as_mut_ptr() as u64,
                now.as_ptr() as u64,
                8,
                0,
                0,
            ],
        )
    } as i32;
    (signal > 0).then_some((signal, information))
}
