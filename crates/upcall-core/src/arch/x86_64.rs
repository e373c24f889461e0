//! x86-64, System V ABI.
//!
//! ```text
//!   saved context, in the frame of who parks
//!     continue   address to jump to, with the context's own in rcx
//!     rsp rbp rbx
//!     mxcsr fcw  control words, callee-saved by the ABI
//! ```
//!
//! A processor takes as long to tell or to load its control words as for all the rest of a switch. So they are read
//! where a thread parks and where one is made, which begins with its maker's (POSIX, pthread_create), and loaded only
//! where those of who is continued differ from the processor's. What runs between the two, which does not change them,
//! keeps those and says them to [`resume`].
//!
//! The return predictor is a stack of its own in the processor: it fits as long as calls and
//! returns pair up. So a switch is neither: its instructions are inlined where a thread parks, the landing
//! is jumped to, and so is the continuation. A thread that runs in between returns what it calls; who is resumed
//! finds its own calls on the predictor's stack, or those of one that parked at the same place. All other
//! registers are the compiler's to save, as far as they are in use there.
//! Approach rejected: a function that switches. Its return, and its callers' behind it, are mispredicted where the
//! two threads parked at different places, as a joiner and the thread that it joins do (40 of 180 ns).
//!
//! A signal may land between any two instructions: below the stack pointer lies nothing of value,
//! and the runtime's mark (`set_inside`) defers everything else. The stack pointer moves with the switch
//! only, so that what the compiler says of the frame is right up to there.

use core::arch::{asm, naked_asm};
use core::mem::MaybeUninit;

/// What runs on the other stack: three words chosen by the caller of [`switch_out`].
pub type Landing = extern "C" fn(usize, usize, usize) -> !;

/// Control words: mxcsr, and above it that of the x87.
pub type Control = u64;

/// See the module's text. A new thread's words are its landing and what that is called with.
#[repr(C)]
struct Context {
    words: [usize; 4],
    mxcsr: u32,
    fcw: u16,
}

/// Brings the first two lines of an object into the caches, for which nobody waits: the next of a crowd is worked on soon.
#[inline(always)]
pub fn prefetch<T>(object: &T) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let at = core::ptr::from_ref(object).cast::<i8>();
    // SAFETY: a hint, which changes nothing and faults nowhere.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(at);
        _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(64));
    }
}

/// The processor's control words.
#[inline]
pub fn control() -> Control {
    let (mut mxcsr, mut fcw) = (0u32, 0u16);
    // SAFETY: stores the words.
    unsafe {
        asm!(
            "stmxcsr [{mxcsr}]",
            "fnstcw [{fcw}]",
            mxcsr = in(reg) &raw mut mxcsr,
            fcw = in(reg) &raw mut fcw,
            options(nostack, preserves_flags),
        );
    }
    pack(mxcsr, fcw)
}

