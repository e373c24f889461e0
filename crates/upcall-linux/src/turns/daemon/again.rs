//! When a daemon is asked again, that was not there or is not there any more.
//!
//! A daemon may be started after a program, and one that has ended is as a rule started again: by the service manager, or with a
//! newer version. So a program asks again after a second, and then ever more seldom. Where nothing has the name of the socket that
//! is one system call.

use core::sync::atomic::{AtomicU64, Ordering};

/// The first pause, in nanoseconds.
const FIRST_NS: u64 = 1_000_000_000;
/// The longest pause, in nanoseconds.
const LONGEST_NS: u64 = 64_000_000_000;

/// Belongs to one activation at a time.
#[derive(Default)]
pub(crate) struct Again {
    /// 0: never.
    at: AtomicU64,
    pause: AtomicU64,
}

impl Again {
    /// The daemon was asked for the first time, or has ended.
    pub(crate) fn begin(&self, now: u64) {
        self.pause.store(FIRST_NS, Ordering::Relaxed);
        self.at.store(now + FIRST_NS, Ordering::Relaxed);
    }

    /// It is not asked any more.
    pub(crate) fn end(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    /// Returns true if it is time to ask. Then the next time is later.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        let is_due = at != 0 && now >= at;
        if is_due {
            let pause = (2 * self.pause.load(Ordering::Relaxed)).min(LONGEST_NS);
            self.pause.store(pause, Ordering::Relaxed);
            self.at.store(now + pause, Ordering::Relaxed);
        }
        is_due
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn it_is_asked_ever_more_seldom() {
        let again = Again::default();
        again.begin(5 * S);
        let asked: Vec<u64> = (0..400).filter(|&s| again.is_due(s * S)).collect();
        assert_eq!(asked, [6, 8, 12, 20, 36, 68, 132, 196, 260, 324, 388]);
        again.begin(500 * S);
        assert!(!again.is_due(500 * S) && again.is_due(501 * S));
    }

    #[test]
    fn it_may_never_be_asked() {
        let again = Again::default();
        assert!(!again.is_due(u64::MAX));
        again.begin(S);
        again.end();
        assert!(!again.is_due(u64::MAX));
    }
}
