//! System calls and clone(2) on x86-64.

use core::arch::{asm, naked_asm};
use core::ffi::CStr;

use crate::sys::Answer;

/// What people call the processor.
pub const NAME: &str = "x86-64";
/// clock_gettime(2) in the vDSO.
pub(crate) const VDSO_CLOCK: &CStr = c"__vdso_clock_gettime";
/// The signature that glibc registers restartable sequences with, the same in every registration.
pub const RSEQ_SIGNATURE: u32 = 0x5305_3053;

/// A system-call instruction of ours, in assembly, and its entry in the list of these: where our text is part
/// of a program's, the program's own are told from them by it.
#[macro_export]
macro_rules! own_syscall {
    () => {
        concat!(
            "771: syscall\n",
            // Retained: nothing refers to it.
            ".pushsection upcall_own,\"aR\",@progbits\n",
            ".p2align 2\n",
            ".long 771b - .\n",
            ".popsection",
        )
    };
}

/// The addresses of all [`own_syscall`] in the object that holds this crate.
pub fn own_syscalls() -> impl Iterator<Item = usize> {
    unsafe extern "C" {
        #[link_name = "__start_upcall_own"]
        static FIRST: [i32; 0];
        #[link_name = "__stop_upcall_own"]
        static END: [i32; 0];
    }
    let (first, end) = (&raw const FIRST as usize, &raw const END as usize);
    (first..end).step_by(size_of::<i32>()).map(|entry| {
        // SAFETY: the linker puts the entries one after the other between the two.
        let distance = unsafe { *(entry as *const i32) };
        entry.wrapping_add_signed(distance as isize)
    })
}

/// A system call with up to six words.
///
/// # Safety
///
/// That of the call itself: pointers are valid for what the kernel does with them, and memory,
/// descriptors and signal state of others are not touched.
#[inline(always)]
pub unsafe fn call(number: i64, words: [usize; 6]) -> Answer {
    let answer: isize;
    // SAFETY: the caller vouches for the call; the kernel changes rax, rcx and r11 only.
    unsafe {
        asm!(
            own_syscall!(),
            inlateout("rax") number as isize => answer,
            in("rdi") words[0],
            in("rsi") words[1],
            in("rdx") words[2],
            in("r10") words[3],
            in("r8") words[4],
            in("r9") words[5],
            lateout("rcx") _,
            lateout("r11") _,
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
    naked_asm!(
        "push r12",
        "push r13",
        "mov rax, rdx",
        "mov rdx, [rax]",
        "mov r10, [rax + 8]",
        "mov r8, [rax + 16]",
        "mov r12, [rax + 24]",
        "mov r13, [rax + 32]",
        "mov eax, 56",
        own_syscall!(),
        "test rax, rax",
        "jz 2f",
        "pop r13",
        "pop r12",
        "ret",
        "2:",
        "mov rdi, r13",
        "xor ebp, ebp",
        "call r12",
        "ud2",
    )
}
