//! How long an activation's kernel thread ran in a time slice, and how long it waited for its processor. The kernel
//! counts both.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sys::procfs::{Path, numbers};

/// What an activation remembers of its last slice.
#[derive(Default)]
pub(crate) struct Slice {
    ended_ns: AtomicU64,
    run_ns: AtomicU64,
    wait_ns: AtomicU64,
    /// When it was accounted last, a slice ended that began at this time.
    accounted_ns: AtomicU64,
    /// It has been a standby since its last slice ended.
    stood_by: AtomicBool,
}

/// What an activation had of its processor, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spent {
    /// When its slice began.
    pub began: u64,
    pub ran: u64,
    /// It could have run, and others did.
    pub waited: u64,
}

/// What a slice says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Accounted {
    /// Since the last account.
    pub spent: Spent,
    /// That was at the end of the slice before, and it has been no standby meanwhile.
    pub is_one_slice: bool,
}

impl Slice {
    /// A new kernel thread.
    pub(crate) fn forget(&self) {
        for word in [
            &self.ended_ns,
            &self.run_ns,
            &self.wait_ns,
            &self.accounted_ns,
        ] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// It is a standby now: it waits for its own owner.
    #[inline]
    pub(crate) fn stands_by(&self) {
        if !self.stood_by.load(Ordering::Relaxed) {
            self.stood_by.store(true, Ordering::Relaxed);
        }
    }

    /// A slice ends. Returns when the last one ended; 0: none has.
    pub(crate) fn ends(&self, now: u64) -> u64 {
        self.ended_ns.swap(now, Ordering::Relaxed)
    }

    /// The calling activation goes on after a sleep that was not its thread's: a slice begins.
    pub(crate) fn begins(&self, tid: i32, now: u64) {
        let before = self.ends(now);
        self.account(tid, before, now);
    }

    /// What the activation, whose kernel thread this is, ran and waited for its processor since this was asked last.
    /// The slice that ends now began at `began` and ends at `now`.
    pub(crate) fn account(&self, tid: i32, began: u64, now: u64) -> Option<Accounted> {
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
        let accounted = self.accounted_ns.swap(now, Ordering::Relaxed);
        let stood_by = self.stood_by.load(Ordering::Relaxed);
        self.stood_by.store(false, Ordering::Relaxed);
        (ran_before != 0).then(|| Accounted {
            spent: Spent {
                began,
                ran: found[0].saturating_sub(ran_before),
                waited: found[1].saturating_sub(waited_before),
            },
            is_one_slice: accounted == began && !stood_by,
        })
    }
}