/// Loads control words, if they are others than the processor's.
#[inline]
pub fn load_control(wanted: Control) {
    if control() != wanted {
        let (mxcsr, fcw) = unpack(wanted);
        // SAFETY: loads words that a processor has had.
        unsafe {
            asm!(
                "ldmxcsr [{mxcsr}]",
                "fldcw [{fcw}]",
                mxcsr = in(reg) &raw const mxcsr,
                fcw = in(reg) &raw const fcw,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
}

#[inline(always)]
fn pack(mxcsr: u32, fcw: u16) -> Control {
    u64::from(mxcsr) | u64::from(fcw) << 32
}

#[inline(always)]
fn unpack(control: Control) -> (u32, u16) {
    (control as u32, (control >> 32) as u16)
}

/// The control words with which this context will be continued.
///
/// # Safety
///
/// `context` was stored by [`switch_out`] or made by [`prepare`], and is not continued meanwhile.
#[inline(always)]
pub unsafe fn saved_control(context: usize) -> Control {
    // SAFETY: the caller vouches for the context.
    let Context { mxcsr, fcw, .. } = unsafe { &*(context as *const Context) };
    pack(*mxcsr, *fcw)
}

/// This context will be continued with these control words.
///
/// # Safety
///
/// As [`saved_control`]; nobody else reads or writes it meanwhile.
#[inline(always)]
pub unsafe fn set_saved_control(context: usize, control: Control) {
    let (mxcsr, fcw) = unpack(control);
    let context = context as *mut Context;
    // SAFETY: the caller vouches for the context.
    unsafe {
        (&raw mut (*context).mxcsr).write(mxcsr);
        (&raw mut (*context).fcw).write(fcw);
    }
}

/// As [`set_saved_control`], with the caller's.
///
/// # Safety
///
/// As there.
#[inline(always)]
pub unsafe fn inherit_control(context: usize) {
    // SAFETY: the caller vouches for the context.
    unsafe {
        asm!(
            "stmxcsr [{context} + 32]",
            "fnstcw [{context} + 36]",
            context = in(reg) context,
            options(nostack, preserves_flags),
        );
    }
}

/// Where a context is continued: its control words, if the processor's, in rdx, are others.
macro_rules! load_control {
    () => {
        concat!(
            "cmp edx, [rcx + 32]\n",
            "jne 3f\n",
            "shr rdx, 32\n",
            "cmp dx, [rcx + 36]\n",
            "je 4f\n",
            "3:\n",
            "ldmxcsr [rcx + 32]\n",
            "fldcw [rcx + 36]\n",
            "4:\n",
        )
    };
}

/// Saves the context, stores its address at `save`, and calls
/// `landing(a, b, c)` on the stack that ends at `stack`. Returns when the context is resumed.
///
/// # Safety
///
/// `save` is writable, `stack` is the 16-byte aligned end of a free stack, and `landing` does not
/// return.
#[inline(always)]
pub unsafe fn switch_out(
    save: *mut usize,
    stack: usize,
    landing: Landing,
    a: usize,
    b: usize,
    c: usize,
) {
    let mut context = MaybeUninit::<Context>::uninit();
    // SAFETY: the context is the frame's, which stays until it is resumed; every register is put back by hand or
    // said to be lost. The caller vouches for the rest.
    unsafe {
        asm!(
            "lea rax, [rip + 2f]",
            "mov [rcx], rax",
            "mov [rcx + 8], rsp",
            "mov [rcx + 16], rbp",
            "mov [rcx + 24], rbx",
            "stmxcsr [rcx + 32]",
            "fnstcw [rcx + 36]",
            "mov [r8], rcx",
            "mov rsp, r9",
            "xor ebp, ebp",
            // A jump, as if called: see the module's text about the return predictor.
            "push 0",
            "jmp r10",
            // Resumed.
            "2:",
            "mov rsp, [rcx + 8]",
            "mov rbp, [rcx + 16]",
            "mov rbx, [rcx + 24]",
            load_control!(),
            in("rcx") context.as_mut_ptr(),
            in("r8") save,
            in("r9") stack,
            in("r10") landing,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            lateout("r12") _,
            lateout("r13") _,
            lateout("r14") _,
            lateout("r15") _,
            clobber_abi("sysv64"),
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
    /// rbp.
    pub bp: usize,
    /// rbx.
    pub bx: usize,
}

/// Offsets of the words of [`Saved`] in a saved context, in its order. For debuggers.
pub const SAVED: [usize; 4] = [0, 8, 16, 24];
const _: () = assert!(core::mem::offset_of!(Context, words) == 0);
/// Where a new thread's context is continued. It has no saved registers but that.
pub const BEGINNING: extern "C" fn() = start;

/// Where a thread with this context is.
///
/// # Safety
///
/// `context` was stored by [`switch_out`] and is not continued meanwhile.
pub unsafe fn saved(context: usize) -> Saved {
    // SAFETY: the words that `switch_out` has stored.
    let [ip, sp, bp, bx] = unsafe { (*(context as *const Context)).words };
    Saved { ip, sp, bp, bx }
}

/// Continues a saved context. `control`: the processor's control words.
///
/// # Safety
///
/// `context` was stored by [`switch_out`] or made by [`prepare`], and is continued once; `control` is what [`control`]
/// would tell.
#[inline(always)]
pub unsafe fn resume(context: usize, control: Control) -> ! {
    // SAFETY: the caller vouches for the context, whose first word is where to continue.
    unsafe { asm!("jmp [rcx]", in("rcx") context, in("rdx") control, options(noreturn)) }
}

/// Makes the context of a new thread: when resumed, it calls `landing(a, b, c)` on the stack that
/// ends at `stack`, with the control words of the caller.
///
/// # Safety
///
/// `stack` is the end of a writable stack with at least 64 bytes that nothing else uses.
pub unsafe fn prepare(stack: usize, landing: Landing, a: usize, b: usize, c: usize) -> usize {
    let top = (stack & !15) as *mut usize;
    let control = control();
    // SAFETY: the caller vouches for 64 bytes below `stack`: the context, and a word behind it.
    unsafe {
        let context = top.sub(6);
        context.write(start as *const () as usize);
        context.add(1).write(landing as usize);
        context.add(2).write(a);
        context.add(3).write(b);
        context.add(4).write(control as usize);
        context.add(5).write(c);
        context as usize
    }
}

/// The first instructions of a new thread: takes what [`prepare`] left on the stack, whose address
/// it has in rcx.
#[unsafe(naked)]
extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        load_control!(),
        "mov rax, [rcx + 8]",
        "mov rdi, [rcx + 16]",
        "mov rsi, [rcx + 24]",
        "mov rdx, [rcx + 40]",
        "lea rsp, [rcx + 48]",
        "xor ebp, ebp",
        "call rax",
        "ud2",
        ".cfi_endproc",
    )
}
