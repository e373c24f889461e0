//! System calls of our own, and the text reserved for stubs.
//!
//! One instruction executes all calls on behalf of the program, so that signal code can tell by the program counter if a
//! call was made ([`progress`]). The stubs near us lie in our own text, with all of our system-call instructions, because
//! Syscall User Dispatch lets one contiguous range through ([`crate::rewrite::sud`]).

use core::arch::{asm, global_asm};
use core::cell::Cell;
use core::ops::Range;
use core::sync::atomic::AtomicU32;

use upcall_linux::own_syscall;

use crate::ground::entry::Frame;
use crate::ground::hooks::hooks;

/// Room for about four thousand stubs. libc needs some 40 KiB.
const STUB_AREA: usize = 256 << 10;

// SAFETY of the assembly: `upcall_raw_syscall` obeys the C calling convention (it writes
// caller-saved registers only) and changes no stack, so the default unwind rule holds at each of
// its instructions. A signal may land anywhere; between `start` and `end` the call is not done.
// The area is padding that `arena` fills; nothing jumps there before.
global_asm!(
    ".pushsection .text.upcall_raw,\"ax\",@progbits",
    ".p2align 12",
    ".globl upcall_text_start",
    ".hidden upcall_text_start",
    "upcall_text_start:",
    ".globl upcall_raw_syscall",
    ".hidden upcall_raw_syscall",
    ".type upcall_raw_syscall,@function",
    "upcall_raw_syscall:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, qword ptr [rsp + 8]",
    own_syscall!(),
    "ret",
    ".cfi_endproc",
    ".size upcall_raw_syscall, . - upcall_raw_syscall",
    // rdi: the number and six words; rsi: where to note that the call was made; rdx: a word that
    // forbids the call when it is not 0.
    ".globl upcall_program_call",
    ".hidden upcall_program_call",
    ".type upcall_program_call,@function",
    "upcall_program_call:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "mov rbx, rsi",
    "mov r11, rdx",
    "mov rax, qword ptr [rdi]",
    "mov rsi, qword ptr [rdi + 16]",
    "mov rdx, qword ptr [rdi + 24]",
    "mov r10, qword ptr [rdi + 32]",
    "mov r8, qword ptr [rdi + 40]",
    "mov r9, qword ptr [rdi + 48]",
    "mov rdi, qword ptr [rdi + 8]",
    ".globl upcall_program_call_begins",
    ".hidden upcall_program_call_begins",
    "upcall_program_call_begins:",
    "cmp dword ptr [r11], 0",
    "jne upcall_program_call_gives_up",
    own_syscall!(),
    ".globl upcall_program_call_made",
    ".hidden upcall_program_call_made",
    "upcall_program_call_made:",
    // EINTR and EAGAIN leave nothing behind: the call may be made again, or cancelled.
    "cmp rax, -4",
    "je 2f",
    "cmp rax, -11",
    "je 2f",
    "mov qword ptr [rbx], 1",
    "2:",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".globl upcall_program_call_gives_up",
    ".hidden upcall_program_call_gives_up",
    "upcall_program_call_gives_up:",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "mov rax, -4",
    "jmp 2b",
    ".cfi_endproc",
    ".size upcall_program_call, . - upcall_program_call",
    ".globl upcall_signal_return",
    ".hidden upcall_signal_return",
    ".type upcall_signal_return,@function",
    // Where a handler returns to: the kernel's ucontext(2) is at the stack pointer, and in it, from 40 on, are the
    // registers. Debuggers follow these rules (DWARF numbers registers otherwise than the kernel); other unwinders
    // know the two instructions by their bytes, as libc's own. The rules begin one byte early, since a return address
    // is looked up one byte before.
    ".cfi_startproc simple",
    ".cfi_signal_frame",
    // DW_CFA_def_cfa_expression: breg7 + 160, deref; DW_CFA_expression: breg7 + where it is.
    ".cfi_escape 0x0f, 4, 0x77, 0xa0, 0x01, 0x06",
    ".cfi_escape 0x10, 8, 3, 0x77, 0xa8, 0x00",
    ".cfi_escape 0x10, 9, 3, 0x77, 0xb0, 0x00",
    ".cfi_escape 0x10, 10, 3, 0x77, 0xb8, 0x00",
    ".cfi_escape 0x10, 11, 3, 0x77, 0xc0, 0x00",
    ".cfi_escape 0x10, 12, 3, 0x77, 0xc8, 0x00",
    ".cfi_escape 0x10, 13, 3, 0x77, 0xd0, 0x00",
    ".cfi_escape 0x10, 14, 3, 0x77, 0xd8, 0x00",
    ".cfi_escape 0x10, 15, 3, 0x77, 0xe0, 0x00",
    ".cfi_escape 0x10, 5, 3, 0x77, 0xe8, 0x00",
    ".cfi_escape 0x10, 4, 3, 0x77, 0xf0, 0x00",
    ".cfi_escape 0x10, 6, 3, 0x77, 0xf8, 0x00",
    ".cfi_escape 0x10, 3, 3, 0x77, 0x80, 0x01",
    ".cfi_escape 0x10, 1, 3, 0x77, 0x88, 0x01",
    ".cfi_escape 0x10, 0, 3, 0x77, 0x90, 0x01",
    ".cfi_escape 0x10, 2, 3, 0x77, 0x98, 0x01",
    ".cfi_escape 0x10, 16, 3, 0x77, 0xa8, 0x01",
    "nop",
    "upcall_signal_return:",
    "mov rax, 15",
    own_syscall!(),
    ".cfi_endproc",
    ".size upcall_signal_return, . - upcall_signal_return",
    ".globl upcall_signal_return_at",
    ".hidden upcall_signal_return_at",
    ".type upcall_signal_return_at,@function",
    "upcall_signal_return_at:",
    "mov rsp, rdi",
    "mov eax, 15",
    own_syscall!(),
    "ud2",
    ".size upcall_signal_return_at, . - upcall_signal_return_at",
    ".p2align 12, 0xcc",
    ".globl upcall_stub_area",
    ".hidden upcall_stub_area",
    "upcall_stub_area:",
    ".fill {area} / 4, 4, 0xcccccccc",
    ".globl upcall_text_end",
    ".hidden upcall_text_end",
    "upcall_text_end:",
    ".popsection",
    area = const STUB_AREA,
);

