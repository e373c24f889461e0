//! Syscall User Dispatch: system calls that the kernel sends back to user mode.

use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use super::Finding;
use super::child::{self, Ended, errno};

const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

/// Read by the kernel on every system call of the probing child; that child alone writes it.
static SELECTOR: AtomicU8 = AtomicU8::new(ALLOW);
/// The number of the system call that came back; written by the child's handler alone.
static CAUGHT: AtomicI32 = AtomicI32::new(-1);

/// Turns Syscall User Dispatch on in a child and catches one `getpid`.
#[must_use]
pub fn syscall_user_dispatch() -> Finding {
    const NAME: &str = "syscall-user-dispatch";
    match child::run(catch_one) {
        Ended::Works => Finding::works(NAME, "a getpid was caught before it reached the kernel"),
        ended => Finding::fails(
            NAME,
            format!("catching a getpid in a child: {ended}"),
            "Linux 5.11 or later, x86-64, and a sandbox that allows \
             prctl(PR_SET_SYSCALL_USER_DISPATCH)",
        ),
    }
}

/// `si_syscall` of the kernel's siginfo on x86-64: after the three leading ints, their
/// padding, and the call address.
const SI_SYSCALL: usize = 24;

extern "C" fn on_sigsys(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    SELECTOR.store(ALLOW, Ordering::Relaxed);
    // SAFETY: the kernel passes a whole siginfo (128 bytes) for SIGSYS, with the number of
    // the system call at this offset.
    let number = unsafe { info.cast::<u8>().add(SI_SYSCALL).cast::<i32>().read() };
    CAUGHT.store(number, Ordering::Relaxed);
}

fn catch_one() -> Result<(), i32> {
    const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
    const PR_SYS_DISPATCH_ON: u64 = 1;
    // SAFETY: in this child alone: a handler with the signature that SA_SIGINFO asks for, and
    // a selector byte that lives as long as the process. The handler lifts the block, so its
    // own return and everything after it reach the kernel.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigsys as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        if libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(errno());
        }
        if libc::prctl(
            PR_SET_SYSCALL_USER_DISPATCH,
            PR_SYS_DISPATCH_ON,
            0u64,
            0u64,
            SELECTOR.as_ptr(),
        ) != 0
        {
            return Err(errno());
        }
        SELECTOR.store(BLOCK, Ordering::Relaxed);
        libc::syscall(libc::SYS_getpid);
        SELECTOR.store(ALLOW, Ordering::Relaxed);
    }
    if i64::from(CAUGHT.load(Ordering::Relaxed)) == libc::SYS_getpid {
        Ok(())
    } else {
        Err(libc::EIO)
    }
}
