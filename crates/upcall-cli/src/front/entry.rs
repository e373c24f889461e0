//! The first instruction.

use std::arch::global_asm;

use super::stack::Stack;
use super::{interpreter, serve};

// On entry: the stack as the kernel makes it, and rdx 0; after a dynamic linker the function in rdx that ends it (System V
// ABI, process initialization). No signal can have a handler yet. rbp 0 ends the chain of frames.
global_asm!(
    ".pushsection .text.upcall_front, \"ax\", @progbits",
    ".globl upcall_front",
    ".type upcall_front, @function",
    "upcall_front:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "lea rax, [rip + _start]",
    "test rdx, rdx",
    "jnz 2f",
    "xor ebp, ebp",
    "mov rbx, rsp",
    "mov rdi, rsp",
    "lea rsi, [rip + __ehdr_start]",
    "mov rdx, rax",
    "and rsp, -16",
    "call {first}",
    "mov rsp, rbx",
    "xor edx, edx",
    "2:",
    "jmp rax",
    ".cfi_endproc",
    ".size upcall_front, . - upcall_front",
    ".popsection",
    first = sym first,
);

/// Returns the address at which the process goes on.
unsafe extern "C" fn first(pointer: *mut usize, base: usize, start: usize) -> usize {
    // SAFETY: the entry passes the stack pointer with which the kernel has started the process, and nothing has run.
    unsafe {
        let stack = Stack::at(pointer);
        let _ = serve::serve(&stack);
        interpreter::prepare(&stack, base, start)
    }
}
