//! Notices owners that block while another process keeps the sentinel from running.
//!
//! A sentinel is in the idle scheduling class. A process that computes on the same processor starves it: the sentinel gets
//! a three-hundredth of the time, and would notice a block after hundreds of milliseconds. Meanwhile the poller looks at
//! the owners every [`EVERY_MS`]. The poller is an ordinary activation that wakes from a sleep, so it runs soon.
//!
//! Watching begins when one of these happens:
//! - a time slice shows that others crowd the processor (`pace`);
//! - an activation returns and finds an owner in a system call while threads wait;
//! - a sentinel finds an owner blocked, and was itself kept from running since the owner last ran.
//!
//! It ends [`LASTS_NS`] after the last of them.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::sys::processor_time;

/// Milliseconds between two looks.
const EVERY_MS: isize = 2;
const LASTS_NS: u64 = 1_000_000_000;
/// A sentinel that was kept from running for this time is starved, nanoseconds.
const LATE_NS: u64 = 3_000_000;

/// Whether owners are watched.
#[derive(Default)]
pub(crate) struct Watch {
    /// Until when; 0 for not at all.
    until_ns: AtomicU64,
}

impl Watch {
    /// Watches from now on for a while. Returns true if it did not before.
    pub(crate) fn begin(&self, now: u64) -> bool {
        self.until_ns.swap(now + LASTS_NS, Ordering::Relaxed) == 0
    }

    /// Nobody crowds: ends what has lasted long enough.
    pub(crate) fn end(&self, now: u64) {
        if self.is_on() && now > self.until_ns.load(Ordering::Relaxed) {
            self.until_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Whether somebody must look now and then.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.until_ns.load(Ordering::Relaxed) != 0
    }

    /// How long the poller may sleep, in epoll_pwait's milliseconds.
    pub(crate) fn pause(&self, now: u64) -> isize {
        let until = self.until_ns.load(Ordering::Relaxed);
        if until == 0 {
            return -1;
        }
        self.end(now);
        EVERY_MS
    }
}

/// What a sentinel saw when it looked last.
#[derive(Default)]
pub(crate) struct Glance {
    at_ns: AtomicU64,
    owner: AtomicI32,
    owner_ns: AtomicU64,
}

impl Glance {
    /// It sleeps, or is new: what it saw says nothing about the time until its next look.
    pub(crate) fn forget(&self) {
        self.owner.store(0, Ordering::Relaxed);
    }

    /// The sentinel looks at an owner. Returns true if others kept it from doing so. Its processor was
    /// free from the moment at which the owner stopped running.
    pub(crate) fn is_late(&self, tid: i32, now: u64) -> bool {
        let ran = processor_time(tid);
        let since = now.saturating_sub(self.at_ns.swap(now, Ordering::Relaxed));
        let ran_since = ran.saturating_sub(self.owner_ns.swap(ran, Ordering::Relaxed));
        self.owner.swap(tid, Ordering::Relaxed) == tid && since > ran_since + LATE_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_for_a_while_after_the_last_sign() {
        let watch = Watch::default();
        assert!(!watch.is_on());
        assert_eq!(watch.pause(5), -1);
        assert!(watch.begin(5));
        assert!(!watch.begin(5));
        assert!(watch.is_on());
        assert_eq!(watch.pause(5 + LASTS_NS), EVERY_MS);
        assert!(watch.is_on());
        assert_eq!(watch.pause(6 + LASTS_NS), EVERY_MS);
        assert!(!watch.is_on());
    }
}
