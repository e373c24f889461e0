//! Handlers that return into the runtime.
//!
//! A handler that has interrupted a call returns into the runtime's frames, and so does one that the runtime lets in at the
//! end of a call. Until then the thread needs what those frames find: the child of a fork keeps the runtime, and the thread
//! does not leave for a kernel thread of its own.
//!
//! Such a handler may never return (siglongjmp(3)), so the thread does not count them. It keeps the place on the stack
//! where the outermost one was called. A call from above that place on the same stack shows that this handler, with all
//! inside it, was left.

use core::sync::atomic::Ordering;

use upcall_linux::Thread;

use super::altstack;
use crate::ground::attributes::GuestAttributes;

/// The place is on the thread's alternate stack. Places are even.
const ON_ALTERNATE: usize = 1;

fn is_on_alternate(thread: &Thread, place: usize) -> bool {
    altstack::is_on(&altstack::of(thread), place)
}

/// Calls a handler that returns into the runtime, which must be there for that in the child of a fork.
pub(super) fn returning(thread: &'static Thread, call: impl FnOnce()) {
    let word = &thread.guest().called_back;
    let local = 0u64;
    let here = core::ptr::from_ref(&local) as usize;
    forget_left(thread, here);
    let is_outermost = word.load(Ordering::Relaxed) == 0;
    if is_outermost {
        let flag = usize::from(is_on_alternate(thread, here)) * ON_ALTERNATE;
        word.store(here | flag, Ordering::Relaxed);
    }
    call();
    if is_outermost {
        word.store(0, Ordering::Relaxed);
    }
}

/// Returns true if the thread is in such a handler.
#[inline]
pub fn is_called_back(thread: &Thread) -> bool {
    thread.guest().called_back.load(Ordering::Relaxed) != 0
}

/// Called when the thread makes a call with this stack pointer: forgets the handlers that it has left.
#[inline]
pub fn forget_left(thread: &Thread, stack_pointer: usize) {
    if is_called_back(thread) {
        look(thread, stack_pointer);
    }
}

#[cold]
#[inline(never)]
fn look(thread: &Thread, stack_pointer: usize) {
    let word = thread.guest().called_back.load(Ordering::Relaxed);
    let was_on_alternate = word & ON_ALTERNATE != 0;
    let left = match (was_on_alternate, is_on_alternate(thread, stack_pointer)) {
        (true, false) => true,
        // A handler inside it.
        (false, true) => false,
        _ => stack_pointer > word & !ON_ALTERNATE,
    };
    if left {
        thread.guest().called_back.store(0, Ordering::Relaxed);
    }
}
