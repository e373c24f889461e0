//! Knows which processors have been idle lately, from `/proc/stat`.
//!
//! Two samples at least [`WINDOW_NS`] apart say for how much of the time between them each processor was idle. Reading the
//! file costs some microseconds for each processor, so it is read only when a virtual processor is crowded (`pace`).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::processors::affinity::WORDS;
use crate::sys::procfs::{Path, read_by_pieces};

const PROCESSORS: usize = 64 * WORDS;
/// Nanoseconds of the unit in which the kernel counts there: a hundredth of a second everywhere.
pub(crate) const UNIT_NS: u64 = 10_000_000;
/// The shortest time between two samples, nanoseconds: four units, of which one may be missing.
const WINDOW_NS: u64 = 40_000_000;

/// What each processor had been idle at a moment. All zeros: at no moment.
pub(crate) struct Sample {
    taken_ns: AtomicU64,
    /// Idle time of each processor, in units, wrapping.
    idle: [AtomicU32; PROCESSORS],
}

static SAMPLES: [Sample; 2] = [const { Sample::new() }; 2];
static NEWEST: AtomicU32 = AtomicU32::new(0);

/// Takes a sample if the newest is old enough. Callers take turns.
pub(crate) fn sample(now: u64) {
    let newest = NEWEST.load(Ordering::Relaxed);
    if now.wrapping_sub(SAMPLES[newest as usize].taken_ns.load(Ordering::Relaxed)) < WINDOW_NS {
        return;
    }
    let other = 1 - newest;
    SAMPLES[other as usize].take(now);
    NEWEST.store(other, Ordering::Relaxed);
}

/// How much of the time between the last two samples the processor was idle, percent.
pub(crate) fn idle_percent(processor: u32) -> u64 {
    let newest = NEWEST.load(Ordering::Relaxed) as usize;
    let (new, old) = (&SAMPLES[newest], &SAMPLES[1 - newest]);
    let between = new.taken().wrapping_sub(old.taken());
    (new.idle_since(old, processor) * 100 / between.max(1)).min(100)
}

impl Sample {
    pub(crate) const fn new() -> Self {
        Sample {
            taken_ns: AtomicU64::new(0),
            idle: [const { AtomicU32::new(0) }; PROCESSORS],
        }
    }

    /// Reads what the kernel says. Callers take turns.
    pub(crate) fn take(&self, now: u64) {
        read(|processor, idle| {
            if let Some(place) = self.idle.get(processor as usize) {
                place.store(idle, Ordering::Relaxed);
            }
        });
        self.taken_ns.store(now, Ordering::Relaxed);
    }

    /// When it was taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken_ns.load(Ordering::Relaxed)
    }

    /// How long the processor was idle since an older sample, in nanoseconds: to within a hundredth of a second.
    pub(crate) fn idle_since(&self, old: &Sample, processor: u32) -> u64 {
        let (Some(new_idle), Some(old_idle)) = (
            self.idle.get(processor as usize),
            old.idle.get(processor as usize),
        ) else {
            return 0;
        };
        let units = new_idle
            .load(Ordering::Relaxed)
            .wrapping_sub(old_idle.load(Ordering::Relaxed)) as i32;
        // What waits for a disk is counted as idle and may go back.
        u64::from(units.max(0).unsigned_abs()) * UNIT_NS
    }
}

/// Reads how long each processor has been idle since the machine started: its number, and nanoseconds, to within a hundredth of a second.
/// Where the file cannot be read there are none.
pub fn idle_times(mut found: impl FnMut(u32, u64)) {
    read(|processor, idle| found(processor, u64::from(idle) * UNIT_NS));
}

/// Processors and their units.
fn read(mut found: impl FnMut(u32, u32)) {
    let mut parser = Parser::default();
    read_by_pieces::<512>(&Path::new().text(b"/proc/stat"), |bytes| {
        bytes.iter().all(|&byte| parser.feed(byte, &mut found))
    });
}

