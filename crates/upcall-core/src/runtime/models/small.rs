//! What the layers above use besides the runtime: the turnstile, the sets of accepted signals.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use loom::thread;

use super::check;
use crate::sync::{AtomicU32, AtomicU64, UnsafeCell};
use crate::{Accepted, Turnstile};

/// Two changes, of which an action must have seen both in the end.
struct Decided {
    turnstile: Turnstile,
    changes: [AtomicU32; 2],
    /// Belongs to the thread that is inside.
    seen: UnsafeCell<[u32; 2]>,
}

// SAFETY: loom watches the cell.
unsafe impl Sync for Decided {}

impl Decided {
    fn change(&self, which: usize) {
        self.changes[which].store(1, Ordering::Relaxed);
        let act = || {
            let seen = [0, 1].map(|at: usize| self.changes[at].load(Ordering::Relaxed));
            // SAFETY: one at a time is what the model checks.
            unsafe { *self.seen.get() = seen };
        };
        self.turnstile.ask(|| false, act, |()| ());
    }
}

#[test]
fn what_was_changed_before_somebody_asked_is_acted_upon() {
    check(10, || {
        let decided = Arc::new(Decided {
            turnstile: Turnstile::new(),
            changes: [AtomicU32::new(0), AtomicU32::new(0)],
            seen: UnsafeCell::new([0; 2]),
        });
        let other = {
            let decided = decided.clone();
            thread::spawn(move || decided.change(1))
        };
        decided.change(0);
        other.join().unwrap();
        // SAFETY: nobody else is left.
        assert_eq!(unsafe { *decided.seen.get() }, [1, 1]);
    });
}

const SIGNAL: u64 = 1 << 9;

/// The sets, one thread's mask, and those that sleep.
struct Signals {
    accepted: Accepted,
    mask: AtomicU64,
    sleeps: AtomicU32,
    told: AtomicU32,
}

impl Signals {
    fn new(mask: u64) -> Arc<Self> {
        Arc::new(Signals {
            accepted: Accepted::new(),
            mask: AtomicU64::new(mask),
            sleeps: AtomicU32::new(0),
            told: AtomicU32::new(0),
        })
    }

    /// Tells those that sleep, as the kernel half does.
    fn tell(&self, wider: bool) {
        if wider && self.sleeps.load(Ordering::SeqCst) != 0 {
            self.told.store(1, Ordering::SeqCst);
        }
    }

    /// The thread changes its mask, as the guest does.
    fn set_mask(&self, mask: u64) {
        self.mask.store(mask, Ordering::SeqCst);
        self.tell(self.accepted.opens(mask));
    }
}

/// Somebody takes the signal, finds nobody who accepts it and closes it, while the thread opens its
/// mask and may find the signal open still.
#[test]
fn a_signal_that_a_thread_accepts_is_not_closed() {
    check(10, || {
        let signals = Signals::new(SIGNAL);
        signals.accepted.start(!SIGNAL);
        let taker = {
            let signals = signals.clone();
            thread::spawn(move || {
                let look = || (signals.mask.load(Ordering::SeqCst) & SIGNAL == 0).then_some(());
                let opened = |(): &()| {
                    let mask = signals.mask.load(Ordering::SeqCst);
                    signals.tell(signals.accepted.opens(mask));
                };
                signals
                    .accepted
                    .find_or_close(SIGNAL, look, opened)
                    .is_some()
            })
        };
        signals.set_mask(0);
        taker.join().unwrap();
        assert_ne!(signals.accepted.open() & SIGNAL, 0, "it waits for ever");
    });
}

/// A sleeper says that it sleeps and asks with which mask; one thread opens its mask, and another
/// gives the signal its first handler.
#[test]
fn whoever_goes_to_sleep_lets_a_signal_through_or_is_told() {
    check(10, || {
        let signals = Signals::new(SIGNAL);
        let [handler, sleeper] = [0, 1].map(|which: usize| {
            let signals = signals.clone();
            thread::spawn(move || {
                if which == 0 {
                    signals.tell(signals.accepted.handles(SIGNAL, true));
                    return 0;
                }
                signals.sleeps.store(1, Ordering::SeqCst);
                signals.accepted.passable()
            })
        });
        signals.set_mask(!SIGNAL);
        handler.join().unwrap();
        let through = sleeper.join().unwrap();
        let told = signals.told.load(Ordering::SeqCst) != 0;
        assert!(
            told || through & SIGNAL != 0,
            "it sleeps through the signal"
        );
    });
}
