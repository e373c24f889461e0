//! Masks of signals, and the mask of the calling kernel thread.

use crate::ground::entry::raw_syscall;

/// Returns the bit of a signal in a mask.
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// What no mask blocks.
pub const UNBLOCKABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);

/// Returns the signal mask of the calling kernel thread, as the kernel has it.
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

/// All signals, for a kernel thread of the runtime's that none may meet. Not SIGSYS: the kernel ends a process in which a
/// filter traps a call while that is blocked. See `own::ends_at_once`.
pub const ALL: u64 = !MASK_BIT;

/// Sets the signal mask of the calling kernel thread.
pub fn set_kernel_mask(mask: u64) {
    change_kernel_mask(mask);
}

/// Sets the signal mask of the calling kernel thread. Returns what it was.
pub fn change_kernel_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let words = [&raw const mask as u64, &raw mut before as u64];
    let how = libc::SIG_SETMASK as u64;
    // SAFETY: reads and writes eight bytes.
    unsafe { raw_syscall(libc::SYS_rt_sigprocmask, [how, words[0], words[1], 8, 0, 0]) };
    before
}

/// SIGSYS in a kernel signal mask: never let the program block it while dispatch is on.
pub const MASK_BIT: u64 = 1 << (libc::SIGSYS - 1);
