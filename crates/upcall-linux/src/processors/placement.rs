//! Decides on which processors virtual processors run. It makes no system call of its own.
//!
//! Invariant: no processor has two virtual processors more than another allowed one.

use core::sync::atomic::AtomicBool;

use upcall_core::{Kernel, Vp};

use crate::processors::affinity::Set;
use crate::sys::procfs::{Path, numbers};

/// Something that lives on a processor.
pub(crate) trait Home {
    /// Where it lives.
    fn processor(&self) -> u32;
    fn move_to(&self, processor: u32);
}

/// One virtual processor of a process moves at a time.
pub(crate) static MOVING: AtomicBool = AtomicBool::new(false);

impl<K: Kernel> Home for Vp<K> {
    fn processor(&self) -> u32 {
        self.processor()
    }

    fn move_to(&self, processor: u32) {
        self.move_to(processor);
    }
}

/// How many live there.
pub(crate) fn count(homes: &[impl Home], processor: u32) -> usize {
    homes
        .iter()
        .filter(|home| home.processor() == processor)
        .count()
}

/// Moves to a processor; who lives there and is to make room goes where it lived.
pub(crate) fn change_places<H: Home>(home: &H, processor: u32, resident: Option<&H>) {
    if let Some(resident) = resident {
        resident.move_to(home.processor());
    }
    home.move_to(processor);
}

/// Moves as few as possible so that all live on allowed processors, evenly.
pub(crate) fn spread(homes: &[impl Home], allowed: &Set) {
    let emptiest = || {
        allowed
            .iter()
            .min_by_key(|&processor| count(homes, processor))
    };
    for home in homes {
        if !allowed.has(home.processor())
            && let Some(processor) = emptiest()
        {
            home.move_to(processor);
        }
    }
    while let (Some(from), Some(to)) = (
        allowed
            .iter()
            .max_by_key(|&processor| count(homes, processor)),
        emptiest(),
    ) {
        if count(homes, from) <= count(homes, to) + 1 {
            return;
        }
        if let Some(home) = homes.iter().find(|home| home.processor() == from) {
            home.move_to(to);
        }
    }
}

/// Puts processors into the order in which virtual processors get them: the one that the program
/// runs on first, which is the kernel's own choice and was idle just now; then one of each core,
/// `core_of` naming it; then the rest.
pub fn order(processors: &mut [u32], first: u32, core_of: impl Fn(u32) -> u32) {
    if let Some(place) = processors.iter().position(|&one| one == first) {
        processors.rotate_left(place);
    }
    let mut chosen = 1;
    for at in 1..processors.len() {
        let core = core_of(processors[at]);
        if processors[..chosen].iter().all(|&one| core_of(one) != core) {
            processors[chosen..=at].rotate_right(1);
            chosen += 1;
        }
    }
}

/// The core of a processor, named by the first processor of the core.
pub fn core_of(processor: u32) -> u32 {
    let path = Path::new()
        .text(b"/sys/devices/system/cpu/cpu")
        .number(processor)
        .text(b"/topology/thread_siblings_list");
    let mut first = [0];
    match numbers(&path, &mut first) {
        0 => processor,
        _ => first[0] as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    impl Home for Cell<u32> {
        fn processor(&self) -> u32 {
            self.get()
        }

        fn move_to(&self, processor: u32) {
            self.set(processor);
        }
    }

    fn set(processors: &[u32]) -> Set {
        let mut words = [0; crate::processors::affinity::WORDS];
        for &processor in processors {
            words[processor as usize / 64] |= 1 << (processor % 64);
        }
        Set(words)
    }

    fn spread_to(homes: &[u32], allowed: &[u32]) -> Vec<u32> {
        let homes: Vec<Cell<u32>> = homes.iter().copied().map(Cell::new).collect();
        spread(&homes, &set(allowed));
        homes.iter().map(Cell::get).collect()
    }

    #[test]
    fn who_may_stay_stays() {
        assert_eq!(spread_to(&[0, 1, 2], &[0, 1, 2, 3]), [0, 1, 2]);
        assert_eq!(spread_to(&[0, 0, 1], &[0, 1]), [0, 0, 1]);
        assert_eq!(spread_to(&[5], &[4, 5]), [5]);
    }

    #[test]
    fn who_may_not_stay_goes_where_there_is_most_room() {
        assert_eq!(spread_to(&[0, 1], &[1, 2]), [2, 1]);
        assert_eq!(spread_to(&[0, 1, 2, 3], &[2]), [2, 2, 2, 2]);
        assert_eq!(spread_to(&[7], &[100, 3]), [3]);
    }

    #[test]
    fn a_wider_set_is_used_at_once() {
        assert_eq!(spread_to(&[0, 0], &[0, 1]), [1, 0]);
        let mut homes = spread_to(&[0, 0, 1, 1], &[0, 1, 2]);
        homes.sort_unstable();
        assert_eq!(homes, [0, 0, 1, 2].map(|one| one), "one each and one over");
    }

    #[test]
    fn nothing_allowed_changes_nothing() {
        assert_eq!(spread_to(&[0, 0], &[]), [0, 0]);
    }

    #[test]
    fn spreading_is_even_whatever_it_starts_from() {
        let mut seed = 7u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let allowed: Vec<u32> = (0..12).filter(|_| next(2) == 0).collect();
            let homes: Vec<u32> = (0..next(20)).map(|_| next(12) as u32).collect();
            let after = spread_to(&homes, &allowed);
            if allowed.is_empty() {
                continue;
            }
            let counts: Vec<usize> = allowed
                .iter()
                .map(|one| after.iter().filter(|home| home == &one).count())
                .collect();
            assert_eq!(counts.iter().sum::<usize>(), homes.len());
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(
                most.zip(least)
                    .is_some_and(|(most, least)| most - least <= 1),
                "{homes:?} to {allowed:?}: {after:?}"
            );
        }
    }

    #[test]
    fn the_current_processor_first_then_a_processor_of_each_core() {
        let mut processors = [0, 1, 2, 3, 4, 5, 6, 7];
        order(&mut processors, 3, |processor| processor / 2);
        assert_eq!(processors[0], 3);
        let mut cores: Vec<u32> = processors[..4].iter().map(|one| one / 2).collect();
        cores.sort_unstable();
        assert_eq!(cores, [0, 1, 2, 3]);
        let mut all = processors;
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_current_processor_that_is_not_allowed_is_no_processor() {
        let mut processors = [4, 5];
        order(&mut processors, 9, |processor| processor);
        assert_eq!(processors, [4, 5]);
    }
}
