//! Changes of identity: setuid(2) and its kin, setgroups(2).
//!
//! In the kernel an identity belongs to a kernel thread; libc makes it the process's. libc's functions signal all other
//! threads. Each of them makes the call in a handler, and then the caller makes it too. Here most threads have no kernel
//! thread of their own. So the first participant makes the change once, on every activation, and the others get its answer.
//! It must not be made twice: setuid(2) as an ordinary user changes the effective id, and after that, as root, all three.
//!
//! Protocol, under the lock of [`everywhere::change`]:
//! 1. The first thread in the handler makes the call on every activation, and leaves the answer.
//! 2. Other threads in the handler take the answer.
//! 3. The call that libc makes outside of a handler removes the answer. It is the last of a change, since libc makes one
//!    change at a time and waits for all handlers. If there were no other threads, it makes the call.
//!
//! Bound threads and helpers make the call for themselves in the handler. If the last call is one of theirs it removes the
//! answer as well, or makes the call on every activation where no thread on one took part.
//!
//! A call that libc does not make (syscall(2), other code) changes the calling thread alone.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use upcall_linux::{Runtime, Thread};

use crate::call::of_bound::raw;
use crate::call::{attributes, keyrings, uring};
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, NEVER, program_call, raw_syscall};
use crate::ground::state::GUEST;
use crate::ground::{mask, record};
use crate::signal;
use crate::signal::everywhere::{self, SETXID};
use crate::thread::bound::{self, CLONE_FILES};
use crate::thread::{lifetime, scheduling};

/// The answer to the present change, if there is one.
static IS_MADE: AtomicBool = AtomicBool::new(false);
static ANSWER: AtomicI64 = AtomicI64::new(0);

/// lsm_set_self_attr(2).
pub const LSM_SET_SELF_ATTR: i64 = 460;
/// The flag of close_range(2) that first gives the caller a table of descriptors of its own.
pub const CLOSE_RANGE_UNSHARE: u64 = 2;

/// Returns true if one of these calls asks for a change of one thread alone, as far as its words say so.
pub fn is_change(frame: &Frame) -> bool {
    const SECCOMP_SET_MODE_FILTER: u64 = 1;
    const ARCH_SET_CPUID: i32 = 0x1012;
    const ASK_PERSONALITY: u32 = u32::MAX;
    match frame.rax as i64 {
        libc::SYS_personality => frame.rdi as u32 != ASK_PERSONALITY,
        libc::SYS_seccomp => {
            let for_all = frame.rsi & libc::SECCOMP_FILTER_FLAG_TSYNC != 0;
            frame.rdi == 0 || frame.rdi == SECCOMP_SET_MODE_FILTER && !for_all
        }
        libc::SYS_keyctl | libc::SYS_add_key | libc::SYS_request_key => keyrings::is_change(frame),
        // These count the events of one thread.
        libc::SYS_perf_event_open | libc::SYS_ioprio_set => names_one(frame),
        libc::SYS_close_range => frame.rdx & CLOSE_RANGE_UNSHARE != 0,
        libc::SYS_arch_prctl => frame.rdi as i32 == ARCH_SET_CPUID,
        libc::SYS_unshare => frame.rdi != 0,
        libc::SYS_io_uring_setup | libc::SYS_io_uring_register => uring::is_for_one(frame),
        _ => true,
    }
}

/// Returns true if a call that takes the id of a thread is about a thread of this process.
fn names_one(frame: &Frame) -> bool {
    const PERF_FLAG_PID_CGROUP: u64 = 4;
    let id = frame.rsi as i32;
    let may_name = match frame.rax as i64 {
        libc::SYS_perf_event_open => frame.r8 & PERF_FLAG_PID_CGROUP == 0,
        _ => scheduling::is_about_one(frame),
    };
    may_name && (id == 0 || GUEST.identities.find(id).is_some())
}

