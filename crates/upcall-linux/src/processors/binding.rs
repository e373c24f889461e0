//! The processor to which an activation has bound itself.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::processors::affinity::{self, Set};

/// To which processor an activation has bound itself.
#[derive(Default)]
pub(crate) struct Binding(AtomicU32);

impl Binding {
    const KNOWN: u32 = 1 << 31;

    /// What the word holds for a processor in the present generation of the allowed set.
    #[inline]
    fn word(processor: u32) -> u32 {
        Self::KNOWN | (affinity::generation() << 10 | processor & 1023) & !Self::KNOWN
    }

    /// Binds the calling kernel thread, whose binding this is, unless it is bound there. Returns true if it was not.
    #[inline]
    pub(crate) fn bind(&self, processor: u32) -> bool {
        let word = Self::word(processor);
        let is_new = self.0.load(Ordering::Relaxed) != word;
        if is_new {
            self.forget();
            if affinity::apply(&Set::only(processor)) {
                self.0.store(word, Ordering::SeqCst);
            } else {
                affinity::is_stale();
            }
        }
        is_new
    }

    /// The processor; `None` while it is unknown or the allowed set has changed since.
    pub(crate) fn processor(&self) -> Option<u32> {
        let word = self.0.load(Ordering::SeqCst);
        let processor = word & 1023;
        (word == Self::word(processor)).then_some(processor)
    }

    /// It is not known any more.
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}
