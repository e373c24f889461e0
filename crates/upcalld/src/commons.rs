//! The commons: spaces that *adapt* go on with fewer processors than they want. They divide what gangs leave to them, as Anderson
//! et al. do (section 4.1), by [`Allocator`].
//!
//! 1. [`Commons::divide`] is told which processors are there for all, and how many each space wants. One that wants none has none.
//! 2. A space has the processors that are its own in the division, or none if these are fewer than the fewest with which it goes on
//!    ([`Want::least`]): with those it would compute for nothing.
//! 3. Which processors these are, the allocator says. The space moves to them.
//!
//! Pure: it is told the time.

use std::collections::BTreeMap;

use upcall_alloc::{Allocator, Bits, GangId, Priority, ProcessorId, SpaceId, Terms};

/// What a space wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Processors that it could use.
    pub most: u32,
    /// Fewer are of no use.
    pub least: u32,
}

#[derive(Debug)]
struct Member {
    name: SpaceId,
    least: u32,
}

/// The spaces that adapt, and their processors.
#[derive(Debug)]
pub struct Commons {
    allocator: Allocator,
    members: BTreeMap<GangId, Member>,
    present: Bits,
}

/// The numbers of a set.
pub fn numbers(bits: Bits) -> impl Iterator<Item = u32> {
    (0..4 * 64).filter(move |number| bits.0[*number as usize / 64] >> (number % 64) & 1 != 0)
}

impl Commons {
    /// No spaces and no processors. A processor that not all can have changes hands after a slice.
    pub fn new(terms: Terms) -> Self {
        Commons {
            allocator: Allocator::new(terms),
            members: BTreeMap::new(),
            present: Bits::default(),
        }
    }

    /// Divides these processors among spaces that want this. Those that are not named have left, or want none. Returns when to do so
    /// again, if nothing happens before.
    pub fn divide(
        &mut self,
        now: u64,
        present: Bits,
        wants: &BTreeMap<GangId, Want>,
    ) -> Option<u64> {
        let allocator = &mut self.allocator;
        // Each call may answer that there is no such space or processor, which these sets rule out.
        self.members.retain(|id, member| {
            let stays = wants.contains_key(id);
            if !stays {
                let _ = allocator.leave(now, member.name);
            }
            stays
        });
        for gone in numbers(self.present.without(present)) {
            let _ = allocator.remove(now, ProcessorId(gone));
        }
        for new in numbers(present.without(self.present)) {
            let _ = allocator.add(now, ProcessorId(new));
        }
        self.present = present;
        for (&id, want) in wants {
            let member = self.members.entry(id).or_insert_with(|| Member {
                name: allocator.join(now, Priority(0)),
                least: 0,
            });
            member.least = want.least;
            if allocator.space(member.name).map(|space| space.want()) != Some(want.most) {
                let _ = allocator.need(now, member.name, want.most);
            }
        }
        allocator.tick(now);
        allocator.next_ns()
    }

    /// The processors of a space.
    pub fn has(&self, id: GangId) -> Bits {
        let Some(member) = self.members.get(&id) else {
            return Bits::default();
        };
        let Some(space) = self.allocator.space(member.name) else {
            return Bits::default();
        };
        let mut has = Bits::default();
        for processor in space.running().iter().chain(space.resting()) {
            has.0[processor.0 as usize / 64] |= 1 << (processor.0 % 64);
        }
        match has.len() < member.least.min(space.want()) {
            true => Bits::default(),
            false => has,
        }
    }

    /// Returns true if a space other than this one wants more than it has.
    pub fn others_want(&self, id: GangId) -> bool {
        self.members.iter().any(|(&other, member)| {
            let space = self.allocator.space(member.name);
            other != id && space.is_some_and(|space| space.standing().hungry())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TERMS: Terms = Terms {
        slice_ns: 20 * MS,
        spell_ns: MS,
    };
    const ALL: Bits = Bits([0b1111, 0, 0, 0]);

    fn wants(all: &[(GangId, u32, u32)]) -> BTreeMap<GangId, Want> {
        let each = all
            .iter()
            .map(|&(id, most, least)| (id, Want { most, least }));
        each.collect()
    }

    #[test]
    fn two_have_half_each_and_nothing_in_common() {
        let mut commons = Commons::new(TERMS);
        let both = wants(&[(1, 4, 1), (2, 4, 1)]);
        assert_eq!(commons.divide(0, ALL, &both), None);
        let [one, other] = [1, 2].map(|id| commons.has(id));
        assert_eq!((one.len(), other.len()), (2, 2));
        assert!(one.and(other).is_empty());
        assert!(commons.others_want(1));
        commons.divide(MS, ALL, &wants(&[(1, 4, 1)]));
        assert_eq!((commons.has(1), commons.has(2)), (ALL, Bits::default()));
        assert!(!commons.others_want(1));
    }

    #[test]
    fn what_gangs_take_is_not_there() {
        let mut commons = Commons::new(TERMS);
        let both = wants(&[(1, 4, 1), (2, 4, 2)]);
        commons.divide(0, ALL, &both);
        let left = Bits([0b1010, 0, 0, 0]);
        commons.divide(MS, left, &both);
        // One processor is too little for the second.
        assert_eq!((commons.has(1).len(), commons.has(2)), (1, Bits::default()));
        assert!(commons.has(1).without(left).is_empty());
        commons.divide(2 * MS, Bits::default(), &both);
        assert!(commons.has(1).is_empty());
        commons.divide(3 * MS, ALL, &both);
        assert_eq!((commons.has(1).len(), commons.has(2).len()), (2, 2));
    }

    #[test]
    fn more_than_there_are_processors_take_turns() {
        let mut commons = Commons::new(TERMS);
        let five: Vec<_> = (0..5).map(|id| (id, 2, 1)).collect();
        let (mut now, mut on) = (0, [0; 5]);
        for _ in 0..100 {
            let next = commons.divide(now, ALL, &wants(&five)).expect("turns");
            assert!(next > now);
            for (id, on) in on.iter_mut().enumerate() {
                *on += u64::from(commons.has(id as GangId).len()) * (next - now);
            }
            now = next;
        }
        let (least, most) = (on.iter().min().unwrap(), on.iter().max().unwrap());
        assert!(most - least <= 20 * MS, "{on:?}");
    }
}
