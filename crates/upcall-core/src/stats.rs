//! Counters for `--stats`. Relaxed: they order nothing.

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter that many activations increase.
#[derive(Default)]
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

/// What `--stats` prints.
#[derive(Default)]
pub struct Stats {
    /// Threads created.
    pub created: Counter,
    /// Threads alive.
    pub threads: Gauge,
    /// Upcalls: the virtual processor of a blocked activation went to another one.
    pub blocked: Counter,
    /// Upcalls: an activation came back and its thread could run again.
    pub unblocked: Counter,
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
    /// Activations alive.
    pub activations: Gauge,
    /// Activations taken from the pool instead of being created.
    pub recycled: Counter,
    /// Activations that the kernel refused, for want of threads or memory.
    pub refused: Counter,
    /// Threads parked on the poller.
    pub polled: Counter,
    /// Activations away from their virtual processor: blocked in the kernel and replaced.
    pub absent: Gauge,
}
