//! The pseudo-register of an activation on AArch64: one word beside the thread pointer.
//!
//! There is no register to spare. Programs and libc use x18 as they like, so a signal handler finds what they left in it.
//! tpidrro_el0 cannot be written. tpidr2_el0 belongs to SME. The thread pointer, tpidr_el0, is the only register that
//! program code leaves alone, and it says which *thread* runs. So each thread has one word at a fixed distance from its
//! thread pointer: a variable of static thread-local storage, which every thread of libc's has. The word holds the
//! activation that carries the thread now.
//!
//! 1. An activation that installs a thread writes itself into the thread's word. Then it points tpidr_el0 there
//!    ([`set_thread_pointer`]).
//! 2. When the thread is saved, and before anybody else can find it, the activation points tpidr_el0 at itself
//!    ([`rest`]). The word at that distance is then the first of its own, which holds its own address.
//! 3. If the word is 0, the kernel thread is no activation: new static storage is zeroed.
//!
//! Finding the activation and touching a word of it takes several instructions. Only a signal handler moves a thread. So
//! these sequences stand together, each in 32 bytes. A handler that meets a thread in a sequence first sends it back to
//! the start of that sequence ([`restart`]). Each sequence may be repeated from any of its instructions.
//!
//! A child that shares memory *and* thread pointer (vfork(2)) shares the word too. The guest must tell it apart by its lent
//! thread.
//!
//! Rejected: finding the activation by the stack pointer. A thread's stack is libc's or the program's, of any size and
//! alignment, and a thread keeps it when it moves.
//!
//! This file's tests run it, in an emulator. There is no guest for the processor yet.

use core::arch::{asm, global_asm};

use crate::state::{Activation, Thread};

global_asm!(
    // A sequence: x0 = the activation, then what is given, then the return.
    ".macro upcall_base name",
    ".p2align 5",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name,@function",
    "\\name:",
    "mrs x0, tpidr_el0",
    "adrp x1, :gottprel:upcall_activation",
    "ldr x1, [x1, :gottprel_lo12:upcall_activation]",
    "ldr x0, [x0, x1]",
    ".endm",
    //
    ".section .tbss.upcall_activation,\"awT\",@nobits",
    ".p2align 3",
    ".hidden upcall_activation",
    ".type upcall_activation,@object",
    ".size upcall_activation, 8",
    "upcall_activation: .zero 8",
    //
    ".section .text.upcall_base,\"ax\",@progbits",
    ".p2align 5",
    ".globl upcall_base_start",
    ".hidden upcall_base_start",
    "upcall_base_start:",
    "upcall_base upcall_base_current",
    "ret",
    "upcall_base upcall_base_thread",
    "ldr x0, [x0, #{thread}]",
    "ret",
    "upcall_base upcall_base_is_inside",
    "ldr w0, [x0, #{inside}]",
    "ret",
    "upcall_base upcall_base_set_inside",
    "mov w1, #1",
    "str w1, [x0, #{inside}]",
    "ret",
    "upcall_base upcall_base_clear_inside",
    "str wzr, [x0, #{inside}]",
    "ldr w0, [x0, #{attention}]",
    "ret",
    ".p2align 5",
    ".globl upcall_base_end",
    ".hidden upcall_base_end",
    "upcall_base_end:",
    //
    // How far the word lies from the thread pointer.
    ".globl upcall_base_distance",
    ".hidden upcall_base_distance",
    ".type upcall_base_distance,@function",
    "upcall_base_distance:",
    "adrp x0, :gottprel:upcall_activation",
    "ldr x0, [x0, :gottprel_lo12:upcall_activation]",
    "ret",
    ".text",
    thread = const Activation::OFFSET_THREAD,
    inside = const Activation::OFFSET_INSIDE,
    attention = const Activation::OFFSET_ATTENTION,
);

unsafe extern "C" {
    safe fn upcall_base_start();
    safe fn upcall_base_end();
    safe fn upcall_base_distance() -> usize;
    safe fn upcall_base_current() -> usize;
    fn upcall_base_thread() -> usize;
    fn upcall_base_is_inside() -> u32;
    fn upcall_base_set_inside();
    fn upcall_base_clear_inside() -> u32;
}

/// Where a thread that a signal has met at `pc` must continue: there, or at the start of the
/// sequence that it is in. Handlers ask before they do anything else.
pub fn restart(pc: usize) -> usize {
    let sequences = upcall_base_start as *const () as usize..upcall_base_end as *const () as usize;
    if sequences.contains(&pc) {
        pc & !31
    } else {
        pc
    }
}

/// Nothing to look up: programs may always write their thread pointer.
pub fn detect() {}

/// Whether programs may write their thread pointer without a system call.
pub fn is_writable() -> bool {
    true
}

/// Writes the calling kernel thread's `activation` into the word beside its thread pointer.
pub fn set(activation: Option<&Activation>) {
    let address = activation.map_or(0, |activation| core::ptr::from_ref(activation) as usize);
    // SAFETY: the word is in the storage of the thread that runs, or it is the activation's own.
    unsafe { *(word(thread_pointer()) as *mut usize) = address };
}

