//! Where the kernel enters for a signal, and its frame. If `signal::place` asks for it, the frame is moved before anything
//! else runs.
//!
//! ```text
//!   | the restorer's address | ucontext | siginfo |  ...  | vector state, aligned to 64 |
//!   ^ rsp at entry                                                         top, at most ^
//! ```
//!
//! The frame points to the vector state only. A function that is called on a moved frame finds the stack as if the kernel
//! had put the frame there: its `ret` goes to the restorer, and rt_sigreturn(2) reads the frame from where the stack
//! pointer is.

use core::arch::{asm, global_asm};
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The restorer's address.
const RETURN: usize = 8;
/// The kernel's ucontext, which ends with a mask of eight bytes.
const CONTEXT: usize = 304;
const INFORMATION: usize = size_of::<libc::siginfo_t>();
const FRAME: usize = RETURN + CONTEXT + INFORMATION;
/// Below the stack pointer a function may keep what it likes.
const RED_ZONE: usize = 128;

/// The vector state without and with what XSAVE adds, and where it says so: a mark, the size and the
/// components.
const FXSAVE: usize = 512;
const MAGIC: u32 = 0x4650_5853;
const MAGIC_AT: usize = 464;
const SIZE_AT: usize = MAGIC_AT + 4;
const COMPONENTS_AT: usize = MAGIC_AT + 8;

// SAFETY of the assembly: the kernel enters it as a handler. `place` gets the address of the frame, which is
// the stack pointer at entry, and answers with that of a complete frame, or 0: nothing is to be done; and
// with a word for `on_signal`.
global_asm!(
    ".text",
    ".globl upcall_signal_entry",
    ".hidden upcall_signal_entry",
    ".type upcall_signal_entry,@function",
    "upcall_signal_entry:",
    ".cfi_startproc",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "lea rcx, [rsp + 8]",
    "call [rip + {place}]",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "test rax, rax",
    "jz 1f",
    "mov rsp, rax",
    "mov rcx, rdx",
    "lea rdx, [rax + {context}]",
    "lea rsi, [rax + {information}]",
    "jmp [rip + {on_signal}]",
    "1: ret",
    ".cfi_endproc",
    ".size upcall_signal_entry, . - upcall_signal_entry",
    place = sym PLACE,
    on_signal = sym ON_SIGNAL,
    context = const RETURN,
    information = const RETURN + CONTEXT,
);

unsafe extern "C" {
    fn upcall_signal_entry();
}

/// With what a handler goes on.
#[repr(C)]
pub struct Placed {
    /// The frame, or 0 if it is over.
    pub frame: usize,
    /// What [`crate::ground::caller::leave`] takes at the end.
    pub entered: usize,
}

/// Decides where the frame goes: gets the signal, its information and context, and the frame's address. Returns the address
/// of a complete frame or 0, and a word for [`OnSignal`].
pub type Place =
    unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t, usize) -> Placed;
pub type OnSignal = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t, usize);

static PLACE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static ON_SIGNAL: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the handler that the kernel calls for every signal. It calls these two.
pub fn signal_entry(place: Place, on_signal: OnSignal) -> usize {
    PLACE.store(place as *mut (), Ordering::Relaxed);
    ON_SIGNAL.store(on_signal as *mut (), Ordering::Relaxed);
    upcall_signal_entry as *const () as usize
}

/// Returns the top of a frame that goes below the stack pointer of what it interrupts.
pub fn below(stack_pointer: usize) -> usize {
    stack_pointer - RED_ZONE
}

/// Returns where a frame, whose context this is, begins if it ends at `top`; and its vector state.
///
/// # Safety
///
/// The kernel's frame.
unsafe fn layout(context: *const libc::ucontext_t, top: usize) -> (usize, usize) {
    // SAFETY: the caller's promise.
    let vectors = top.wrapping_sub(unsafe { vector_size(context) }) & !63;
    // As for a function that was just called.
    (((vectors - FRAME) & !15) - 8, vectors)
}

/// Returns the address of a frame, whose context this is, that ends at `top`.
///
/// # Safety
///
/// The kernel's frame.
pub unsafe fn frame_below(context: *const libc::ucontext_t, top: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { layout(context, top).0 }
}

/// # Safety
///
/// The kernel's frame.
unsafe fn vector_size(context: *const libc::ucontext_t) -> usize {
    // SAFETY: the caller's promise; the state has at least these bytes.
    unsafe {
        let vectors = (*context).uc_mcontext.fpregs.cast::<u8>();
        if vectors.is_null() {
            0
        } else if components(context) != 0 {
            vectors.add(SIZE_AT).cast::<u32>().read() as usize
        } else {
            FXSAVE
        }
    }
}

/// Copies a frame to where [`frame_below`] says, and returns that.
///
/// # Safety
///
/// `frame` is the kernel's, with this context in it; the memory below `top` is writable and nobody's.
pub unsafe fn move_frame(frame: usize, context: *mut libc::ucontext_t, top: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let (to, vectors) = layout(context, top);
        let old = (*context).uc_mcontext.fpregs;
        if !old.is_null() {
            copy(old as usize, vectors, vector_size(context));
            (*context).uc_mcontext.fpregs = vectors as *mut _;
        }
        copy(frame, to, FRAME);
        to
    }
}

