//! x86-64, System V ABI.
//!
//! ```text
//!   saved context            low
//!     context ──▶ continue   address to jump to
//!                 mxcsr fcw  control words, callee-saved by the ABI
//!                 scratch    where they are compared with the processor's
//!                 r15 r14 r13 r12 rbx rbp
//!                 return     address after the call of switch_out
//! ```
//!
//! The return predictor is a stack of its own in the processor: it fits as long as calls and
//! returns pair up. A thread that parks leaves its calls there; another thread that parked at the
//! same place finds exactly the returns it needs, if nothing unpaired was pushed in between. So
//! the landing is jumped to and the continuation too, and the last return is a return.
//! Approach rejected: ending in a jump, which is the faster by some nanoseconds for a caller
//! without callers, and mispredicts every return of all others (measured: 70 ns a switch).
//!
//! A signal may land between any two instructions: below the stack pointer lies nothing of value,
//! and the runtime's mark (`set_inside`) defers everything else.

use core::arch::{asm, naked_asm};

/// What runs on the other stack: three words chosen by the caller of [`switch_out`].
pub type Landing = extern "C" fn(usize, usize, usize) -> !;

/// Saves the registers on the current stack, stores the context at `save`, and calls
/// `landing(a, b, c)` on the stack that ends at `stack`. Returns when the context is resumed.
///
/// # Safety
///
/// `save` is writable, `stack` is the 16-byte aligned end of a free stack, and `landing` does not
/// return.
#[unsafe(naked)]
pub unsafe extern "C" fn switch_out(
    save: *mut usize,
    stack: usize,
    landing: Landing,
    a: usize,
    b: usize,
    c: usize,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        "push r14",
        ".cfi_adjust_cfa_offset 8",
        "push r15",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 16",
        ".cfi_adjust_cfa_offset 16",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "lea rax, [rip + 2f]",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "mov rax, rdx",
        "mov rdi, rcx",
        "mov rsi, r8",
        "mov rdx, r9",
        "xor ebp, ebp",
        // A jump, as if called: see the module's text about the return predictor.
        "push 0",
        "jmp rax",
        // Resumed: the address was popped.
        "2:",
        ".cfi_adjust_cfa_offset -8",
        // Loading them takes ten times as long as finding that they are as wanted already.
        "stmxcsr [rsp + 8]",
        "fnstcw [rsp + 12]",
        "mov eax, [rsp + 8]",
        "movzx ecx, word ptr [rsp + 12]",
        "cmp eax, [rsp]",
        "jne 3f",
        "4:",
        "cmp cx, [rsp + 4]",
        "jne 5f",
        "6:",
        "add rsp, 16",
        ".cfi_adjust_cfa_offset -16",
        "pop r15",
        ".cfi_adjust_cfa_offset -8",
        "pop r14",
        ".cfi_adjust_cfa_offset -8",
        "pop r13",
        ".cfi_adjust_cfa_offset -8",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_adjust_cfa_offset 64",
        "3:",
        "ldmxcsr [rsp]",
        "jmp 4b",
        "5:",
        "fldcw [rsp + 4]",
        "jmp 6b",
        ".cfi_endproc",
    )
}

/// Where a saved thread is.
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    /// The next instruction.
    pub ip: usize,
    /// The stack pointer there.
    pub sp: usize,
    /// rbp.
    pub bp: usize,
    /// rbx.
    pub bx: usize,
}

/// Where a thread with this context is.
///
/// # Safety
///
/// `context` was stored by [`switch_out`] and is not continued meanwhile.
pub unsafe fn saved(context: usize) -> Saved {
    // SAFETY: the words that `switch_out` has pushed.
    let word = |at: usize| unsafe { (context as *const usize).add(at).read() };
    Saved {
        ip: word(9),
        sp: context + 10 * size_of::<usize>(),
        bp: word(8),
        bx: word(7),
    }
}

/// Continues a saved context.
///
/// # Safety
///
/// `context` was stored by [`switch_out`] or made by [`prepare`], and is continued once.
#[inline(always)]
pub unsafe fn resume(context: usize) -> ! {
    // SAFETY: the caller vouches for the context, whose topmost word is where to continue.
    unsafe {
        asm!(
            "mov rsp, {}",
            "pop rcx",
            "jmp rcx",
            in(reg) context,
            options(noreturn),
        )
    }
}

/// Calls `landing(a, b, c)` on the stack that ends at `stack`, leaving the current one for ever.
///
/// # Safety
///
/// `stack` is the 16-byte aligned end of a free stack, and `landing` does not return.
#[unsafe(naked)]
pub unsafe extern "C" fn enter(stack: usize, landing: Landing, a: usize, b: usize, c: usize) -> ! {
    naked_asm!(
        "mov rsp, rdi",
        "mov rax, rsi",
        "mov rdi, rdx",
        "mov rsi, rcx",
        "mov rdx, r8",
        "xor ebp, ebp",
        "call rax",
        "ud2",
    )
}

/// Makes the context of a new thread: when resumed, it calls `landing(a, b, c)` on the stack that
/// ends at `stack`.
///
/// # Safety
///
/// `stack` is the end of a writable stack with at least 64 bytes that nothing else uses.
pub unsafe fn prepare(stack: usize, landing: Landing, a: usize, b: usize, c: usize) -> usize {
    let top = (stack & !15) as *mut usize;
    // SAFETY: the caller vouches for 64 bytes below `stack`; five words and the alignment fit.
    unsafe {
        let context = top.sub(6);
        context.write(start as *const () as usize);
        context.add(1).write(landing as usize);
        context.add(2).write(a);
        context.add(3).write(b);
        context.add(4).write(c);
        context.add(5).write(0);
        context as usize
    }
}

/// The first instructions of a new thread: takes what [`prepare`] left on the stack.
#[unsafe(naked)]
extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "pop rax",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "add rsp, 8",
        "xor ebp, ebp",
        "call rax",
        "ud2",
        ".cfi_endproc",
    )
}
