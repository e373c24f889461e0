//! One at a time acts, and nobody's asking is lost.
//!
//! 1. A caller that has changed something marks that it asks.
//! 2. It goes in if nobody is inside; otherwise the one inside acts again, or has not looked yet.
//! 3. Inside it takes the mark away, acts on what it finds, and leaves.
//! 4. Outside it looks for the mark again. The leaving comes before the look, for everybody: one who
//!    still found it inside has asked before.

use crate::sync::{AtomicBool, Ordering, fence, test_and_set};

/// The way in. All zeros is open.
pub struct Turnstile {
    asked: AtomicBool,
    inside: AtomicBool,
}

impl Turnstile {
    /// Nobody is inside.
    pub const fn new() -> Self {
        Turnstile {
            asked: AtomicBool::new(false),
            inside: AtomicBool::new(false),
        }
    }

    /// Acts until nobody has asked meanwhile, or lets the one who is inside do so. What follows from
    /// an action is done outside. `is_over`: it does not matter any more.
    pub fn ask<R>(
        &self,
        is_over: impl Fn() -> bool,
        mut act: impl FnMut() -> R,
        mut follow: impl FnMut(R),
    ) {
        self.asked.store(true, Ordering::SeqCst);
        while self.asked.load(Ordering::Acquire) && !is_over() {
            if test_and_set(&self.inside, Ordering::SeqCst) {
                return;
            }
            // A swap: it sees what was changed before the mark that it takes away.
            self.asked.swap(false, Ordering::SeqCst);
            let done = act();
            self.inside.store(false, Ordering::Release);
            // Pairs with the stores and swaps of who asks: it finds nobody inside, or is found.
            fence(Ordering::SeqCst);
            follow(done);
        }
    }
}

impl Default for Turnstile {
    fn default() -> Self {
        Self::new()
    }
}
