//! The pseudo-register of an activation on x86-64: the GS base, which no Linux C library uses.
//!
//! Each kernel thread's GS base points at its [`Activation`]. One instruction reads a field through it. So a thread that is
//! moved to another activation between two instructions never mixes the two.
//!
//! A program may write the register itself. It may also write back what it has read before: the activation on which the
//! thread ran then. So where the program's code has run, the register is believed only after a check ([`program_thread`]):
//! the thread that the activation carries must have the thread pointer of the calling kernel thread, which no other thread
//! has. (A program that gives two threads one thread pointer, and also does this, breaks itself.)

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::state::{Activation, Thread, activations};

const ARCH_SET_GS: usize = 0x1001;
const ARCH_SET_FS: usize = 0x1002;
const ARCH_GET_FS: usize = 0x1003;
const ARCH_GET_GS: usize = 0x1004;
const AT_HWCAP2: u64 = 26;
const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// Whether the instructions `wrfsbase` and `wrgsbase` may be used (Linux 5.9, x86).
static FAST: AtomicBool = AtomicBool::new(false);

/// Looks once whether the kernel lets programs write FS and GS themselves.
pub fn detect() {
    FAST.store(is_writable(), Ordering::Relaxed);
}

/// Whether the kernel says so. (Linux 5.9 and later; `nofsgsbase` takes it back.)
pub fn is_writable() -> bool {
    // SAFETY: getauxval reads the auxiliary vector of the process.
    let bits = unsafe { libc::getauxval(AT_HWCAP2) };
    bits & HWCAP2_FSGSBASE != 0
}

/// Points the calling kernel thread's GS base at `activation`, or nowhere.
pub fn set(activation: Option<&Activation>) {
    let address = activation.map_or(0, |activation| core::ptr::from_ref(activation) as usize);
    // SAFETY: the caller's activation.
    unsafe { write(address) };
}

/// The calling activation has saved its thread, or is new. Whether it gave up the thread pointer:
/// no, the pseudo-register is another.
#[inline(always)]
pub fn rest(_activation: &Activation) -> bool {
    false
}

/// Points the FS base, the thread pointer, of the calling kernel thread, `_activation`, at `base`.
///
/// # Safety
///
/// `base` is the thread control block of the thread that is about to run.
#[inline(always)]
pub(crate) unsafe fn set_thread_pointer(_activation: &Activation, base: usize) {
    if FAST.load(Ordering::Relaxed) {
        // SAFETY: the kernel allows the instruction (AT_HWCAP2); the caller vouches for the base.
        unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack)) };
    } else {
        // SAFETY: the caller vouches for the base.
        unsafe { sys!(libc::SYS_arch_prctl, ARCH_SET_FS, base) };
    }
}

/// The calling kernel thread's FS base.
#[inline]
pub fn thread_pointer() -> usize {
    let base: usize;
    if FAST.load(Ordering::Relaxed) {
        // SAFETY: the kernel allows the instruction (AT_HWCAP2).
        unsafe { asm!("rdfsbase {}", out(reg) base, options(nostack, nomem)) };
        base
    } else {
        let mut base = 0usize;
        // SAFETY: writes one word to `base`.
        unsafe { sys!(libc::SYS_arch_prctl, ARCH_GET_FS, &raw mut base) };
        base
    }
}

/// Writes the value that the thread pointer has into it, by the instruction that [`detect`] asks
/// about: SIGILL where it is not allowed. Whether the value is there afterwards.
pub fn rewrite() -> bool {
    let (before, after): (u64, u64);
    // SAFETY: writes the value just read, so thread-local storage stays where it is.
    unsafe {
        asm!(
            "rdfsbase {before}",
            "wrfsbase {before}",
            "rdfsbase {after}",
            before = out(reg) before,
            after = out(reg) after,
            options(nostack, preserves_flags),
        );
    }
    before == after
}

/// The activation of the calling kernel thread.
///
/// # Safety
///
/// The calling kernel thread is an activation (its GS base was set with [`set`]).
#[inline(always)]
pub unsafe fn current() -> &'static Activation {
    let address: *const Activation;
    // SAFETY: the caller vouches that GS points at an activation, whose first word is its own
    // address. Not `pure`: the answer changes when the thread migrates.
    unsafe {
        asm!(
            "mov {}, gs:[{offset}]",
            out(reg) address,
            offset = const Activation::OFFSET_THIS,
            options(nostack, preserves_flags),
        );
        &*address
    }
}

