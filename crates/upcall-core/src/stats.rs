//! Counters for `--stats` and for those who look from outside. Relaxed: they order nothing.

use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};

/// A counter that many activations increase.
#[derive(Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    #[inline]
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down, with its peak.
#[derive(Default)]
#[repr(C)]
pub struct Gauge {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    /// One more; returns how many there are.
    pub fn up(&self) -> u64 {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
        now
    }

    /// One less; returns how many are left.
    pub fn down(&self) -> u64 {
        self.now.fetch_sub(1, Ordering::Relaxed) - 1
    }

    /// How many there are.
    #[inline]
    pub fn get(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// The most there ever were.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// What the runtime counts.
#[derive(Default)]
#[repr(C)]
pub struct Stats {
    shared: Shared,
    /// Activations away from their virtual processor: blocked in the kernel and replaced. The runtime decides by it.
    pub absent: Gauge,
}

impl Deref for Stats {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Stats {
    /// Upcalls: an activation came back, or threads that were parked on the poller can run again.
    pub fn unblocked(&self) -> u64 {
        self.returned.get() + self.delivered.get()
    }
}

/// Counters on a page of their own, which [`Machine::share`](crate::Machine::share) may let other processes see. The runtime
/// decides nothing by them, so nobody who writes there does it harm.
// A model shares nothing, and its threads have small stacks.
#[derive(Default)]
#[cfg_attr(not(any(loom, shuttle)), repr(C, align(4096)))]
#[cfg_attr(any(loom, shuttle), repr(C))]
pub struct Shared {
    /// The machine's.
    pub head: [AtomicU64; 8],
    /// Threads created.
    pub created: Counter,
    /// Threads alive.
    pub threads: Gauge,
    /// Activations alive.
    pub activations: Gauge,
    /// Upcalls: the virtual processor of a blocked activation went to another one.
    pub blocked: Counter,
    /// Upcalls: an activation came back that was blocked and replaced.
    pub returned: Counter,
    /// Upcalls: threads that were parked on the poller can run again.
    pub delivered: Counter,
    /// Upcalls: an activation was preempted for another one of its virtual processor.
    pub displaced: Counter,
    /// Upcalls: an idle virtual processor was put to work.
    pub rung: Counter,
    /// Upcalls: a processor was taken for another address space.
    pub taken: Counter,
    /// Threads preempted at the end of their time slice.
    pub preempted: Counter,
    /// Threads stolen from another virtual processor's ready list.
    pub stolen: Counter,
    /// Activations taken from the pool instead of being created.
    pub recycled: Counter,
    /// Activations that the kernel refused, for want of threads or memory.
    pub refused: Counter,
    /// Threads parked on the poller.
    pub polled: Counter,
}
