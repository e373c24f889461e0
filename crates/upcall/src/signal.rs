//! One thread waits, others tell it to look again.

use std::sync::atomic::Ordering;

use crate::waiting::{self, AtomicU32};

const EMPTY: u32 = 0;
const SET: u32 = 1;
const AWAITED: u32 = 2;

/// Set or not. The waiting thread takes it back. Any number of threads set it, one waits.
#[derive(Debug)]
pub(crate) struct Signal(AtomicU32);

impl Signal {
    pub(crate) fn new() -> Self {
        Signal(AtomicU32::new(EMPTY))
    }

    /// The waiting thread sees what was done before.
    pub(crate) fn set(&self) {
        // Release: pairs with the Acquire in `wait`.
        if self.0.swap(SET, Ordering::Release) == AWAITED {
            waiting::wake(&self.0, 1);
        }
    }

    /// Waits until it is set, and takes it back.
    pub(crate) fn wait(&self) {
        // Acquire: pairs with the Release in `set`.
        while self.0.swap(EMPTY, Ordering::Acquire) != SET {
            let empty =
                self.0
                    .compare_exchange(EMPTY, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
            if empty.is_ok() {
                waiting::wait(&self.0, AWAITED, None);
            }
        }
    }
}
