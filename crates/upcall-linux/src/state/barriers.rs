//! Barriers that all kernel threads of the process pass at the call of one of them: membarrier(2).
//!
//! Nothing is asked of the kernel under a filter (seccomp(2)), which might end the process for a call that is not made
//! natively.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::sys::{self, error};

const PRIVATE: usize = 1 << 3;
const REGISTER_PRIVATE: usize = 1 << 4;

/// Whether they may be asked for, and how many do just now.
pub struct Barriers {
    allowed: AtomicBool,
    passing: AtomicU32,
}

fn membarrier(command: usize) -> isize {
    // SAFETY: touches no memory.
    unsafe { sys!(sys::SYS_membarrier, command, 0, 0) }
}

impl Barriers {
    /// None so far, and none at all under a filter.
    pub fn new(filtered: bool) -> Self {
        Barriers {
            allowed: AtomicBool::new(!filtered),
            passing: AtomicU32::new(0),
        }
    }

    /// Returns true if they can be had from here on.
    pub fn begin(&self) -> bool {
        let works = self.allowed.load(Ordering::Relaxed)
            && membarrier(REGISTER_PRIVATE) == 0
            && membarrier(PRIVATE) == 0;
        self.allowed.store(works, Ordering::Relaxed);
        works
    }

    /// Returns true if all kernel threads have passed one since the call.
    pub fn pass(&self) -> bool {
        // SeqCst: see `forbid`.
        self.passing.fetch_add(1, Ordering::SeqCst);
        let passed = self.allowed.load(Ordering::SeqCst)
            && loop {
                match error(membarrier(PRIVATE)) {
                    None => break true,
                    Some(libc::ENOMEM) => sys::yield_processor(),
                    // A process that was saved and restored may have lost it.
                    Some(libc::EPERM) if membarrier(REGISTER_PRIVATE) == 0 => {}
                    Some(_) => break false,
                }
            };
        self.passing.fetch_sub(1, Ordering::Release);
        passed
    }

    /// Nobody asks for one any more when this returns.
    pub fn forbid(&self) {
        self.allowed.store(false, Ordering::SeqCst);
        while self.passing.load(Ordering::SeqCst) != 0 {
            sys::yield_processor();
        }
    }
}
