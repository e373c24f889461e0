//! AArch64, procedure call standard (AAPCS64). Run by the deterministic scenarios in an emulator only.
//!
//! ```text
//!   saved context ──▶ continue, fpcr, x19..x30, d8..d15    (low to high, 176 bytes)
//! ```

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

/// Brings the first two lines of an object into the caches, for which nobody waits: the next of a crowd is worked on soon.
#[inline(always)]
pub fn prefetch<T>(object: &T) {
    // SAFETY: a hint, which changes nothing and faults nowhere.
    unsafe {
        asm!(
            "prfm pldl1keep, [{at}]",
            "prfm pldl1keep, [{at}, #64]",
            at = in(reg) core::ptr::from_ref(object),
            options(nostack, preserves_flags, readonly),
        );
    }
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

/// The control word of floating-point arithmetic.
pub type Control = u64;

/// The processor's control word.
#[inline]
pub fn control() -> Control {
    let control;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, fpcr", out(reg) control, options(nomem, nostack, preserves_flags)) };
    control
}

/// Loads a control word, if it is another than the processor's.
#[inline]
pub fn load_control(wanted: Control) {
    if control() != wanted {
        // SAFETY: writes a word that the register has had.
        unsafe { asm!("msr fpcr, {}", in(reg) wanted, options(nomem, nostack, preserves_flags)) };
    }
}

/// This context will be continued with this control word.
///
/// # Safety
///
/// As [`saved_control`]; nobody else reads or writes it meanwhile.
pub unsafe fn set_saved_control(context: usize, control: Control) {
    // SAFETY: the caller vouches for the context.
    unsafe { (context as *mut u64).add(1).write(control) };
}

/// As [`set_saved_control`], with the caller's.
///
/// # Safety
///
/// As there.
pub unsafe fn inherit_control(context: usize) {
    // SAFETY: the caller's promise.
    unsafe { set_saved_control(context, control()) };
}

/// The control word with which this context will be continued.
///
/// # Safety
///
/// `context` was stored by [`switch_out`] or made by [`prepare`], and is not continued meanwhile.
pub unsafe fn saved_control(context: usize) -> Control {
    // SAFETY: the caller vouches for the context.
    unsafe { (context as *const u64).add(1).read() }
}

/// Continues a saved context. `control`: the processor's control word.
///
/// # Safety
///
/// `context` was stored by [`switch_out`] or made by [`prepare`], and is continued once; `control` is what [`control`]
/// would tell.
#[unsafe(naked)]
pub unsafe extern "C" fn resume(context: usize, control: Control) -> ! {
    naked_asm!(
        "mov sp, x0",
        "ldp x10, x9, [sp]",
        "cmp x9, x1",
        "b.eq 2f",
        "msr fpcr, x9",
        "2:",
        "br x10",
    )
}

/// Makes the context of a new thread: when resumed, it calls `landing(a, b, c)` on the stack that
/// ends at `stack`, with the control word of the caller.
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
        context.add(1).write(control() as usize);
        context.add(2).write(landing as usize);
        context.add(3).write(a);
        context.add(4).write(b);
        context.add(5).write(c);
        context as usize
    }
}

/// The first instructions of a new thread: takes what [`prepare`] left on the stack.
#[unsafe(naked)]
extern "C" fn start() {
    naked_asm!(
        "ldp x9, x0, [sp, #16]",
        "ldp x1, x2, [sp, #32]",
        "add sp, sp, #48",
        "mov x29, xzr",
        "mov x30, xzr",
        "br x9",
    )
}
