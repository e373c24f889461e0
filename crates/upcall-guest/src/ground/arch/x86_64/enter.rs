//! The assembly between a stub and the handlers.
//!
//! A stub arrives by `call` with the red zone skipped, rcx = the original address after the system call (the kernel leaves
//! the same there), r11 = the stub's own copy of the system call.
//!
//! 1. The flags, r11 and rcx are pushed. Below them a [`Frame`] is made, aligned to 64 bytes; above it, in the wide
//!    variants, the complete vector state.
//! 2. The hook runs on the frame.
//! 3. `CONTINUE`: everything is reloaded and `ret` goes back into the stub. The `call` and the `ret` pair up, as the
//!    processor's return predictor wants. Other modes go through `upcall_load`, which loads everything from a frame at any
//!    address and jumps.
//!
//! Invariants: the stack pointer leaves the frame only after its last word was read, so a signal at any instruction finds
//! it intact. Flags come back through `sahf` unless DF or AC is set (`popf` alone would cost more than all the rest).
//! Nothing here needs TLS, or memory beyond the frame and eight bytes below it.
//!
//! Unwinding: at every instruction the caller is the original code at `rip`, with the site's stack pointer and callee-saved
//! registers from the frame. Debuggers, exceptions and cancellation see no stub.

use core::arch::global_asm;
use core::mem::offset_of;

use crate::ground::entry::{AFTER, Frame, HANDLER, mode};

use super::state::{WIDE_KIND, WIDE_MASK, WIDE_SIZE, XSAVE};

/// Returns the least significant byte of a two-byte SLEB128 of a frame offset.
const fn low(offset: usize) -> u8 {
    (offset & 0x7f) as u8 | 0x80
}

/// Returns the most significant byte of it.
const fn high(offset: usize) -> u8 {
    assert!(offset < 0x2000);
    (offset >> 7) as u8
}

const FRAME_SIZE: usize = size_of::<Frame>();
const _: () = assert!(FRAME_SIZE.is_multiple_of(64) && align_of::<Frame>() == 64);
/// What `call` pushed, and the red zone above it.
const ABOVE: usize = 8 + 128;
/// Of the stub's `lea 128(%rsp),%rsp` after the call, which [`Frame::resume`] skips.
pub(crate) const UNSKIP_LENGTH: usize = 8;

macro_rules! offsets {
    ($($text:expr,)*; $($name:ident = $field:ident,)*) => {
        global_asm!(
            $($text,)*
            $($name = const offset_of!(Frame, $field),)*
            frame_size = const FRAME_SIZE,
            above = const ABOVE,
            unskip = const UNSKIP_LENGTH,
            slow_flags = const 0x40400,
            no_trap = const !0x100i32,
            at_site_mode = const mode::AT_SITE,
            xsave = const XSAVE,
            wide_size = sym WIDE_SIZE,
            wide_mask = sym WIDE_MASK,
            wide_kind = sym WIDE_KIND,
            handler = sym HANDLER,
            after = sym AFTER,
            sp_l = const low(offset_of!(Frame, rsp)), sp_h = const high(offset_of!(Frame, rsp)),
            ip_l = const low(offset_of!(Frame, rip)), ip_h = const high(offset_of!(Frame, rip)),
            bx_l = const low(offset_of!(Frame, rbx)), bx_h = const high(offset_of!(Frame, rbx)),
            bp_l = const low(offset_of!(Frame, rbp)), bp_h = const high(offset_of!(Frame, rbp)),
            c_l = const low(offset_of!(Frame, r12)), c_h = const high(offset_of!(Frame, r12)),
            d_l = const low(offset_of!(Frame, r13)), d_h = const high(offset_of!(Frame, r13)),
            e_l = const low(offset_of!(Frame, r14)), e_h = const high(offset_of!(Frame, r14)),
            f_l = const low(offset_of!(Frame, r15)), f_h = const high(offset_of!(Frame, r15)),
        );
    };
}

