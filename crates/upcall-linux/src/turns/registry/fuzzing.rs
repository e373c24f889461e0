//! Runs one member among others that write any value to any word at any time.

use std::boxed::Box;
use std::cell::Cell;

use super::super::rules::truce;
use super::super::rules::{TIMES, decide};
use super::*;

/// Takes words from the bytes until there are none.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number that is likely to do harm, or any.
    fn word(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            kind @ 0..=15 => {
                [0, 1, u64::MAX, i64::MAX as u64, 1 << 32, 20_000_000][usize::from(kind) % 6]
            }
            kind @ 16..=127 => u64::from(kind) * 1_000_000,
            _ => {
                let (first, rest) = self.0.split_at(self.0.len().min(8));
                self.0 = rest;
                first
                    .iter()
                    .fold(0, |word, &byte| word << 8 | u64::from(byte))
            }
        })
    }
}

/// Joins memory that begins as the script says, and lives there while it changes.
pub fn live_among(bytes: &[u8]) {
    std::thread_local! {
        static MEMORY: Cell<Option<&'static Shared>> = const { Cell::new(None) };
    }
    // SAFETY: zeros are the valid beginning.
    let shared = MEMORY
        .take()
        .unwrap_or_else(|| Box::leak(unsafe { Box::<Shared>::new_zeroed().assume_init() }));
    MEMORY.set(Some(shared));
    run(shared, &mut Script(bytes));
    wipe(shared);
}

fn words(shared: &'static Shared) -> &'static [AtomicU64] {
    // SAFETY: the layout is words of 64 bits, or two of 32 that nobody needs whole.
    unsafe { core::slice::from_raw_parts((&raw const *shared).cast(), SIZE / 8) }
}

fn wipe(shared: &'static Shared) {
    for word in words(shared) {
        word.store(0, Ordering::Relaxed);
    }
}

/// The others write a word of the memory: of the header or of a slot.
fn change(shared: &'static Shared, script: &mut Script<'_>) -> Option<()> {
    let (slot, word, value) = (script.byte()?, script.byte()?, script.word()?);
    let at = usize::from(slot) % (SLOTS + 1) * 16 + usize::from(word) % 16;
    words(shared)[at].store(value, Ordering::Relaxed);
    Some(())
}

fn run(shared: &'static Shared, script: &mut Script<'_>) -> Option<()> {
    for _ in 0..script.byte()? {
        change(shared, script)?;
    }
    let own = std::process::id();
    let Some(registry) = Registry::take(shared, own as i32) else {
        // All are others', who live as far as this one may know.
        let taken = |slot: &Slot| is_alive(slot.pid.load(Ordering::Relaxed));
        assert!(shared.slots.iter().all(taken));
        return None;
    };
    let slot = registry.own();
    let me = registry.id();
    assert!(me < SLOTS as u32);
    let mut room = [Member::default(); SLOTS];
    let mut mine = Member {
        id: me,
        busy: Set([3, 0, 0, 0]),
        ..Member::default()
    };
    let (mut now, mut since) = (1, 1);
    loop {
        match script.byte()? % 8 {
            0 => registry.bury(u32::from(script.byte()?)),
            1 => {
                registry.offer(u32::from(script.byte()?), now);
                false
            }
            2 => {
                registry.want(u32::from(script.byte()?));
                registry.is_wanted()
            }
            3 => {
                registry.publish(registry.me().phase);
                registry.beat(now);
                false
            }
            4 => {
                mine.busy = Set([script.word()?, 0, 0, script.word()?]);
                registry.publish_busy(mine.busy);
                false
            }
            5 => {
                // One word of the memory, its own slot included.
                change(shared, script)?;
                false
            }
            _ => {
                let step = u64::from(script.byte()?) * 1_000_000;
                now += step;
                let count = registry.others(&mut room);
                assert!(count < SLOTS);
                assert!(
                    room[..count]
                        .iter()
                        .all(|one| one.id != me && one.id < SLOTS as u32)
                );
                mine.truce = truce::in_force(&mine, &room[..count], now, &TIMES);
                assert!(mine.truce.until <= now + TIMES.longest_truce);
                let verdict = decide(&mine, &room[..count], now, &TIMES);
                assert_eq!((verdict.offers | verdict.holders) & (1 << me), 0);
                // Rule 4, whatever they say: looked at in time, it goes on in time.
                if !matches!(mine.phase, Phase::Waiting { .. }) {
                    since = now;
                }
                mine.phase = verdict.phase;
                if matches!(mine.phase, Phase::Waiting { .. }) {
                    assert!(
                        now - since <= TIMES.longest + step,
                        "waits for {} ms",
                        (now - since) / 1_000_000
                    );
                }
                registry.publish(mine.phase);
                mine.phase = verdict.phase;
                slot.pid.load(Ordering::Relaxed) == own
            }
        };
    }
}