/// Returns the components of the vector state that a frame has by XSAVE, as a set: 0 if it has none.
///
/// # Safety
///
/// The context is that of a frame of the kernel's.
pub unsafe fn components(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the caller's promise: null, or an FXSAVE image.
    unsafe {
        let bytes = (*context).uc_mcontext.fpregs.cast::<u8>();
        if bytes.is_null() || bytes.add(MAGIC_AT).cast::<u32>().read() != MAGIC {
            return 0;
        }
        bytes.add(COMPONENTS_AT).cast::<u64>().read()
    }
}

/// Called before a handler returns by this frame, on whatever kernel thread. A kernel thread that has used tiles (AMX) has
/// larger frames than others, and the kernel restores x87 and SSE alone, and clears all else, where a frame is larger than
/// those of the kernel thread that returns by it. That one uses a tile first.
///
/// # Safety
///
/// As [`components`]; the frame restores all that is changed here.
#[inline]
pub unsafe fn can_return_by(context: *const libc::ucontext_t) {
    const TILE_DATA: u64 = 1 << 18;
    // SAFETY: the caller's promise.
    if unsafe { components(context) } & TILE_DATA != 0 {
        // SAFETY: the process may use tiles: another kernel thread has done so.
        unsafe { use_a_tile() };
    }
}

/// # Safety
///
/// The kernel has allowed the process to use tiles, and nobody needs those of the calling kernel thread.
#[cold]
#[inline(never)]
unsafe fn use_a_tile() {
    /// What ldtilecfg reads: palette 1, and one tile of one row of four bytes.
    #[repr(C, align(64))]
    struct Configuration {
        palette: u8,
        start: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }
    let mut configuration = Configuration {
        palette: 1,
        start: 0,
        reserved: [0; 14],
        row_bytes: [0; 16],
        rows: [0; 16],
    };
    configuration.row_bytes[0] = 4;
    configuration.rows[0] = 1;
    // SAFETY: reads 64 bytes; the caller's promise.
    unsafe {
        asm!("ldtilecfg [{}]", "tilezero tmm0", "tilerelease", in(reg) &raw const configuration,
            options(nostack, readonly, preserves_flags));
    }
}

/// # Safety
///
/// As `core::ptr::copy_nonoverlapping`, which may be libc's.
unsafe fn copy(from: usize, to: usize, length: usize) {
    // SAFETY: the caller's promise; the direction flag is clear.
    unsafe {
        asm!(
            "rep movsb",
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rcx") length => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(64))]
    struct Area([u8; 8192]);

    #[test]
    fn a_moved_frame_is_complete_and_aligned() {
        const EXTENDED: usize = 2436;
        let mut old = Box::new(Area([0; 8192]));
        let mut new = Box::new(Area([0xee; 8192]));
        let start = old.0.as_mut_ptr() as usize;
        let (frame, vectors) = (start + 8, start + 1024);
        for (index, byte) in old.0.iter_mut().enumerate() {
            *byte = (index % 251) as u8;
        }
        // SAFETY: inside the area.
        unsafe {
            let context = (frame + RETURN) as *mut libc::ucontext_t;
            ((vectors + MAGIC_AT) as *mut u32).write(MAGIC);
            ((vectors + SIZE_AT) as *mut u32).write(EXTENDED as u32);
            (*context).uc_mcontext.fpregs = vectors as *mut _;
            let top = new.0.as_mut_ptr() as usize + 8000;
            let to = frame_below(context, top);
            move_frame(frame, context, top);
            assert_eq!(to % 16, 8);
            let moved = (to + RETURN) as *const libc::ucontext_t;
            let its = (*moved).uc_mcontext.fpregs as usize;
            assert_eq!(its % 64, 0);
            assert!(its + EXTENDED <= top && to + FRAME <= its);
            let bytes = |at: usize, length| core::slice::from_raw_parts(at as *const u8, length);
            assert_eq!(bytes(its, EXTENDED), bytes(vectors, EXTENDED));
            assert_eq!(bytes(to, FRAME), bytes(frame, FRAME));
            assert!(bytes(top, 192).iter().all(|&byte| byte == 0xee));
            assert!(bytes(to - 64, 64).iter().all(|&byte| byte == 0xee));
        }
    }

    #[test]
    fn a_frame_without_xsave_state_keeps_what_it_has() {
        let mut area = Box::new(Area([0; 8192]));
        let start = area.0.as_mut_ptr() as usize;
        let context = (start + RETURN) as *mut libc::ucontext_t;
        // SAFETY: inside the area.
        unsafe {
            assert_eq!(vector_size(context), 0);
            (*context).uc_mcontext.fpregs = (start + 1024) as *mut _;
            assert_eq!(vector_size(context), FXSAVE);
        }
    }
}