// SAFETY of the assembly: it is reached from stubs only, with the registers described above. It
// saves every register that it or the hook may change and reloads it, keeps the stack aligned
// for the C call, and reads no memory but the frame and three words of ours. The CFI describes
// each instruction as the module's text says; a signal may land anywhere.
offsets! {
    // DW_CFA_def_cfa_expression: breg<r> + rsp, deref; DW_CFA_expression: breg<r> + field.
    ".macro upcall_unwind_from breg",
    ".cfi_escape 0x0f, 4, \\breg, {sp_l}, {sp_h}, 0x06",
    ".cfi_escape 0x10, 16, 3, \\breg, {ip_l}, {ip_h}",
    ".cfi_escape 0x10, 3, 3, \\breg, {bx_l}, {bx_h}",
    ".cfi_escape 0x10, 6, 3, \\breg, {bp_l}, {bp_h}",
    ".cfi_escape 0x10, 12, 3, \\breg, {c_l}, {c_h}",
    ".cfi_escape 0x10, 13, 3, \\breg, {d_l}, {d_h}",
    ".cfi_escape 0x10, 14, 3, \\breg, {e_l}, {e_h}",
    ".cfi_escape 0x10, 15, 3, \\breg, {f_l}, {f_h}",
    ".endm",

    ".macro upcall_load_xmm base",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movups xmm\\n, xmmword ptr [\\base + {xmm} + 16*\\n]",
    ".endr",
    ".endm",

    // The arithmetic flags from eax; clobbers eax and r11. DF and AC must be clear in it.
    ".macro upcall_flags",
    "mov r11d, eax",
    "shr r11d, 11",
    "and r11d, 1",
    "mov ah, al",
    "add r11b, 0x7f",
    "sahf",
    ".endm",

    ".macro upcall_entry name, hook, wide",
    ".p2align 6",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name,@function",
    "\\name:",
    ".cfi_startproc",
    ".cfi_def_cfa 7, {above}",
    ".cfi_register 16, 2",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "push r11",
    ".cfi_adjust_cfa_offset 8",
    "push rcx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset 16, 0",
    "mov rcx, rsp",
    ".cfi_def_cfa_register 2",
    ".if \\wide",
    "sub rsp, qword ptr [rip + {wide_size}]",
    ".endif",
    "sub rsp, {frame_size}",
    "and rsp, -64",
    "mov qword ptr [rsp + {rax}], rax",
    "mov qword ptr [rsp + {rdi}], rdi",
    "mov qword ptr [rsp + {rsi}], rsi",
    "mov qword ptr [rsp + {rdx}], rdx",
    "mov qword ptr [rsp + {r10}], r10",
    "mov qword ptr [rsp + {r8}], r8",
    "mov qword ptr [rsp + {r9}], r9",
    "mov qword ptr [rsp + {rbx}], rbx",
    "mov qword ptr [rsp + {rbp}], rbp",
    "mov qword ptr [rsp + {r12}], r12",
    "mov qword ptr [rsp + {r13}], r13",
    "mov qword ptr [rsp + {r14}], r14",
    "mov qword ptr [rsp + {r15}], r15",
    "mov rax, qword ptr [rcx]",
    "mov qword ptr [rsp + {rip}], rax",
    "mov rdx, qword ptr [rcx + 8]",
    "mov qword ptr [rsp + {at_site}], rdx",
    "mov rax, qword ptr [rcx + 16]",
    "mov qword ptr [rsp + {rflags}], rax",
    "mov rdx, qword ptr [rcx + 24]",
    "add rdx, {unskip}",
    "mov qword ptr [rsp + {resume}], rdx",
    "lea rdx, [rcx + 24]",
    "mov qword ptr [rsp + {return_slot}], rdx",
    "lea rdx, [rcx + 24 + {above}]",
    "mov qword ptr [rsp + {rsp}], rdx",
    "upcall_unwind_from 0x77",
    "xor edx, edx",
    "mov qword ptr [rsp + {mode}], rdx",
    "mov qword ptr [rsp + {wide}], rdx",
    "mov qword ptr [rsp + {made}], rdx",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps xmmword ptr [rsp + {xmm} + 16*\\n], xmm\\n",
    ".endr",
    "test eax, {slow_flags}",
    "jz 1f",
    "mov rcx, rsp",
    "upcall_unwind_from 0x72",
    "and eax, ~{slow_flags} & {no_trap}",
    "push rax",
    "popfq",
    "upcall_unwind_from 0x77",
    "1:",
    ".if \\wide",
    "lea rdi, [rsp + {frame_size}]",
    "mov qword ptr [rsp + {wide}], rdi",
    "pxor xmm0, xmm0",
    "movaps xmmword ptr [rdi + 512], xmm0",
    "movaps xmmword ptr [rdi + 528], xmm0",
    "movaps xmmword ptr [rdi + 544], xmm0",
    "movaps xmmword ptr [rdi + 560], xmm0",
    "movaps xmm0, xmmword ptr [rsp + {xmm}]",
    "mov eax, dword ptr [rip + {wide_mask}]",
    "cmp dword ptr [rip + {wide_kind}], {xsave}",
    "jb 2f",
    "je 3f",
    "xsavec64 [rdi]",
    "jmp 4f",
    "2: fxsave64 [rdi]",
    "jmp 4f",
    "3: xsave64 [rdi]",
    "4:",
    ".endif",
    "mov rdi, rsp",
    "call qword ptr [rip + \\hook]",
    "cmp qword ptr [rsp + {mode}], 0",
    "jne 7f",
    "upcall_load_xmm rsp",
    ".if \\wide",
    "lea rdi, [rsp + {frame_size}]",
    "mov eax, dword ptr [rip + {wide_mask}]",
    "xor edx, edx",
    "cmp dword ptr [rip + {wide_kind}], {xsave}",
    "jb 5f",
    "xrstor64 [rdi]",
    "jmp 6f",
    "5: fxrstor64 [rdi]",
    "6:",
    ".endif",
    "mov eax, dword ptr [rsp + {rflags}]",
    "mov rdi, qword ptr [rsp + {rdi}]",
    "mov rsi, qword ptr [rsp + {rsi}]",
    "mov rdx, qword ptr [rsp + {rdx}]",
    "mov r10, qword ptr [rsp + {r10}]",
    "mov r8, qword ptr [rsp + {r8}]",
    "mov r9, qword ptr [rsp + {r9}]",
    "mov rbx, qword ptr [rsp + {rbx}]",
    "mov rbp, qword ptr [rsp + {rbp}]",
    "mov r12, qword ptr [rsp + {r12}]",
    "mov r13, qword ptr [rsp + {r13}]",
    "mov r14, qword ptr [rsp + {r14}]",
    "mov r15, qword ptr [rsp + {r15}]",
    "test eax, {slow_flags}",
    "jnz 8f",
    "upcall_flags",
    "9:",
    "mov rcx, qword ptr [rsp + {rip}]",
    "mov rax, qword ptr [rsp + {rax}]",
    "mov rsp, qword ptr [rsp + {return_slot}]",
    ".cfi_remember_state",
    ".cfi_def_cfa 7, {above}",
    ".cfi_register 16, 2",
    ".cfi_same_value 3",
    ".cfi_same_value 6",
    ".cfi_same_value 12",
    ".cfi_same_value 13",
    ".cfi_same_value 14",
    ".cfi_same_value 15",
    "ret",
    ".cfi_restore_state",
    "8:",
    "mov rcx, rsp",
    ".cfi_remember_state",
    "upcall_unwind_from 0x72",
    "and eax, {no_trap}",
    "push rax",
    "popfq",
    "jmp 9b",
    ".cfi_restore_state",
    "7:",
    "mov rdi, rsp",
    "mov rsi, qword ptr [rsp + {resume}]",
    "cmp qword ptr [rsp + {mode}], {at_site_mode}",
    "cmove rsi, qword ptr [rsp + {at_site}]",
    "jmp upcall_load",
    ".cfi_endproc",
    ".size \\name, . - \\name",
    ".endm",

    "upcall_entry upcall_enter, {handler}, 0",
    "upcall_entry upcall_enter_wide, {handler}, 1",
    "upcall_entry upcall_after, {after}, 0",
    "upcall_entry upcall_after_wide, {after}, 1",

    // Loads everything from the frame at rdi and jumps to rsi. Runs on whatever stack it is
    // called on and needs 16 bytes of it at most.
    ".p2align 6",
    ".globl upcall_load",
    ".hidden upcall_load",
    ".type upcall_load,@function",
    "upcall_load:",
    ".cfi_startproc",
    "upcall_unwind_from 0x75",
    "mov rcx, rdi",
    "upcall_unwind_from 0x72",
    "mov r8, rsi",
    "upcall_load_xmm rcx",
    "mov rdi, qword ptr [rcx + {wide}]",
    "test rdi, rdi",
    "jz 2f",
    "mov eax, dword ptr [rip + {wide_mask}]",
    "xor edx, edx",
    "cmp dword ptr [rip + {wide_kind}], {xsave}",
    "jb 1f",
    "xrstor64 [rdi]",
    "jmp 2f",
    "1: fxrstor64 [rdi]",
    "2:",
    "mov eax, dword ptr [rcx + {rflags}]",
    "test eax, {slow_flags}",
    "jnz 3f",
    "upcall_flags",
    "jmp 4f",
    "3:",
    "and eax, {no_trap}",
    "push rax",
    "popfq",
    "4:",
    "mov r11, r8",
    "mov rax, qword ptr [rcx + {rax}]",
    "mov rdi, qword ptr [rcx + {rdi}]",
    "mov rsi, qword ptr [rcx + {rsi}]",
    "mov rdx, qword ptr [rcx + {rdx}]",
    "mov r10, qword ptr [rcx + {r10}]",
    "mov r8, qword ptr [rcx + {r8}]",
    "mov r9, qword ptr [rcx + {r9}]",
    "mov rbx, qword ptr [rcx + {rbx}]",
    "mov rbp, qword ptr [rcx + {rbp}]",
    "mov r12, qword ptr [rcx + {r12}]",
    "mov r13, qword ptr [rcx + {r13}]",
    "mov r14, qword ptr [rcx + {r14}]",
    "mov r15, qword ptr [rcx + {r15}]",
    "mov rsp, qword ptr [rcx + {rsp}]",
    "jmp r11",
    ".cfi_endproc",
    ".size upcall_load, . - upcall_load",
    ;
    rax = rax, rdi = rdi, rsi = rsi, rdx = rdx, r10 = r10, r8 = r8, r9 = r9,
    rbx = rbx, rbp = rbp, r12 = r12, r13 = r13, r14 = r14, r15 = r15,
    rflags = rflags, rsp = rsp, rip = rip, resume = resume, at_site = at_site,
    mode = mode, return_slot = return_slot, wide = wide, made = made, xmm = xmm,
}

