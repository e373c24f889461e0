//! Syscall User Dispatch for the program itself: prctl(PR_SET_SYSCALL_USER_DISPATCH).
//!
//! The kernel has one for each kernel thread, which the runtime uses ([`crate::rewrite::sud`]). The program's belongs to
//! each thread, and is checked where the thread's calls come in:
//!
//! 1. The first thread that switches it on starts the runtime, switches dispatch on for what is not rewritten, and puts
//!    `handler` before the system-call table. Programs that never do pay nothing.
//! 2. A call from outside of the thread's range, if its selector byte asks for that, is not made. The thread gets SIGSYS
//!    with the kernel's information, in a frame that shows it after the instruction, with the number in rax.
//! 3. The thread goes on with what the handler leaves in that frame. If it goes on at the same place, its registers pass
//!    through the call's [`Frame`], since the instructions there may have been moved.
//!
//! Threads, children and executed programs do not inherit it. Handlers return through our own restorer, which is no call of
//! the program's, so rt_sigreturn(2) of a handler is never dispatched. *Not done:* PR_SYS_DISPATCH_INCLUSIVE_ON (Linux
//! 6.17), which is refused as by an older kernel; helpers have none.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use upcall_linux::{Runtime, Thread, base};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{self, Frame, raw_syscall};
use crate::ground::mask::MASK_BIT;
use crate::ground::state::GUEST;
use crate::ground::{access, caller, record};
use crate::rewrite::sud;
use crate::signal::pending::{self, Information};
use crate::signal::{self, Disposition, dispatch, queued};

/// The option of prctl(2).
pub const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
const OFF: u64 = 0;
const ON: u64 = 1;
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const EINVAL: i64 = -(libc::EINVAL as i64);
const EFAULT: i64 = -(libc::EFAULT as i64);

/// `handler` is installed.
static USED: AtomicBool = AtomicBool::new(false);
/// The handler before it.
static NEXT: OnceLock<entry::Hook> = OnceLock::new();

/// What a handler has left in its frame, for the call in whose place it ran.
struct Answer {
    registers: Cell<[i64; 23]>,
    came: Cell<bool>,
    /// What the thread had before, for a handler that does not return here.
    outer: usize,
    seen: u32,
    called_back: usize,
}

/// Returns true if the call is the one that is served here.
pub fn is_request(frame: &Frame) -> bool {
    frame.rax as i64 == libc::SYS_prctl && frame.rdi as i32 == PR_SET_SYSCALL_USER_DISPATCH
}

/// Returns the call's error, as the kernel finds it.
pub fn refuses(frame: &Frame) -> Option<i64> {
    let (mode, start, length, selector) = (frame.rsi, frame.rdx, frame.r10, frame.r8);
    match mode {
        OFF if start | length | selector != 0 => Some(EINVAL),
        OFF => None,
        ON if start != 0 && start.wrapping_add(length) <= start => Some(EINVAL),
        ON if (selector as i64) < 0 => Some(EFAULT),
        ON => None,
        _ => Some(EINVAL),
    }
}

/// prctl(PR_SET_SYSCALL_USER_DISPATCH) of a thread.
pub fn set(thread: &'static Thread, frame: &Frame) -> i64 {
    if let Some(error) = refuses(frame) {
        return error;
    }
    let own = &thread.guest().user_dispatch;
    own.on.store(0, Ordering::Relaxed);
    if frame.rsi == OFF {
        return 0;
    }
    own.start.store(frame.rdx as usize, Ordering::Relaxed);
    own.length.store(frame.r10 as usize, Ordering::Relaxed);
    own.selector.store(frame.r8 as usize, Ordering::Relaxed);
    if !USED.swap(true, Ordering::Relaxed) {
        dispatch::turn_on();
        // SAFETY: the same hooks, with one before.
        unsafe {
            let (next, after) = entry::hooks();
            let _ = NEXT.set(next);
            entry::install(handler, after);
        }
    }
    own.on.store(1, Ordering::Relaxed);
    0
}