/// Reads lines such as `cpu3 user nice system idle iowait …`.
#[derive(Default)]
pub(crate) struct Parser {
    /// Letters of "cpu" seen, then 3; a fixed mark for a line that begins otherwise.
    letters: usize,
    processor: Option<u32>,
    /// Fields completed, the first being the processor's number.
    fields: u32,
    number: u32,
    idle: u32,
}

const NAME: &[u8] = b"cpu";

impl Parser {
    /// Takes a byte. Returns true if lines of processors may still come.
    pub(crate) fn feed(&mut self, byte: u8, mut found: impl FnMut(u32, u32)) -> bool {
        if self.letters < NAME.len() {
            if byte != NAME[self.letters] {
                return false;
            }
            self.letters += 1;
            return true;
        }
        match byte {
            b'0'..=b'9' => {
                self.number = self
                    .number
                    .wrapping_mul(10)
                    .wrapping_add(u32::from(byte - b'0'));
                if self.fields == 0 {
                    self.processor = Some(self.number);
                }
            }
            b' ' | b'\n' => {
                // idle and iowait
                if self.fields == 4 || self.fields == 5 {
                    self.idle = self.idle.wrapping_add(self.number);
                }
                self.fields += 1;
                self.number = 0;
                if byte == b'\n' {
                    if let Some(processor) = self.processor {
                        found(processor, self.idle);
                    }
                    *self = Self::default();
                }
            }
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<(u32, u32)> {
        let mut parser = Parser::default();
        let mut all = Vec::new();
        for byte in text.bytes() {
            if !parser.feed(byte, |processor, idle| all.push((processor, idle))) {
                break;
            }
        }
        all
    }

    #[test]
    fn idle_time_is_found_by_processor() {
        let text = "cpu  504573 1 48828 410264 1052 0 596 695 0 0\n\
                    cpu0 256973 0 22342 202877 262 0 239 345 0 0\n\
                    cpu17 247599 1 26486 207386 789 0 356 349 0 0\n\
                    intr 5649359 0 0\ncpu3 1 2 3 4 5\n";
        assert_eq!(parse(text), [(0, 203_139), (17, 208_175)]);
    }

    #[test]
    fn old_kernels_have_fewer_fields_and_nonsense_has_none() {
        assert_eq!(parse("cpu 1 2 3 4\ncpu2 1 2 3 40\n"), [(2, 40)]);
        assert_eq!(parse(""), []);
        assert_eq!(parse("bogus"), []);
        assert_eq!(parse("cpu0"), []);
    }

    #[test]
    fn the_kernels_own_file_has_every_allowed_processor() {
        let text = std::fs::read_to_string("/proc/stat").expect("procfs");
        let seen: Vec<u32> = parse(&text).into_iter().map(|(one, _)| one).collect();
        for processor in crate::sys::limits::allowed_processors() {
            assert!(seen.contains(&processor), "{processor} in {seen:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(
            bytes in proptest::collection::vec(proptest::sample::select(b"cpu0123456789 \n\0\xff-".to_vec()), 0..400),
        ) {
            let mut parser = Parser::default();
            let mut lines = 0;
            for &byte in &bytes {
                if !parser.feed(byte, |_, _| lines += 1) {
                    break;
                }
            }
            let ends = bytes.iter().filter(|&&byte| byte == b'\n').count();
            proptest::prop_assert!(lines <= ends);
        }

        #[test]
        fn any_numbers_are_found_again(rows in proptest::collection::vec((0u32..4096, proptest::array::uniform10(0u32..=u32::MAX)), 0..9)) {
            let text: String = rows
                .iter()
                .map(|(processor, numbers)| {
                    let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
                    format!("cpu{processor} {}\n", numbers.join(" "))
                })
                .collect();
            let expected: Vec<_> = rows
                .iter()
                .map(|(processor, numbers)| (*processor, numbers[3].wrapping_add(numbers[4])))
                .collect();
            proptest::prop_assert_eq!(parse(&text), expected);
        }
    }
}
