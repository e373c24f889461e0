//! Sleeping, and doing something again and again.
//!
//! A thread that sleeps parks. All moments are of the clock of [`Instant`] (CLOCK_MONOTONIC), and a sleep ends
//! late by up to the thread's timer slack (50 µs unless set by prctl(2)), as in the kernel.
//!
//! When a wait for a descriptor ends is said by its [deadline](crate::io::Deadlines).

use std::thread;

pub use std::thread::sleep;
pub use std::time::{Duration, Instant};

/// Sleeps until a moment. Returns at once if it has passed.
pub fn sleep_until(moment: Instant) {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left);
    }
}

/// Makes a clock that ticks at equal distances, first after one distance. [`Interval::tick`] waits for the next tick.
/// The time that the work between two ticks takes does not shift them.
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

/// A clock that ticks. See [`interval`].
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    /// The last tick, passed over or told.
    last: Instant,
}

impl Interval {
    /// Waits for the next tick. Returns how many ticks there were since the last call, at least 1. All but one of them
    /// were missed; they are not made up for.
    pub fn tick(&mut self) -> u32 {
        let passed = self.last.elapsed().as_nanos() / self.period.as_nanos();
        let ticks = u32::try_from(passed).unwrap_or(u32::MAX).max(1);
        self.last += self.period * ticks;
        sleep_until(self.last);
        ticks
    }

    /// Returns the distance between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }
}