/// Forbids nothing.
pub static NEVER: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn upcall_raw_syscall(
        nr: usize,
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        e: usize,
        f: usize,
    ) -> isize;
    fn upcall_signal_return();
    fn upcall_signal_return_at(rsp: u64) -> !;
    static upcall_text_start: u8;
    static upcall_text_end: u8;
    fn upcall_program_call(words: *const u64, made: *mut u64, forbidden: *const u32) -> isize;
    static upcall_program_call_begins: u8;
    static upcall_program_call_made: u8;
    static upcall_program_call_gives_up: u8;
    static upcall_stub_area: u8;
}

/// Makes a system call without passing any rewritten site. The result is the kernel's: a
/// negative error number on failure; errno is not touched.
///
/// # Safety
/// Whatever the system call itself asks for.
///
/// # Upcall safety
/// Everywhere: no TLS, no allocation, no libc.
#[inline]
#[cfg_attr(feature = "inject", track_caller)]
pub unsafe fn raw_syscall(nr: i64, args: [u64; 6]) -> isize {
    #[cfg(feature = "inject")]
    if let Some(answer) = upcall_linux::inject::answer(nr, &args.map(|word| word as usize)) {
        return answer;
    }
    // SAFETY: the caller's promise.
    unsafe { pass_through(nr, args) }
}

/// As [`raw_syscall`], for a call that the program makes itself, in parts or everywhere.
///
/// # Safety
/// As [`raw_syscall`].
///
/// # Upcall safety
/// As [`raw_syscall`].
#[inline]
pub unsafe fn pass_through(nr: i64, args: [u64; 6]) -> isize {
    let [a, b, c, d, e, f] = args.map(|x| x as usize);
    // SAFETY: the assembly obeys the C convention; the rest is the caller's promise.
    unsafe { upcall_raw_syscall(nr as usize, a, b, c, d, e, f) }
}

/// Makes a system call of two words with the stack pointer at `stack`, for those whose answer
/// depends on it.
///
/// # Safety
/// Whatever the system call itself asks for. All signals are blocked: none may land there.
///
/// # Upcall safety
/// Everywhere.
pub unsafe fn raw_syscall_at(stack: u64, nr: i64, args: [u64; 2]) -> isize {
    let answer;
    // SAFETY: nothing is stored on that stack and ours is back at the end; the rest is the
    // caller's promise.
    unsafe {
        asm!(
            "mov {own}, rsp",
            "mov rsp, {stack}",
            own_syscall!(),
            "mov rsp, {own}",
            own = out(reg) _,
            stack = in(reg) stack,
            inlateout("rax") nr as isize => answer,
            in("rdi") args[0],
            in("rsi") args[1],
            out("rcx") _,
            out("r11") _,
        );
    }
    answer
}