/// Makes a call that changes one thread alone: the calling one, or another that the call names. The change binds it.
///
/// In a handler that returns into the runtime the thread cannot leave its activation. There the change is refused, since
/// the handler's next call would be made without it. Only a change whose absence no call can see waits for the handler's
/// end.
pub fn change_own(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let can_wait = matches!(
        frame.rax as i64,
        libc::SYS_ioprio_set | libc::SYS_set_mempolicy
    );
    let own = (thread, thread.guest().tid.load(Ordering::Relaxed));
    let mut words = frame.words();
    if matches!(
        frame.rax as i64,
        libc::SYS_ioprio_set | libc::SYS_perf_event_open
    ) {
        let named = core::mem::take(&mut words[2]) as i32;
        if named != 0
            && named != own.1
            && let Some(other) = GUEST.identities.find(named)
        {
            return change_other(runtime, (other, named), words);
        }
    }
    if signal::is_called_back(thread) && !can_wait {
        return refused(frame);
    }
    let whose = own;
    if frame.rax as i64 == libc::SYS_close_range {
        // This takes more than one call: in the new table the runtime's own descriptors stay where they are.
        let parts = attributes::close_range_parts(frame);
        let unshare = [libc::SYS_unshare as u64, CLONE_FILES, 0, 0, 0, 0, 0];
        return match *parts.calls() {
            [one] => bound::change(runtime, whose, &[unshare, one]),
            [one, other] => bound::change(runtime, whose, &[unshare, one, other]),
            _ => bound::change(runtime, whose, &[unshare]),
        };
    }
    bound::change(runtime, whose, &[words])
}

/// Makes the call for another thread than the calling one. Its second word names the thread.
fn change_other(
    runtime: &'static Runtime,
    whose: (&'static Thread, i32),
    mut words: [u64; 7],
) -> i64 {
    match record::kernel_id(whose.0) {
        Some(kernel_id) => {
            words[2] = kernel_id as u64;
            // SAFETY: the program's own call, with the kernel's id for the thread.
            (unsafe { program_call(&words, &Cell::new(0), &NEVER) }) as i64
        }
        None => bound::change(runtime, whose, &[words]),
    }
}

/// Returns the answer to a change that is not made.
fn refused(frame: &Frame) -> i64 {
    const NOT_NOW: i64 = -(libc::EAGAIN as i64);
    const NOBODY: u64 = u64::MAX;
    match frame.rax as i64 {
        number @ (libc::SYS_setfsuid | libc::SYS_setfsgid) => {
            // These only tell what the thread has.
            // SAFETY: changes nothing.
            unsafe { raw_syscall(number, [NOBODY, 0, 0, 0, 0, 0]) as i64 }
        }
        _ => NOT_NOW,
    }
}

/// Serves a call that [`is_for_all`], made by an outside kernel thread, which makes it for itself. If this is the last call
/// of a change (`takes_part` is false) and no thread on an activation took part, the activations follow now.
fn outside(takes_part: bool, frame: &Frame) -> i64 {
    let Some(runtime) = GUEST.runtime().filter(|_| !takes_part) else {
        return raw(frame);
    };
    // While the lock is held no handler of the program may run here: it might make such a call.
    let before = mask::change_kernel_mask(mask::ALL);
    let answer = everywhere::change(runtime, frame.words(), |make| {
        match IS_MADE.swap(false, Ordering::Relaxed) {
            true => raw(frame),
            false => make(),
        }
    });
    mask::set_kernel_mask(before);
    answer
}

/// Serves a call that [`is_for_all`], made by a bound thread.
pub fn of_bound(thread: &'static Thread, frame: &Frame) -> i64 {
    outside(thread.guest().takes_part.load(Ordering::Relaxed), frame)
}

/// Serves a call that [`is_for_all`], made by a helper. It takes part if it blocks the signal of libc's handler: libc
/// leaves that signal blocked for code of the program nowhere else.
pub fn of_helper(frame: &Frame) -> i64 {
    outside(mask::kernel_mask() & mask::bit(SETXID) != 0, frame)
}

/// Returns true if libc makes this call for the whole process.
pub fn is_for_all(frame: &Frame) -> bool {
    lifetime::is_libcs_call(frame.rip as usize)
}

/// Serves a call that [`is_for_all`], made by a thread on an activation.
pub fn change(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let takes_part = thread.guest().takes_part.load(Ordering::Relaxed);
    everywhere::change(runtime, frame.words(), |make| {
        let is_made = IS_MADE.swap(takes_part, Ordering::Relaxed);
        if !is_made {
            ANSWER.store(make(), Ordering::Relaxed);
        }
        ANSWER.load(Ordering::Relaxed)
    })
}

/// Called in the child of a fork, which takes part in no change.
pub fn forget() {
    IS_MADE.store(false, Ordering::Relaxed);
}
