//! The frame that the kernel has put on the thread's stack: what the program and its unwinders see
//! in it, and what the thread goes on with when the handler returns.

use super::actions::{CALL_ADDRESS, SYS_SECCOMP};
use crate::ground::arch::components;
use crate::ground::entry::{Frame, Progress, progress};

type Registers = [libc::greg_t; 23];

/// In the kernel's frame, where XSAVE has added to the vector state: which parts are not as new.
const PARTS_AT: usize = 512;
const PART_SSE: u64 = 2;

/// Notes in the frame of a system call what the signal frame knows: whether it has left anything
/// behind.
pub(super) fn note_progress(frame: &Frame, registers: &Registers) {
    let pc = registers[libc::REG_RIP as usize] as usize;
    if progress(pc, registers[libc::REG_RAX as usize]) == Progress::Made(true) {
        frame.made.set(1);
    }
}

/// Calls a handler of the program's while its thread is in a system call. The signal frame shows the thread at libc's
/// system-call instruction: at the instruction, with the call's number, while the call has left nothing behind and may be
/// made again; after it otherwise. Returns true if the signal frame continues the call. The program then finds what the
/// handler has left in the registers, but for rax, which is the handler's only where a filter of the program's has left the
/// answer to it. Returns false if the handler has changed where the thread goes on: the call is over.
///
/// # Safety
///
/// `frame` is that of the call, on the thread's own stack, and `information` and `context` are the kernel's; nobody else
/// looks at them.
pub(super) unsafe fn show_call(
    frame: *mut Frame,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    call: impl FnOnce(),
) -> bool {
    // SAFETY: the caller's promise.
    let (frame, registers) = unsafe { (&mut *frame, &mut (*context).uc_mcontext.gregs) };
    let saved = *registers;
    note_progress(frame, registers);
    let again = frame.made.get() == 0;
    let site = frame.rip - if again { 2 } else { 0 };
    frame.show(registers);
    for (register, value) in [
        (libc::REG_RIP, site),
        (libc::REG_RCX, frame.rip),
        (libc::REG_R11, frame.rflags),
        (libc::REG_EFL, frame.rflags),
    ] {
        registers[register as usize] = value as i64;
    }
    if again {
        registers[libc::REG_RAX as usize] = frame.rax as i64;
    } else if !is_answered(&saved) {
        // The runtime knows it later.
        registers[libc::REG_RAX as usize] = 0;
    }
    // SAFETY: the caller's promise.
    let filtered =
        unsafe { (*information).si_signo == libc::SIGSYS && (*information).si_code == SYS_SECCOMP };
    if filtered {
        // SAFETY: of this signal it holds an address at that offset.
        unsafe {
            let address = information.cast::<u8>().add(CALL_ADDRESS).cast::<u64>();
            address.write(site);
        }
    }
    let stack_pointer = frame.rsp;
    // SAFETY: the kernel's frame.
    unsafe { swap_vectors(frame, context) };
    call();
    // SAFETY: as above.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let goes_on = registers[libc::REG_RIP as usize] == site as i64
        && registers[libc::REG_RSP as usize] == stack_pointer as i64;
    if !goes_on {
        return false;
    }
    // SAFETY: as above.
    unsafe { swap_vectors(frame, context) };
    frame.take(registers);
    let answer = registers[libc::REG_RAX as usize];
    *registers = saved;
    if filtered {
        registers[libc::REG_RAX as usize] = answer;
    }
    true
}

/// Returns true if the signal has met a call right behind its instruction: rax is its answer.
fn is_answered(registers: &Registers) -> bool {
    let pc = registers[libc::REG_RIP as usize] as usize;
    matches!(
        progress(pc, registers[libc::REG_RAX as usize]),
        Progress::Made(_)
    )
}

/// Exchanges the xmm registers of a call's frame and of a signal's. The runtime leaves the rest of the vector
/// state as it finds it.
///
/// # Safety
///
/// `context` is the kernel's frame.
// Not inlined: its part of the stack is free again while the handler runs.
#[inline(never)]
unsafe fn swap_vectors(frame: &mut Frame, context: *mut libc::ucontext_t) {
    // SAFETY: the caller's promise: null, or the kernel's FXSAVE image, in whose reserved bytes stands whether
    // there is more behind it.
    unsafe {
        let vectors = (*context).uc_mcontext.fpregs;
        if vectors.is_null() {
            return;
        }
        let words = (&raw mut (*vectors)._xmm).cast::<[[u64; 2]; 16]>();
        core::ptr::swap(&raw mut frame.xmm, words);
        let bytes = vectors.cast::<u8>();
        if components(context) != 0 {
            *bytes.add(PARTS_AT).cast::<u64>() |= PART_SSE;
        }
    }
}

/// Sets the mask in a frame. The kernel's is eight bytes; in the place of what libc's has beyond
/// that is the signal's siginfo_t.
pub(super) fn set_frame_mask(context: *mut libc::ucontext_t, mask: u64) {
    // SAFETY: the kernel's frame.
    unsafe { *(&raw mut (*context).uc_sigmask).cast::<u64>() = mask };
}

/// Returns the mask in a frame.
pub(super) fn frame_mask(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the kernel's frame; the mask's first word is the kernel's.
    unsafe { *(&raw const (*context).uc_sigmask).cast::<u64>() }
}