/// Answers with which the kernel sends SIGPIPE or SIGXFSZ.
const CAUSES_SIGNAL: [isize; 2] = [-(libc::EPIPE as isize), -(libc::EFBIG as isize)];

/// Makes a call on behalf of the program: the number and its six words. Notes in `made` at once
/// that it was made, unless its answer is EINTR or EAGAIN. A call that `forbidden` forbids is not
/// made and answers EINTR; see [`give_up`].
///
/// # Safety
/// Whatever the system call itself asks for.
///
/// # Upcall safety
/// Everywhere.
#[inline]
pub unsafe fn program_call(words: &[u64; 7], made: &Cell<u64>, forbidden: &AtomicU32) -> isize {
    // SAFETY: the assembly obeys the C convention; the rest is the caller's promise.
    let answer = unsafe { upcall_program_call(words.as_ptr(), made.as_ptr(), forbidden.as_ptr()) };
    if CAUSES_SIGNAL.contains(&answer) {
        (hooks().caused)();
    }
    answer
}

/// What a signal frame tells about a [`program_call`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It was not made yet, or the kernel will make it again.
    Before,
    /// It was just made; whether it has left anything behind.
    Made(bool),
    /// The program counter is elsewhere.
    Elsewhere,
}

/// Returns what the program counter and the result register of a signal frame tell.
pub fn progress(pc: usize, rax: i64) -> Progress {
    const ANSWERS_WITHOUT_EFFECT: [i64; 2] = [-(libc::EINTR as i64), -(libc::EAGAIN as i64)];
    let function = upcall_program_call as *const () as usize;
    let made = (&raw const upcall_program_call_made) as usize;
    let end = (&raw const upcall_program_call_gives_up) as usize;
    if (function..made).contains(&pc) {
        Progress::Before
    } else if (made..end).contains(&pc) {
        Progress::Made(!ANSWERS_WITHOUT_EFFECT.contains(&rax))
    } else {
        Progress::Elsewhere
    }
}

/// Returns where a signal frame whose program counter is `pc` must continue so that a forbidden call is not made; `None` if
/// the call will look by itself, or was made.
pub fn give_up(pc: usize) -> Option<usize> {
    let begins = (&raw const upcall_program_call_begins) as usize;
    let made = (&raw const upcall_program_call_made) as usize;
    (begins..made)
        .contains(&pc)
        .then_some((&raw const upcall_program_call_gives_up) as usize)
}

/// Returns the part of our text that is reserved for stubs: whole pages, filled with `int3`.
pub fn reserved_stub_area() -> Range<usize> {
    (&raw const upcall_stub_area) as usize..(&raw const upcall_text_end) as usize
}

/// Returns the two ways to return from a signal by an instruction of ours: the address for `sa_restorer`, and a function
/// that returns from the frame at `rsp`.
pub fn signal_return() -> (usize, unsafe extern "C" fn(u64) -> !) {
    (
        upcall_signal_return as *const () as usize,
        upcall_signal_return_at,
    )
}

/// Returns an address inside the object that holds this crate.
pub fn anchor() -> usize {
    (&raw const upcall_text_start) as usize
}

impl Frame {
    /// Makes the frame's system call as it stands and returns the result.
    ///
    /// # Safety
    /// As [`raw_syscall`]; calls that need the site's own stack must not come here.
    ///
    /// # Upcall safety
    /// Everywhere.
    #[inline]
    pub unsafe fn raw(&self) -> isize {
        // SAFETY: the caller's promise.
        unsafe { self.raw_unless(&NEVER) }
    }

    /// As [`Frame::raw`], but a call that `forbidden` forbids answers EINTR.
    ///
    /// # Safety
    /// As [`Frame::raw`].
    #[inline]
    pub unsafe fn raw_unless(&self, forbidden: &AtomicU32) -> isize {
        // SAFETY: the caller's promise.
        unsafe { program_call(&self.words(), &self.made, forbidden) }
    }

    /// Returns the number and the six words of its system call.
    #[inline]
    pub fn words(&self) -> [u64; 7] {
        [
            self.rax, self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9,
        ]
    }
}
