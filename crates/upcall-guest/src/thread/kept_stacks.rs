//! Stacks of ended threads that keep their pages.
//!
//! A thread that ends has libc's madvise(2) free its stack's pages, all but the last few, and the next thread gets the same
//! stack. The call walks through the whole stack to find nothing, in most cases, and costs as much as the rest of the end. So
//! it is left out while no more than [`KEPT`] free stacks have missed it. They keep their pages until they are used again or
//! unmapped. See docs/adr/0044.
//!
//! What is noted here is a hint: nothing is ever freed later, when the addresses might be something else.

use core::sync::atomic::{AtomicUsize, Ordering};

use upcall_linux::Thread;

use crate::ground::entry::Frame;
use crate::thread::lifetime;

/// The most free stacks with their pages.
const KEPT: usize = 8;
/// Between the end of what libc frees and the stack pointer, there and where the next thread begins: what libc keeps (16
/// KiB), and its own frames.
const REACH: usize = 64 << 10;

/// The ends of what was not freed; 0: none.
static ENDS: [AtomicUsize; KEPT] = [const { AtomicUsize::new(0) }; KEPT];

/// Returns true if this madvise(2) is libc's for the stack of the calling thread, which ends, and can be left out.
pub fn keeps(thread: &Thread, frame: &Frame) -> bool {
    let end = frame.rdi.wrapping_add(frame.rsi) as usize;
    frame.rdx as i32 == libc::MADV_DONTNEED
        // At its end libc has blocked all signals.
        && thread.kernel.has_lazy_mask.load(Ordering::Relaxed)
        && is_just_below(end, frame.rsp as usize)
        && lifetime::is_libcs_call(frame.rip as usize)
        && ENDS.iter().any(|place| {
            place
                .compare_exchange(0, end, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        })
}

/// Called when a thread begins with this stack pointer.
#[inline]
pub fn used_again(stack: usize) {
    forget(|end| is_just_below(end, stack));
}

/// Called when memory was unmapped.
pub fn unmapped(from: usize, length: usize) {
    forget(|end| end > from && end - from <= length);
}

/// Forgets those of which this is true.
#[inline]
fn forget(is_over: impl Fn(usize) -> bool) {
    for place in &ENDS {
        let end = place.load(Ordering::Relaxed);
        if end != 0 && is_over(end) {
            let _ = place.compare_exchange(end, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

fn is_just_below(end: usize, stack: usize) -> bool {
    end <= stack && stack - end <= REACH
}