/// Before the system-call table's handler, once a thread has used it.
///
/// # Safety
///
/// As [`entry::Hook`].
unsafe extern "C" fn handler(frame: &mut Frame) {
    let entered = caller::enter();
    let thread = dispatching_thread();
    let what = thread.map_or(ALLOW, |thread| decide(thread, frame));
    caller::leave(entered);
    match (thread, GUEST.runtime(), what) {
        (Some(thread), Some(runtime), BLOCK) => {
            let entered = caller::enter();
            raise(runtime, thread, frame);
            caller::leave(entered);
        }
        // SAFETY: the caller's promise.
        _ => unsafe { NEXT.get().copied().unwrap_or(entry::native)(frame) },
    }
}

/// Returns the calling thread, if it has dispatch on and the call is its own. The pseudo-register is ours.
fn dispatching_thread() -> Option<&'static Thread> {
    GUEST.runtime()?;
    let (thread, is_own) = match caller::own_thread() {
        // SAFETY: the pseudo-register leads to the activation of a thread.
        Some(thread) => (thread, !unsafe { base::is_inside() }),
        // In a call of a bound thread it is libc, called by the runtime.
        None => record::current_thread()
            .map(|thread| (thread, thread.guest().frame.load(Ordering::Relaxed) == 0))?,
    };
    let is_on = thread.guest().user_dispatch.on.load(Ordering::Relaxed) != 0;
    (is_own && is_on).then_some(thread)
}

/// Returns what the thread's selector says about a call.
fn decide(thread: &'static Thread, frame: &Frame) -> u8 {
    let own = &thread.guest().user_dispatch;
    let offset = (frame.rip as usize).wrapping_sub(own.start.load(Ordering::Relaxed));
    if offset < own.length.load(Ordering::Relaxed) {
        return ALLOW;
    }
    let selector = own.selector.load(Ordering::Relaxed);
    if selector == 0 {
        return BLOCK;
    }
    // The word around the byte is on the same page.
    match access::load_u32(selector & !3) {
        Err(access::Fault) => end_process(libc::SIGSEGV),
        Ok(word) => match word.to_le_bytes()[selector & 3] {
            byte @ (ALLOW | BLOCK) => byte,
            _ => end_process(libc::SIGSYS),
        },
    }
}

/// Sends the thread its SIGSYS. It goes on with what the handler leaves.
// Not inlined: its frame would be part of every call's.
#[inline(never)]
fn raise(runtime: &'static Runtime, thread: &'static Thread, frame: &mut Frame) {
    let (state, own) = (&thread.kernel, thread.guest());
    let is_blocked = state.mask.load(Ordering::Relaxed) & MASK_BIT != 0;
    if is_blocked || signal::disposition(libc::SIGSYS) != Disposition::Handled {
        end_process(libc::SIGSYS);
    }
    let answer_at = &own.user_dispatch.answer;
    let answer = Answer {
        registers: Cell::new([0; 23]),
        came: Cell::new(false),
        outer: answer_at.load(Ordering::Relaxed),
        seen: state.seen.load(Ordering::Relaxed),
        called_back: own.called_back.load(Ordering::Relaxed),
    };
    answer_at.store(core::ptr::from_ref(&answer) as usize, Ordering::Relaxed);
    // It is over: a handler sees the thread after it.
    frame.made.set(1);
    let place = core::ptr::from_mut(frame) as usize;
    own.frame.store(place, Ordering::Relaxed);
    let id = own.tid.load(Ordering::Relaxed);
    let information = information(frame);
    match record::current() {
        // It comes when this call returns: the thread accepts it.
        Some(bound) => {
            let own = bound.tid.load(Ordering::Relaxed);
            queued::queue_to(own, libc::SIGSYS, &information);
        }
        None => {
            let inside = runtime.enter();
            pending::send(&inside, (thread, id), libc::SIGSYS, &information);
            inside.leave();
        }
    }
    own.frame.store(0, Ordering::Relaxed);
    restore(thread, &answer);
    if answer.came.get() {
        write_back(frame, &answer.registers.get());
    } else {
        // Another SIGSYS was there first, and has taken its place.
        frame.rax = -i64::from(libc::EINTR) as u64;
    }
}

