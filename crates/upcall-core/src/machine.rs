//! The ground under the runtime: clock, memory, and a way to let others run.
//!
//! Everything that needs no more than this (locks, slabs, stacks, threads and the lists of them) is written
//! against [`Machine`]. What the runtime asks of the kernel beside that is in [`crate::kernel`].

use core::ptr::NonNull;

/// A kernel error number, positive (`EAGAIN` is 11 on Linux).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// The machine on which the runtime runs.
///
/// # Safety
///
/// Implementations must keep mapped memory mapped for ever.
pub unsafe trait Machine: Sized + Sync + 'static {
    /// What the backend keeps with each activation.
    type ActivationState: Default + Sync;
    /// What the backend keeps with each thread.
    type ThreadState: Default + Sync;

    /// Nanoseconds of a clock that never goes back.
    fn now(&self) -> u64 {
        0
    }

    /// Lets another kernel thread run on this processor, if there is one.
    fn yield_processor(&self) {}

    /// Returns true if [`Machine::pass_barriers`] works, until it is forbidden. Asked once, at the start.
    fn has_barriers(&self) -> bool {
        false
    }

    /// Makes every other kernel thread of the process pass a full barrier before this returns, as membarrier(2) does. Returns
    /// false if that cannot be done, or is forbidden.
    fn pass_barriers(&self) -> bool {
        false
    }

    /// Called before a lock is taken: a chance to see that the caller is inside the runtime, where nobody parks the holder.
    #[inline]
    fn locks(&self) {}

    /// Called while a lock is taken. Lets the holder run, which may have been interrupted.
    fn await_holder(&self) {
        self.yield_processor();
    }

    /// Maps `length` bytes of zeroed memory for ever, without reserving it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, as positive number.
    fn map(&self, length: usize) -> Result<NonNull<u8>, Errno>;

    /// As [`Machine::map`], for activations. A backend may want to tell their addresses from others.
    ///
    /// # Errors
    ///
    /// As [`Machine::map`], or that there is no room for so many.
    fn map_activations(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        self.map(length)
    }

    /// As [`Machine::map`], for stacks with guards. A backend may want to keep them apart from other memory.
    ///
    /// # Errors
    ///
    /// As [`Machine::map`].
    fn map_stacks(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        self.map(length)
    }

    /// Puts zeroed memory in the place of a page of 4096 bytes that other processes can see, if the machine has that. All
    /// of it is zero so far, and nobody uses it yet.
    fn share(&self, _page: NonNull<u8>) {}

    /// Makes pages inaccessible, preferably without a mapping of their own.
    fn guard(&self, _page: NonNull<u8>, _length: usize) {}

    /// The adviser has used up a time slice for one answer. See [`crate::Inside::become_adviser`].
    fn advice_is_late(&self) {}

    /// An invariant is broken. Prints what it can and ends the process.
    fn broken(&self, what: &str) -> !;
}
