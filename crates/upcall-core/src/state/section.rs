//! The critical sections of the program in which a thread is.
//!
//! A thread writes `depth`, and nobody else does: one store to enter a section, and one to leave it. The runtime reads it
//! where it would take the processor from the thread ([`crate::Runtime`]'s `sections`).
//!
//! The runtime writes `overdue`, where the thread does nothing meanwhile: in the thread itself, which it has interrupted
//! between two instructions, or while the thread is saved. So a thread that has left its outermost section sees there what
//! came before it left. What comes afterwards finds it outside.

use crate::sync::{AtomicU32, Ordering};

/// So many ends of time slices do not preempt a thread in one section, so that no thread keeps a processor.
const MOST_SLICES: u32 = 2;

/// The thread is to give way at the end of the section. Each end of a time slice in it adds one.
const ASKED: u32 = 1;

/// The sections of a thread.
pub(crate) struct Sections {
    /// How many it is in, one inside the other.
    depth: AtomicU32,
    /// 0, or [`ASKED`] and how many time slices have ended in this section.
    overdue: AtomicU32,
}

impl Sections {
    pub(crate) fn none() -> Self {
        Sections {
            depth: AtomicU32::new(0),
            overdue: AtomicU32::new(0),
        }
    }

    /// A new thread has the memory. What was overdue is forgotten when it leaves a section, or when a slice ends.
    #[inline]
    pub(crate) fn begin(&self) {
        self.depth.store(0, Ordering::Relaxed);
    }

    /// The thread enters a section.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth.wrapping_add(1), Ordering::Relaxed);
    }

    /// The thread leaves a section, if it is in one. Returns true if that was the outermost, and the thread is to give way.
    #[inline(always)]
    pub(crate) fn leave(&self) -> bool {
        let depth = self.depth.load(Ordering::Relaxed);
        let Some(left) = depth.checked_sub(1) else {
            return false;
        };
        self.depth.store(left, Ordering::Relaxed);
        // Not before the store: see the module's text.
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        left == 0 && self.overdue.load(Ordering::Relaxed) != 0
    }

    /// Returns true if the thread is in a section and has not been there for too long. Of another thread, at some moment.
    #[inline]
    pub(crate) fn protect(&self) -> bool {
        self.depth.load(Ordering::Relaxed) != 0
            && self.overdue.load(Ordering::Relaxed) <= ASKED + MOST_SLICES
    }

    /// Another thread should run here. Returns true if the thread goes on to the end of its section first.
    pub(crate) fn defer(&self) -> bool {
        let protects = self.protect();
        if protects && self.overdue.load(Ordering::Relaxed) == 0 {
            self.overdue.store(ASKED, Ordering::Relaxed);
        }
        protects
    }

    /// A time slice of the thread ends. Returns true if the thread goes on to the end of its section first.
    pub(crate) fn defer_slice(&self) -> bool {
        if self.depth.load(Ordering::Relaxed) == 0 {
            self.overdue.store(0, Ordering::Relaxed);
            return false;
        }
        let overdue = self.overdue.load(Ordering::Relaxed).max(ASKED) + 1;
        self.overdue
            .store(overdue.min(ASKED + MOST_SLICES + 1), Ordering::Relaxed);
        self.protect()
    }

    /// The thread, which was to give way, has left its section. Returns true if a time slice ended in it.
    pub(crate) fn settle(&self) -> bool {
        let overdue = self.overdue.load(Ordering::Relaxed);
        self.overdue.store(0, Ordering::Relaxed);
        overdue > ASKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_outermost_section_says_that_the_thread_gives_way() {
        let sections = Sections::none();
        assert!(!sections.protect() && !sections.defer());
        sections.enter();
        sections.enter();
        assert!(sections.defer());
        assert!(!sections.leave());
        assert!(sections.protect() && sections.leave());
        assert!(!sections.protect() && !sections.settle());
        sections.enter();
        assert!(!sections.leave());
    }

    #[test]
    fn a_section_that_lasts_too_long_protects_no_more_until_it_ends() {
        let sections = Sections::none();
        sections.enter();
        for _ in 0..MOST_SLICES {
            assert!(sections.defer_slice() && sections.defer());
        }
        for _ in 0..3 {
            assert!(!sections.defer_slice() && !sections.defer() && !sections.protect());
            sections.enter();
            assert!(!sections.protect() && !sections.leave());
        }
        assert!(sections.leave() && sections.settle());
        sections.enter();
        assert!(sections.protect() && sections.defer_slice());
        assert!(sections.leave() && sections.settle());
    }

    #[test]
    fn who_is_in_no_section_leaves_none() {
        let sections = Sections::none();
        assert!(!sections.leave() && !sections.protect());
        sections.enter();
        assert!(sections.protect());
        // A thread that has ended inside.
        sections.begin();
        assert!(!sections.protect() && !sections.defer_slice());
    }
}
