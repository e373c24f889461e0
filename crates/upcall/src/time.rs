//! Sleeping, and doing something again and again.
//!
//! A thread that sleeps parks. All moments are of the clock of [`Instant`] (CLOCK_MONOTONIC), and a sleep ends
//! late by up to the thread's timer slack (50 µs unless set by prctl(2)), as in the kernel.
//!
//! When a wait for a descriptor ends is said by its [deadline](crate::io::Deadlines).

use std::thread;

pub use std::thread::sleep;
pub use std::time::{Duration, Instant};

/// Sleeps until a moment; not at all if it has passed.
pub fn sleep_until(moment: Instant) {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left);
    }
}

/// A clock that ticks at equal distances, the first time one distance from now: [`Interval::tick`] waits for
/// the next tick. How long the work between two ticks takes does not shift them.
///
/// # Panics
///
/// If `period` is zero.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval of no time");
    Interval {
        period,
        last: Instant::now(),
    }
}

/// What [`interval`] makes.
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    /// The last tick, passed over or told.
    last: Instant,
}

impl Interval {
    /// Waits for the next tick, and tells how many there were since the last call, of which all but one were missed:
    /// nothing is made up for. At least 1.
    pub fn tick(&mut self) -> u32 {
        let passed = self.last.elapsed().as_nanos() / self.period.as_nanos();
        let ticks = u32::try_from(passed).unwrap_or(u32::MAX).max(1);
        self.last += self.period * ticks;
        sleep_until(self.last);
        ticks
    }

    /// How far the ticks are apart.
    pub fn period(&self) -> Duration {
        self.period
    }
}
