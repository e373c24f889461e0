//! How long an activation's kernel thread ran in a time slice, and how long it waited for its processor. The kernel
//! counts both.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::sys::procfs::{Path, numbers};

/// What an activation remembers of its last slice.
#[derive(Default)]
pub(crate) struct Slice {
    ended_ns: AtomicU64,
    run_ns: AtomicU64,
    wait_ns: AtomicU64,
}

impl Slice {
    /// A new kernel thread.
    pub(crate) fn forget(&self) {
        for word in [&self.ended_ns, &self.run_ns, &self.wait_ns] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// A slice ends. Returns the time since the last one ended, in nanoseconds.
    pub(crate) fn ends(&self, now: u64) -> u64 {
        now.wrapping_sub(self.ended_ns.swap(now, Ordering::Relaxed))
    }

    /// What the activation, whose kernel thread this is, ran and waited for its processor since this was asked last, nanoseconds.
    pub(crate) fn account(&self, tid: i32) -> Option<(u64, u64)> {
        let path = Path::new()
            .text(b"/proc/self/task/")
            .number(tid.unsigned_abs())
            .text(b"/schedstat");
        let mut found = [0; 2];
        if numbers(&path, &mut found) < 2 {
            return None;
        }
        let ran_before = self.run_ns.swap(found[0], Ordering::Relaxed);
        let waited_before = self.wait_ns.swap(found[1], Ordering::Relaxed);
        (ran_before != 0).then(|| {
            (
                found[0].saturating_sub(ran_before),
                found[1].saturating_sub(waited_before),
            )
        })
    }
}
