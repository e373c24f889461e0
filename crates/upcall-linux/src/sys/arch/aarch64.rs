//! System calls and clone(2) on AArch64.

use core::arch::{asm, naked_asm};
use core::ffi::CStr;

use crate::sys::Answer;

/// What people call the processor.
pub const NAME: &str = "AArch64";
/// clock_gettime(2) in the vDSO.
pub(crate) const VDSO_CLOCK: &CStr = c"__kernel_clock_gettime";
/// The signature that glibc registers restartable sequences with, the same in every registration.
pub const RSEQ_SIGNATURE: u32 = 0xd428_bc00;

/// A system call with up to six words.
///
/// # Safety
///
/// That of the call itself: pointers are valid for what the kernel does with them, and memory,
/// descriptors and signal state of others are not touched.
#[inline(always)]
pub unsafe fn call(number: i64, words: [usize; 6]) -> Answer {
    let answer: isize;
    // SAFETY: the caller vouches for the call; the kernel changes x0 only.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") words[0] as isize => answer,
            in("x1") words[1],
            in("x2") words[2],
            in("x3") words[3],
            in("x4") words[4],
            in("x5") words[5],
            options(nostack),
        );
    }
    answer
}

/// clone(2) with `words`: parent_tid, child_tid, tls, and the function that the child calls on the
/// new stack, with its argument.
///
/// # Safety
///
/// Those of [`clone::raw`](crate::sys::clone::raw); `stack` is aligned to 16 bytes.
#[unsafe(naked)]
pub unsafe extern "C" fn clone(flags: usize, stack: usize, words: &[usize; 5]) -> Answer {
    // The kernel's order: flags, stack, parent_tid, tls, child_tid.
    naked_asm!(
        "mov x9, x2",
        "ldr x2, [x9]",
        "ldr x4, [x9, #8]",
        "ldr x3, [x9, #16]",
        "ldp x10, x11, [x9, #24]",
        "mov x8, #220",
        "svc #0",
        "cbz x0, 2f",
        "ret",
        "2:",
        "mov x0, x11",
        "mov x29, xzr",
        "mov x30, xzr",
        "blr x10",
        "brk #1",
    )
}
