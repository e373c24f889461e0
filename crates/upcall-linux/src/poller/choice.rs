//! Decides whether a thread blocks or parks where it could do either: event loops, and reads of pipes.
//!
//! Blocking is better if the thread's events come from outside of the process and its virtual processor has nothing else
//! to do. The kernel then wakes the thread where it is, at once, and no activation has to sit in the poller for it.
//! Parking is better if other threads of the process wake it. It then goes on beside the thread that woke it, and not on
//! the processor to which its activation is bound.
//!
//! It is better, too, where a virtual processor is busy serving ([`kernel_slices`]).
//!
//! A wait counts as ended from inside if the program has meanwhile written to a pipe, or to a descriptor that is neither a
//! pipe nor a socket (an eventfd). A thread blocks until that has happened several times in a row. Then it parks until it
//! has not happened for long.

use core::sync::atomic::Ordering;

use super::Poller;
use crate::state::{Activation, Choice, Runtime, Thread, kernel_slices};

/// Woken from inside so often in a row, a thread parks.
const INSIDE: u32 = 4;
/// Woken from outside so often in a row, a parked thread blocks again, on probation.
const OUTSIDE: u32 = 256;

impl Choice {
    /// Returns true if its thread blocks, and does not park.
    fn prefers_blocking(&self) -> bool {
        self.count.load(Ordering::Relaxed) < INSIDE
    }

    /// A wait begins, with so many writes so far.
    pub(super) fn begins(&self, writes: u32) {
        self.writes.store(writes, Ordering::Relaxed);
    }

    /// Its event came, after so many writes.
    pub(super) fn ends(&self, writes: u32) {
        let inside = self.writes.load(Ordering::Relaxed) != writes;
        let count = self.count.load(Ordering::Relaxed);
        let next = match (count >= INSIDE, inside) {
            (false, false) => 0,
            (true, false) => count - 1,
            (false, true) if count + 1 < INSIDE => count + 1,
            (_, true) => INSIDE + OUTSIDE,
        };
        self.count.store(next, Ordering::Relaxed);
    }
}

/// Whether the current thread, on `activation`, had better block in a wait for descriptors. A hint.
pub fn prefers_blocking(activation: &Activation) -> bool {
    let runtime = activation.runtime();
    if activation.prefers_blocking() {
        return true;
    }
    if activation.vp().has_ready() {
        // Also of a loop that finds its next events at once.
        kernel_slices::wait(activation);
        return false;
    }
    !runtime.is_short()
        && activation
            .thread()
            .is_some_and(|thread| thread.kernel.choice.prefers_blocking())
        && !kernel_slices::is_busy_serving(activation)
        && runtime.few_are_away()
}

/// Returns true if the thread that `activation` carries blocks in such a wait. A hint.
pub(crate) fn blocks(activation: &Activation) -> bool {
    activation
        .thread()
        .is_some_and(|thread| thread.kernel.choice.blocks.load(Ordering::Relaxed))
}

impl Poller {
    /// The program has written to what threads of its own may wait for.
    pub fn count_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Blocks the activation in `call`, a wait for descriptors of `thread`, the current one. Now and then the kernel chooses where it
    /// ends.
    pub fn block<R>(
        &self,
        runtime: &'static Runtime,
        thread: &'static Thread,
        call: impl FnOnce() -> R,
    ) -> R {
        let choice = &thread.kernel.choice;
        choice.begins(self.writes.load(Ordering::Relaxed));
        choice.blocks.store(true, Ordering::Relaxed);
        let roams = runtime.kernel().begin_wait_of_thread(runtime);
        let answer = call();
        if roams && !runtime.is_left() {
            runtime.kernel().end_wait_of_thread(runtime);
        }
        choice.blocks.store(false, Ordering::Relaxed);
        choice.ends(self.writes.load(Ordering::Relaxed));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(choice: &Choice, inside: bool) {
        choice.begins(7);
        choice.ends(7 + u32::from(inside));
    }

    #[test]
    fn a_thread_parks_when_it_is_woken_from_inside_in_a_row() {
        let choice = Choice::default();
        for _ in 0..INSIDE - 1 {
            wait(&choice, true);
        }
        wait(&choice, false);
        for _ in 0..INSIDE {
            assert!(choice.prefers_blocking());
            wait(&choice, true);
        }
        assert!(!choice.prefers_blocking());
    }

    #[test]
    fn a_thread_blocks_on_probation_when_it_was_woken_from_outside_for_long() {
        let choice = Choice::default();
        for _ in 0..INSIDE {
            wait(&choice, true);
        }
        for _ in 0..OUTSIDE {
            wait(&choice, false);
        }
        wait(&choice, true);
        for _ in 0..=OUTSIDE {
            assert!(!choice.prefers_blocking());
            wait(&choice, false);
        }
        assert!(choice.prefers_blocking());
        wait(&choice, true);
        assert!(!choice.prefers_blocking());
    }
}