/// Returns the siginfo_t, with a mark that distinguishes it from a call that comes here by the runtime's own dispatch.
fn information(frame: &Frame) -> Information {
    let mut words: Information = [0; 16];
    words[0] = libc::SIGSYS as u64 | u64::from(sud::MARK) << 32;
    words[1] = sud::SYS_USER_DISPATCH as u64;
    words[2] = frame.rip;
    words[3] = u64::from(frame.rax as u32) | u64::from(AUDIT_ARCH_X86_64) << 32;
    words
}

fn write_back(frame: &mut Frame, registers: &[i64; 23]) {
    frame.take(registers);
    frame.rax = registers[libc::REG_RAX as usize] as u64;
    frame.rflags = registers[libc::REG_EFL as usize] as u64;
}

/// Called in the handler of SIGSYS. Returns true if this is the one of `raise`, in whose call the thread is.
///
/// # Safety
///
/// As the kernel passed it.
pub unsafe fn is_raised(thread: &'static Thread, information: *const libc::siginfo_t) -> bool {
    // SAFETY: the caller's promise.
    let is_marked = unsafe { (*information).si_errno as u32 == sud::MARK };
    is_marked && thread.guest().user_dispatch.answer.load(Ordering::Relaxed) != 0
}

/// Shows the program's handler the call's number in rax, as the kernel would, and no mark.
///
/// # Safety
///
/// As the kernel passed it.
pub unsafe fn show(number: u64, information: *mut libc::siginfo_t, registers: &mut [i64; 23]) {
    // SAFETY: the caller's promise.
    unsafe { (*information).si_errno = 0 };
    registers[libc::REG_RAX as usize] = number as i64;
}

/// What the thread had before the call.
fn restore(thread: &'static Thread, answer: &Answer) {
    let (state, own) = (&thread.kernel, thread.guest());
    state.seen.store(answer.seen, Ordering::Relaxed);
    own.called_back.store(answer.called_back, Ordering::Relaxed);
    let answer_at = &own.user_dispatch.answer;
    answer_at.store(answer.outer, Ordering::Relaxed);
}

/// Called when the handler has returned: to where the thread was, with these registers, or (`None`) elsewhere, which ends
/// the call.
pub fn keep(thread: &'static Thread, registers: Option<&[i64; 23]>) {
    let answer = thread.guest().user_dispatch.answer.load(Ordering::Relaxed) as *const Answer;
    // SAFETY: null, or on the stack of the thread, in `raise`.
    let Some(answer) = (unsafe { answer.as_ref() }) else {
        return;
    };
    match registers {
        Some(registers) => {
            answer.registers.set(*registers);
            answer.came.set(true);
        }
        None => restore(thread, answer),
    }
}

/// Starts a runtime in a process without one, since the process's calls must be looked at.
pub fn begin(frame: &mut Frame) {
    frame.rax = match refuses(frame) {
        Some(error) => error,
        None if frame.rsi == OFF => 0,
        None => {
            if GUEST.start().is_err() {
                -i64::from(libc::ENOMEM)
            } else {
                caller::own_thread().map_or(EINVAL, |thread| set(thread, frame))
            }
        }
    } as u64;
}

/// Ends the process by this signal, whatever the program does about it.
fn end_process(signal: i32) -> ! {
    signal::take_default(signal);
    loop {
        // SAFETY: ends the process.
        unsafe {
            let pid = raw_syscall(libc::SYS_getpid, [0; 6]) as u64;
            raw_syscall(libc::SYS_kill, [pid, signal as u64, 0, 0, 0, 0]);
        }
    }
}
