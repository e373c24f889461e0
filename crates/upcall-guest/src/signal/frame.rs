//! The frame that the kernel has put on the thread's stack: what the program and its unwinders see
//! in it, and what the thread goes on with when the handler returns.

use crate::entry::{Frame, Progress, progress};

/// Notes in the frame of a system call what the signal frame knows: whether it has left anything
/// behind.
pub(super) fn note_progress(frame: &Frame, registers: &[i64; 23]) {
    let pc = registers[libc::REG_RIP as usize] as usize;
    if progress(pc, registers[libc::REG_RAX as usize]) == Progress::Made(true) {
        frame.made.set(1);
    }
}

/// Makes the frame show the thread at the system-call instruction of libc's.
pub(super) fn show_site(frame: &Frame, registers: &mut [i64; 23]) {
    let again = frame.made.get() == 0;
    frame.show(registers);
    let site = frame.rip - if again { 2 } else { 0 };
    registers[libc::REG_RIP as usize] = site as i64;
}

/// Sets the mask in a frame. The kernel's is eight bytes; in the place of what libc's has beyond
/// that is the signal's siginfo_t.
pub(super) fn set_frame_mask(context: *mut libc::ucontext_t, mask: u64) {
    // SAFETY: the kernel's frame.
    unsafe { *(&raw mut (*context).uc_sigmask).cast::<u64>() = mask };
}

/// The mask in a frame.
pub(super) fn frame_mask(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the kernel's frame; the mask's first word is the kernel's.
    unsafe { *(&raw const (*context).uc_sigmask).cast::<u64>() }
}