unsafe extern "C" {
    fn upcall_enter();
    fn upcall_enter_wide();
    fn upcall_after();
    fn upcall_after_wide();
    fn upcall_load(frame: *const Frame, target: u64) -> !;
}

/// The entries that a stub can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// To the handler, saving xmm0-15.
    Enter,
    /// To the handler, saving the complete vector state.
    EnterWide,
    /// To the `after` hook, saving xmm0-15.
    After,
    /// To the `after` hook, saving the complete vector state.
    AfterWide,
}

pub fn entry(entry: Entry) -> usize {
    let function = match entry {
        Entry::Enter => upcall_enter as *const (),
        Entry::EnterWide => upcall_enter_wide as *const (),
        Entry::After => upcall_after as *const (),
        Entry::AfterWide => upcall_after_wide as *const (),
    };
    function as usize
}

/// Loads every register from `frame` and continues at its `resume`.
///
/// # Safety
/// The frame describes a state that may be continued, once: its stack pointer and stack are
/// valid, `resume` is what an entry or the trap handler put there (or an address chosen with
/// the same care), and `wide` is null or points to the state that an entry saved. Nothing on
/// the calling stack is needed any more; the frame itself may lie on it.
///
/// # Upcall safety
/// Everywhere: no TLS, no allocation.
pub unsafe fn resume(frame: *const Frame) -> ! {
    // SAFETY: the caller's promise; the assembly reads the frame before it leaves the stack.
    unsafe { upcall_load(frame, (*frame).resume) }
}
