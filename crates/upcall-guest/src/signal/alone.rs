//! SIGSYS in the mask of a process without a runtime, while dispatch is on.
//!
//! Such a process has one thread, whose mask is that of its kernel thread. A call that is dispatched while SIGSYS is
//! blocked would end the process. So that one bit is kept here instead, and a SIGSYS that is sent meanwhile waits here.
//! With a runtime, threads have masks of their own ([`crate::signal`]), and this module's state moves there.
//!
//! The masks of calls that wait (sigsuspend, ppoll) reach the kernel unchanged: nothing is dispatched while the call waits,
//! and handlers begin with [`set_mask`]. A signal that waits here moves to the kernel meanwhile ([`wait`]).
//!
//! The module also keeps the system call in which such a process is, for handlers of the program.

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use upcall_linux::{Noted, base};

use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::mask::{MASK_BIT, kernel_mask, set_kernel_mask};
use crate::ground::{access, state};
use crate::signal::{self, dispatch, pending};

/// True while the program blocks SIGSYS.
static BLOCKS: AtomicBool = AtomicBool::new(false);
/// A SIGSYS that came while it did.
static KEPT: Noted = Noted::empty();

/// The system call in which the process is, or null. It is on the page of what else a fork writes, or its parent and its child
/// copy one page more.
#[unsafe(link_section = ".data")]
static FRAME: AtomicPtr<Frame> = AtomicPtr::new(core::ptr::null_mut());

/// Returns true if the calling kernel thread is the only thread of a process without a runtime. Helpers and children of
/// vfork are not.
fn is_one_thread() -> bool {
    (!base::is_set() || state::was_forked_in_handler()) && !state::is_lent()
}

/// As above, while dispatch is on.
fn is_here() -> bool {
    dispatch::is_on() && is_one_thread()
}

/// Serves a system call of the process.
pub fn in_call(frame: &mut Frame, serve: impl FnOnce(&mut Frame)) {
    FRAME.store(frame, Ordering::Relaxed);
    serve(frame);
    FRAME.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Called when a handler begins. Returns the system call that it has interrupted, if any. The handler may leave it for
/// good.
pub fn take_frame() -> Option<*mut Frame> {
    if !is_one_thread() {
        return None;
    }
    let frame = FRAME.swap(core::ptr::null_mut(), Ordering::Relaxed);
    (!frame.is_null()).then_some(frame)
}

/// Called when the handler has returned into that call.
pub fn give_frame_back(frame: *mut Frame) {
    FRAME.store(frame, Ordering::Relaxed);
}

/// Called when dispatch begins. Signals that are pending and blocked in the kernel come here.
pub fn begin() {
    let mask = kernel_mask();
    if is_here() && mask & MASK_BIT != 0 {
        BLOCKS.store(true, Ordering::Relaxed);
        set_kernel_mask(mask & !MASK_BIT);
    }
}

/// Called if dispatch could not be switched on.
pub fn end() {
    if BLOCKS.swap(false, Ordering::Relaxed) {
        set_kernel_mask(kernel_mask() | MASK_BIT);
        deliver_kept();
    }
}

/// Returns what the program blocks and its kernel thread does not.
pub fn hidden() -> u64 {
    if is_here() && BLOCKS.load(Ordering::Relaxed) {
        MASK_BIT
    } else {
        0
    }
}

/// Sets the mask of the calling kernel thread. What it unblocks is delivered before this returns.
pub fn set_mask(mask: u64) {
    if !is_here() {
        set_kernel_mask(dispatch::blockable(mask));
        return;
    }
    note_mask(mask);
    set_kernel_mask(mask & !MASK_BIT);
    deliver_kept();
}

/// Called when the kernel will set this mask, without SIGSYS, itself.
pub fn note_mask(mask: u64) {
    if is_here() {
        BLOCKS.store(mask & MASK_BIT != 0, Ordering::Relaxed);
    }
}

/// Handles a SIGSYS that is no system call. Returns true if it waits here because the program blocks it.
pub fn keep(signal: i32, information: &pending::Information) -> bool {
    signal == libc::SIGSYS && hidden() != 0 && {
        // A second one of a standard signal is dropped, as in the kernel.
        KEPT.put(signal, information);
        true
    }
}

/// Sends the thread the signal that waits for it, unless it still blocks that.
pub fn deliver_kept() {
    if hidden() == 0 {
        give_kept();
    }
}

/// Gives the waiting signal to the kernel.
fn give_kept() {
    if let Some((signal, information)) = KEPT.take() {
        // SAFETY: reads 128 bytes.
        unsafe {
            let pid = raw_syscall(libc::SYS_getpid, [0; 6]) as u64;
            let tid = raw_syscall(libc::SYS_gettid, [0; 6]) as u64;
            raw_syscall(
                libc::SYS_rt_tgsigqueueinfo,
                [pid, tid, signal as u64, information.as_ptr() as u64, 0, 0],
            );
        }
    }
}

/// Called in a child process, which has no part in what was sent to its parent.
pub fn forget() {
    KEPT.take();
}

/// rt_sigprocmask(2).
pub fn sigprocmask(frame: &Frame) -> i64 {
    let before = kernel_mask() | hidden();
    match signal::next_mask(frame, before) {
        Err(error) => error,
        Ok(mask) => {
            if mask != before {
                set_mask(mask);
            }
            signal::answer_mask(frame, before)
        }
    }
}

/// rt_sigpending(2).
pub fn sigpending(frame: &Frame) -> i64 {
    // SAFETY: the program's own call.
    let answer = unsafe { frame.raw() } as i64;
    if answer == 0 && KEPT.is_full() {
        let at = frame.rdi as usize;
        let stored = access::load_u64(at).and_then(|set| access::store_u64(at, set | MASK_BIT));
        if stored.is_err() {
            return -i64::from(libc::EFAULT);
        }
    }
    answer
}

/// Serves a call that waits for signals, or with a mask of its own, while the program blocks SIGSYS. Nothing is dispatched
/// while it waits, so the kernel then blocks SIGSYS itself, and gets what came. Returns `None` if the call needs none of
/// that.
pub fn wait(frame: &Frame) -> Option<i64> {
    if hidden() == 0 {
        return None;
    }
    let opens = match frame.rax as i64 {
        libc::SYS_rt_sigtimedwait => false,
        libc::SYS_rt_sigsuspend => access::load_u64(frame.rdi as usize).ok()? & MASK_BIT == 0,
        _ => match signal::mask_place(frame)? {
            (0, _) => return None,
            (at, _) => access::load_u64(at as usize).ok()? & MASK_BIT == 0,
        },
    };
    set_kernel_mask(kernel_mask() | MASK_BIT);
    give_kept();
    BLOCKS.store(!opens, Ordering::Relaxed);
    // SAFETY: the program's own call.
    let answer = unsafe { frame.raw() } as i64;
    let mask = kernel_mask();
    // A handler's end has noted it already, and opened the kernel's.
    if mask & MASK_BIT != 0 {
        BLOCKS.store(true, Ordering::Relaxed);
        set_kernel_mask(mask & !MASK_BIT);
    }
    Some(answer)
}
