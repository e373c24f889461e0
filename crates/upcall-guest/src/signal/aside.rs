//! Where the frame of a signal goes that only stops a thread away from its stack: the runtime's own, and those that the thread
//! does not get in the kernel.
//!
//! The stack pointer may be anywhere while nobody sends signals: kernels of oneDNN have it in a buffer of the heap, and what is
//! below that is other memory of the program's. A coroutine's stack, and an alternate one, may be too small for the frame. So
//! the frame goes below the stack pointer only on the stack that the thread began on, and elsewhere to memory of our own,
//! which the thread's block gets the first time, and keeps.
//!
//! *Rejected:* to leave such a thread alone until it is back. One that spins on a coroutine's stack would never stop.

use core::sync::atomic::Ordering;

use upcall_core::Machine;
use upcall_linux::{Runtime, Thread};

use crate::ground::arch;
use crate::ground::attributes::GuestAttributes;

/// Room for the frame with all registers (11 KB where tiles are in use), and for what the runtime does there.
const SIZE: usize = 64 << 10;

/// Returns below which address the frame goes that has met the thread with this stack pointer. `None`: there is no memory.
pub(super) fn top(
    runtime: &'static Runtime,
    thread: &'static Thread,
    stack_pointer: usize,
) -> Option<usize> {
    let area = thread.guest().aside.load(Ordering::Relaxed);
    if area == 0 {
        let area = runtime.kernel().map(SIZE).ok()?.as_ptr() as usize;
        thread.guest().aside.store(area, Ordering::Relaxed);
        return Some(area + SIZE);
    }
    // One that is stopped there may be met again.
    let is_there = (area..area + SIZE).contains(&stack_pointer);
    Some(if is_there {
        arch::below(stack_pointer)
    } else {
        area + SIZE
    })
}
