//! Where the runtime's own signal goes that has met a thread away from its stack.
//!
//! The stack pointer may be anywhere while nobody sends signals: kernels of oneDNN have it in a buffer of the heap, and what is
//! below that is other memory of the program's. So the frame goes there only on the stack that the thread began on. Elsewhere
//! it goes to memory of our own, which the thread's block gets the first time, and keeps. A coroutine's stack, which may be too
//! small for the frame, is elsewhere, too.
//!
//! *Rejected:* to leave such a thread alone until it is back. One that spins on a coroutine's stack would never stop.

use core::sync::atomic::Ordering;

use upcall_core::Machine;
use upcall_linux::{Runtime, Thread};

use crate::ground::arch;
use crate::ground::attributes::GuestAttributes;
use crate::ground::hooks::hooks;

/// Room for the frame with all registers (11 KB where tiles are in use), and for what the runtime does there.
const SIZE: usize = 64 << 10;

/// Returns below which address the frame goes that has met the thread with this stack pointer. `None`: there is no memory.
pub(super) fn top(
    runtime: &'static Runtime,
    thread: &'static Thread,
    stack_pointer: usize,
) -> Option<usize> {
    let stack = (hooks().stack)(thread);
    let area = thread.guest().aside.load(Ordering::Relaxed);
    // One that is stopped there may be met again.
    let is_aside = area != 0 && (area..area + SIZE).contains(&stack_pointer);
    if stack.is_empty() || stack.contains(&stack_pointer) || is_aside {
        return Some(arch::below(stack_pointer));
    }
    if area != 0 {
        return Some(area + SIZE);
    }
    let area = runtime.kernel().map(SIZE).ok()?.as_ptr() as usize;
    thread.guest().aside.store(area, Ordering::Relaxed);
    Some(area + SIZE)
}
