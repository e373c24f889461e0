//! The primitives under everything lock-free here: the machine's own, or a model checker's.
//!
//! With `--cfg loom` or `--cfg shuttle` the same code runs on the checker's atomics: see `models`
//! for what is proven, and what is not.

/// Whether a model checker runs this: tables are small then, so that it comes to their ends.
pub const CHECKED: bool = cfg!(any(loom, shuttle));

#[cfg(not(any(loom, shuttle)))]
mod machine {
    pub use core::cell::UnsafeCell;
    pub use core::hint::spin_loop;
    pub use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    /// Sets a flag. Returns true if it was set before.
    #[inline(always)]
    pub fn test_and_set(flag: &AtomicBool, order: Ordering) -> bool {
        flag.swap(true, order)
    }

    /// One half of a barrier between kernel threads, whose other half is
    /// [`Machine::pass_barriers`](crate::Machine::pass_barriers): here only the compiler must not reorder.
    #[inline(always)]
    pub fn light_barrier() {
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    /// A full barrier behind a locked instruction of the same kernel thread, which is one already on
    /// x86-64: there it only keeps the compiler from reordering.
    #[inline(always)]
    pub fn fence_after_locked() {
        #[cfg(target_arch = "x86_64")]
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        #[cfg(not(target_arch = "x86_64"))]
        core::sync::atomic::fence(Ordering::SeqCst);
    }
}

#[cfg(not(any(loom, shuttle)))]
pub use machine::*;

#[cfg(any(loom, shuttle))]
mod checked;
#[cfg(any(loom, shuttle))]
pub use checked::*;