/// The thread that executes this call, on whatever activation.
///
/// # Safety
///
/// As [`current`].
#[inline(always)]
pub unsafe fn current_thread() -> Option<&'static Thread> {
    let address: *const Thread;
    // SAFETY: as `current`: the thread's address is read from the activation's own word, by one
    // instruction, so a thread always finds itself.
    unsafe {
        asm!(
            "mov {}, gs:[{offset}]",
            out(reg) address,
            offset = const Activation::OFFSET_THREAD,
            options(nostack, preserves_flags),
        );
        address.as_ref()
    }
}

/// Whether the current activation is inside the runtime.
///
/// # Safety
///
/// As [`current`].
#[inline(always)]
pub unsafe fn is_inside() -> bool {
    let inside: u32;
    // SAFETY: as `current`; one load of the activation's own word.
    unsafe {
        asm!(
            "mov {:e}, gs:[{offset}]",
            out(reg) inside,
            offset = const Activation::OFFSET_INSIDE,
            options(nostack, preserves_flags),
        );
    }
    inside != 0
}

/// What the register holds, no matter which code has written it.
#[inline(always)]
pub fn read() -> usize {
    let base: usize;
    if FAST.load(Ordering::Relaxed) {
        // SAFETY: the kernel allows the instruction (AT_HWCAP2).
        unsafe { asm!("rdgsbase {}", out(reg) base, options(nostack, nomem)) };
    } else {
        let mut value = 0usize;
        // SAFETY: writes one word.
        unsafe { sys!(libc::SYS_arch_prctl, ARCH_GET_GS, &raw mut value) };
        base = value;
    }
    base
}

/// Writes the register.
///
/// # Safety
///
/// `base` leads to the activation of the calling kernel thread, or the program's code runs next.
pub unsafe fn write(base: usize) {
    if FAST.load(Ordering::Relaxed) {
        // SAFETY: the kernel allows the instruction (AT_HWCAP2), and the value is one that the register had.
        unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, nomem)) };
    } else {
        // SAFETY: sets a register of the calling kernel thread.
        unsafe { sys!(libc::SYS_arch_prctl, ARCH_SET_GS, base) };
    }
}

/// What the program has put into the register if it holds `value`; 0: nothing, the value is one of ours.
pub fn of_program(value: usize) -> usize {
    if activations::contains(value) || activations::is_mark(value) {
        0
    } else {
        value
    }
}

/// Whether the calling kernel thread has a pseudo-register at all: an activation's, or a mark.
#[inline(always)]
pub fn is_set() -> bool {
    let value = read();
    activations::contains(value) || activations::is_mark(value)
}

/// The thread that makes this call, if the register leads to the activation that carries it. `None`: it may
/// hold anything, or the activation has no thread.
#[inline(always)]
pub fn program_thread() -> Option<&'static Thread> {
    if !activations::contains(read()) {
        return None;
    }
    // SAFETY: in the range there are activations only, which stay; a reserved part holds none and is not led to.
    let thread = unsafe { current_thread() }?;
    // Without the instructions a program writes the register by system calls only, and never reads ours.
    let is_its = !FAST.load(Ordering::Relaxed)
        || thread.kernel.thread_pointer.load(Ordering::Relaxed) == thread_pointer();
    is_its.then_some(thread)
}

/// Marks the current activation as inside the runtime.
///
/// # Safety
///
/// As [`current`].
#[inline(always)]
pub unsafe fn set_inside() {
    // SAFETY: as `current`; one store to the activation's own word.
    unsafe {
        asm!(
            "mov dword ptr gs:[{offset}], 1",
            offset = const Activation::OFFSET_INSIDE,
            options(nostack, preserves_flags),
        );
    }
}

/// Takes the mark away; whether anything waits for attention.
///
/// # Safety
///
/// As [`current`].
#[inline(always)]
pub unsafe fn clear_inside() -> bool {
    let attention: u32;
    // SAFETY: as `current`. A migration between the two instructions makes the second one look at
    // the other activation's word, at worst for nothing.
    unsafe {
        asm!(
            "mov dword ptr gs:[{inside}], 0",
            "mov {attention:e}, gs:[{offset}]",
            inside = const Activation::OFFSET_INSIDE,
            offset = const Activation::OFFSET_ATTENTION,
            attention = out(reg) attention,
            options(nostack, preserves_flags),
        );
    }
    attention != 0
}
