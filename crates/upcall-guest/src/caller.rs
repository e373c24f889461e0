//! Who makes a call: a thread on an activation, or a kernel thread that is none.
//!
//! Kernel threads that libc starts for itself, and children that share the memory, run the same
//! rewritten code. Their pseudo-register leads to a mark: memory that looks like an activation inside
//! the runtime, without a thread.

use core::sync::atomic::{AtomicUsize, Ordering};

use upcall_linux::{Activation, Thread, base};

/// One mark for processes that share the memory, one for threads.
static OUTSIDE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Maps the marks. At start, while there is one kernel thread.
pub fn prepare() {
    for own in &OUTSIDE {
        let size = size_of::<Activation>();
        let mark = Box::leak(vec![0u64; size.div_ceil(8) + 8].into_boxed_slice());
        let address = (mark.as_mut_ptr() as usize).next_multiple_of(align_of::<Activation>());
        // SAFETY: inside the allocation; the words that are read through the pseudo-register.
        unsafe {
            ((address + Activation::OFFSET_THIS) as *mut usize).write(address);
            ((address + Activation::OFFSET_INSIDE) as *mut u32).write(1);
        }
        own.store(address, Ordering::Relaxed);
    }
}

/// Marks the calling kernel thread; `helper`: it is a thread of this process.
pub fn mark_outside(helper: bool) {
    let mark = OUTSIDE[usize::from(helper)].load(Ordering::Relaxed) as *const Activation;
    // SAFETY: leaked, and as large as an activation.
    base::set(unsafe { mark.as_ref() });
}

/// Whether the calling kernel thread is one that libc has started for itself.
pub fn is_helper() -> bool {
    // SAFETY: the pseudo-register is set.
    base::is_set()
        && core::ptr::from_ref(unsafe { base::current() }) as usize
            == OUTSIDE[1].load(Ordering::Relaxed)
}

/// Whether the calling kernel thread is no activation, or runs on borrowed memory.
#[inline]
pub fn is_outside() -> bool {
    if !base::is_set() {
        return true;
    }
    // SAFETY: the pseudo-register is set.
    match unsafe { base::current_thread() } {
        Some(thread) => thread.kernel.lent.load(Ordering::Relaxed),
        // A mark has none.
        // SAFETY: as above.
        None => is_mark(unsafe { base::current() }),
    }
}

/// Whether this is no activation but a mark.
pub fn is_mark(activation: &'static Activation) -> bool {
    let address = core::ptr::from_ref(activation) as usize;
    OUTSIDE
        .iter()
        .any(|mark| mark.load(Ordering::Relaxed) == address)
}

/// The thread that makes the call.
#[inline]
pub fn current_thread() -> Option<&'static Thread> {
    // SAFETY: called for threads only.
    unsafe { base::current_thread() }
}

/// The calling thread, if it runs on an activation and its memory is not lent.
#[inline]
pub fn own_thread() -> Option<&'static Thread> {
    if !base::is_set() {
        return None;
    }
    current_thread().filter(|thread| !thread.kernel.lent.load(Ordering::Relaxed))
}
