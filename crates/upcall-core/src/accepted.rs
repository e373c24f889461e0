//! Which signals some thread may accept, and which of those a handler of ours would see.
//!
//! 1. A thread stores its mask first and then opens what that lets through ([`Accepted::opens`]).
//! 2. The sender of a signal asks all threads; where none accepts it, it is closed, and all are asked once
//!    more ([`Accepted::find_or_close`]). So either they are asked after the mask was stored, or the
//!    thread finds the signal closed and opens it.
//! 3. Those that sleep have said so before they ask with which mask ([`Accepted::passable`]). A thread
//!    that makes it wider is told so, and tells those that sleep.

use crate::sync::{AtomicU64, Ordering};

/// Sets of signals, one bit each. The open ones may be too many, and are never too few.
pub struct Accepted {
    open: AtomicU64,
    handled: AtomicU64,
}

impl Accepted {
    /// None.
    pub const fn new() -> Self {
        Accepted {
            open: AtomicU64::new(0),
            handled: AtomicU64::new(0),
        }
    }

    /// There is one thread, with this mask.
    pub fn start(&self, mask: u64) {
        self.open.store(!mask, Ordering::SeqCst);
    }

    /// Signals that some thread may accept.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::SeqCst)
    }

    /// Signals for which there is a handler.
    pub fn handled(&self) -> u64 {
        self.handled.load(Ordering::SeqCst)
    }

    /// The signals that can be taken for a thread that accepts them.
    pub fn passable(&self) -> u64 {
        self.open() & self.handled()
    }

    /// There is a handler for these signals now, or not any more. `true`: those that sleep must be told.
    #[must_use]
    pub fn handles(&self, signals: u64, handled: bool) -> bool {
        if handled {
            let before = self.handled.fetch_or(signals, Ordering::SeqCst);
            signals & !before & self.open() != 0
        } else {
            self.handled.fetch_and(!signals, Ordering::SeqCst);
            false
        }
    }

    /// A thread has this mask now: it was stored before, SeqCst. `true`: those that sleep must be told.
    #[inline]
    #[must_use]
    pub fn opens(&self, mask: u64) -> bool {
        let more = !mask & !self.open();
        if more == 0 {
            return false;
        }
        self.open.fetch_or(more, Ordering::SeqCst);
        more & self.handled() != 0
    }

    /// Looks for somebody who accepts the signals; if there is nobody, they are closed. `opened` is
    /// called with whom the second look finds.
    pub fn find_or_close<T>(
        &self,
        signals: u64,
        look: impl Fn() -> Option<T>,
        opened: impl FnOnce(&T),
    ) -> Option<T> {
        look().or_else(|| {
            self.open.fetch_and(!signals, Ordering::SeqCst);
            // Somebody may have changed its mask in between, and found the signals open.
            look().inspect(opened)
        })
    }
}

impl Default for Accepted {
    fn default() -> Self {
        Self::new()
    }
}