/// The calling activation has saved its thread, or is new: its thread pointer leads to itself.
/// Whether it gave up the thread's: yes.
#[inline(always)]
pub fn rest(activation: &Activation) -> bool {
    let own = core::ptr::from_ref(activation) as usize + Activation::OFFSET_THIS;
    // SAFETY: nothing reads thread-local storage until a thread is installed, but for the word,
    // which is the activation's own address.
    unsafe { write_pointer(own.wrapping_sub(upcall_base_distance())) };
    true
}

/// Points the thread pointer of the calling kernel thread, `activation`, at `base`.
///
/// # Safety
///
/// `base` is the thread control block of the thread that is about to run.
#[inline(always)]
pub(crate) unsafe fn set_thread_pointer(activation: &Activation, base: usize) {
    // SAFETY: the caller vouches for the base, and that nobody else runs the thread.
    unsafe {
        *(word(base) as *mut *const Activation) = activation;
        write_pointer(base);
    }
}

/// The calling kernel thread's thread pointer.
pub fn thread_pointer() -> usize {
    let base: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) base, options(nostack, nomem)) };
    base
}

/// Writes the value that the thread pointer has into it. Whether the value is there afterwards.
pub fn rewrite() -> bool {
    let before = thread_pointer();
    // SAFETY: the value just read: thread-local storage stays where it is.
    unsafe { write_pointer(before) };
    before == thread_pointer()
}

fn word(base: usize) -> usize {
    base.wrapping_add(upcall_base_distance())
}

/// # Safety
///
/// `base` is the thread pointer of what runs next.
#[inline(always)]
unsafe fn write_pointer(base: usize) {
    // SAFETY: the caller vouches for the base.
    unsafe { asm!("msr tpidr_el0, {}", in(reg) base, options(nostack)) };
}

/// The activation of the calling kernel thread.
///
/// # Safety
///
/// The calling kernel thread is an activation.
#[inline(always)]
pub unsafe fn current() -> &'static Activation {
    // SAFETY: the caller vouches for it.
    unsafe { &*(upcall_base_current() as *const Activation) }
}

/// The thread that executes this call, on whatever activation.
///
/// # Safety
///
/// As [`current`].
#[inline(always)]
pub unsafe fn current_thread() -> Option<&'static Thread> {
    // SAFETY: as `current`.
    unsafe { (upcall_base_thread() as *const Thread).as_ref() }
}

/// Whether the current activation is inside the runtime.
///
/// # Safety
///
/// As [`current`].
#[inline(always)]
pub unsafe fn is_inside() -> bool {
    // SAFETY: as `current`.
    unsafe { upcall_base_is_inside() != 0 }
}

/// Whether the calling kernel thread has a pseudo-register at all.
#[inline(always)]
pub fn is_set() -> bool {
    upcall_base_current() != 0
}

/// What the word beside the thread pointer holds.
pub fn read() -> usize {
    upcall_base_current()
}

/// Programs have no part in the word: there is nothing to give back to them.
///
/// # Safety
///
/// None.
pub unsafe fn write(_base: usize) {}

/// What the program has put there: nothing.
pub fn of_program(_value: usize) -> usize {
    0
}

/// The thread that makes this call, if an activation carries one.
#[inline(always)]
pub fn program_thread() -> Option<&'static Thread> {
    if !is_set() {
        return None;
    }
    // SAFETY: the word is set.
    unsafe { current_thread() }
}

/// Marks the current activation as inside the runtime.
///
/// # Safety
///
/// As [`current`].
#[inline(always)]
pub unsafe fn set_inside() {
    // SAFETY: as `current`.
    unsafe { upcall_base_set_inside() }
}

/// Takes the mark away; whether anything waits for attention.
///
/// # Safety
///
/// As [`current`].
#[inline(always)]
pub unsafe fn clear_inside() -> bool {
    // SAFETY: as `current`.
    unsafe { upcall_base_clear_inside() != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_between_two_instructions_of_a_sequence_begins_it_again() {
        for start in [
            upcall_base_current as *const () as usize,
            upcall_base_thread as *const () as usize,
            upcall_base_is_inside as *const () as usize,
            upcall_base_set_inside as *const () as usize,
            upcall_base_clear_inside as *const () as usize,
        ] {
            assert_eq!(start % 32, 0);
            assert!((start..start + 32).all(|pc| restart(pc) == start));
        }
        for outside in [
            upcall_base_start as *const () as usize - 4,
            upcall_base_end as *const () as usize,
        ] {
            assert_eq!(restart(outside), outside);
        }
    }

    #[test]
    fn each_kernel_thread_has_a_word_of_its_own() {
        assert!(!is_set());
        let place = vec![0u8; size_of::<Activation>() + align_of::<Activation>()].leak();
        let address = (place.as_ptr() as usize).next_multiple_of(align_of::<Activation>());
        // SAFETY: large enough; only its address is used.
        let activation = unsafe { &*(address as *const Activation) };
        set(Some(activation));
        assert!(is_set());
        // SAFETY: it is set.
        assert!(core::ptr::eq(unsafe { current() }, activation));
        std::thread::spawn(|| assert!(!is_set()))
            .join()
            .expect("not set");
        set(None);
    }
}
