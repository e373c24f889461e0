//! AArch64, procedure call standard (AAPCS64). Run by the deterministic scenarios in an emulator only.
//!
//! ```text
//!   saved context ──▶ continue, fpcr, x19..x30, d8..d15    (low to high, 176 bytes)
//! ```

use core::arch::naked_asm;

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
        "sub sp, sp, #176",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp x29, x30, [sp, #96]",
        "stp d8, d9, [sp, #112]",
        "stp d10, d11, [sp, #128]",
        "stp d12, d13, [sp, #144]",
        "stp d14, d15, [sp, #160]",
        "mrs x9, fpcr",
        "adr x10, 2f",
        "stp x10, x9, [sp]",
        "mov x9, sp",
        "str x9, [x0]",
        "mov sp, x1",
        "mov x9, x2",
        "mov x0, x3",
        "mov x1, x4",
        "mov x2, x5",
        "mov x29, xzr",
        "mov x30, xzr",
        "br x9",
        "2:",
        "ldr x9, [sp, #8]",
        "msr fpcr, x9",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp x29, x30, [sp, #96]",
        "ldp d8, d9, [sp, #112]",
        "ldp d10, d11, [sp, #128]",
        "ldp d12, d13, [sp, #144]",
        "ldp d14, d15, [sp, #160]",
        "add sp, sp, #176",
        "ret",
    )
}

/// Where a saved thread is.
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    /// The next instruction.
    pub ip: usize,
    /// The stack pointer there.
    pub sp: usize,
}

/// Where a thread with this context is.
///
/// # Safety
///
/// `context` was stored by [`switch_out`] and is not continued meanwhile.
pub unsafe fn saved(context: usize) -> Saved {
    /// Of x30, the return address, in the context.
    const LINK: usize = 104;
    Saved {
        // SAFETY: the words that `switch_out` has stored.
        ip: unsafe { ((context + LINK) as *const usize).read() },
        sp: context + 176,
    }
}

/// Continues a saved context.
///
/// # Safety
///
/// `context` was stored by [`switch_out`] or made by [`prepare`], and is continued once.
#[unsafe(naked)]
pub unsafe extern "C" fn resume(context: usize) -> ! {
    naked_asm!("mov sp, x0", "ldr x9, [sp]", "br x9")
}

/// Calls `landing(a, b, c)` on the stack that ends at `stack`, leaving the current one for ever.
///
/// # Safety
///
/// `stack` is the 16-byte aligned end of a free stack, and `landing` does not return.
#[unsafe(naked)]
pub unsafe extern "C" fn enter(stack: usize, landing: Landing, a: usize, b: usize, c: usize) -> ! {
    naked_asm!(
        "mov sp, x0",
        "mov x9, x1",
        "mov x0, x2",
        "mov x1, x3",
        "mov x2, x4",
        "mov x29, xzr",
        "mov x30, xzr",
        "br x9",
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
    // SAFETY: the caller vouches for 64 bytes below `stack`.
    unsafe {
        let context = top.sub(6);
        context.write(start as *const () as usize);
        context.add(1).write(landing as usize);
        context.add(2).write(a);
        context.add(3).write(b);
        context.add(4).write(c);
        context as usize
    }
}

/// The first instructions of a new thread: takes what [`prepare`] left on the stack.
#[unsafe(naked)]
extern "C" fn start() {
    naked_asm!(
        "ldr x9, [sp, #8]",
        "ldp x0, x1, [sp, #16]",
        "ldr x2, [sp, #32]",
        "add sp, sp, #48",
        "mov x29, xzr",
        "mov x30, xzr",
        "br x9",
    )
}
