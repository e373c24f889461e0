//! How often rings are read: as often as the fullest one needs, and in time.
//!
//! A program that does nothing but switch fills a ring in two milliseconds. A server takes seconds, and is not to be bothered.

use std::time::{Duration, Instant};

use upcall_abi::trace::RECORDS;
use upcall_linux::kernel_slices;

/// Not less often than so, and not more often.
const LONGEST: Duration = Duration::from_millis(5);
const SHORTEST: Duration = Duration::from_micros(200);
/// A ring is to be read when so much of it is new: the reader may be late.
const PART: u64 = RECORDS as u64 / 8;

/// When rings were read. Until it is dropped, the calling kernel thread asks for short slices of time, so that it gets to run in
/// time beside those that compute.
pub struct Pace(Option<Instant>);

impl Pace {
    /// The calling kernel thread reads from now on. What it starts would have short slices, too.
    pub fn begin() -> Self {
        kernel_slices::of_a_reader(true);
        Pace(None)
    }

    /// Rings were read, and in the fullest one so many events were new. Returns for how long nothing need be read.
    pub fn next(&mut self, most: u64) -> Duration {
        let now = Instant::now();
        let since = self.0.replace(now).map_or(LONGEST, |last| now - last);
        pause(since, most)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        kernel_slices::of_a_reader(false);
    }
}

fn pause(since: Duration, most: u64) -> Duration {
    let wanted = since.as_nanos() as u64 * PART / most.max(1);
    Duration::from_nanos(wanted).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_fills_is_read_more_often() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(5), 0), LONGEST);
        assert_eq!(pause(ms(5), PART / 3), LONGEST);
        assert_eq!(pause(ms(4), PART * 2), ms(2));
        // The reader did not get to run for a second, and it was not at fault.
        assert_eq!(pause(ms(1000), PART * 1000), ms(1));
        assert_eq!(pause(ms(5), u64::MAX / 2), SHORTEST);
    }
}
