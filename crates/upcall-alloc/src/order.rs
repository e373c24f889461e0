//! Which space is served next, and which loses first: two sorted sets of ranks.

use alloc::collections::BTreeSet;
use core::marker::PhantomData;

use crate::rules::{Rank, Rules, Standing};
use crate::space::SpaceId;

/// A rank ([`Rank::packed`]) and whose it is. Equal ranks are ordered by the space's name, so that
/// nothing depends on chance.
type Entry = (u128, SpaceId);

/// The spaces that want more, and the spaces that run something; one can be both or neither.
#[derive(Clone, Debug)]
pub(crate) struct Order<R> {
    hungry: BTreeSet<Entry>,
    holders: BTreeSet<Entry>,
    rules: PhantomData<R>,
}

impl<R: Rules> Order<R> {
    pub(crate) fn new() -> Self {
        Order {
            hungry: BTreeSet::new(),
            holders: BTreeSet::new(),
            rules: PhantomData,
        }
    }

    /// The space that is served next.
    pub(crate) fn neediest(&self) -> Option<SpaceId> {
        self.hungry.first().map(|&(_, space)| space)
    }

    /// The space that loses first.
    pub(crate) fn richest(&self) -> Option<SpaceId> {
        self.holders.last().map(|&(_, space)| space)
    }

    /// Where a space with this standing belongs: its claim if it is hungry, its hold if it has any.
    fn places(standing: &Standing) -> [Option<Rank>; 2] {
        let claim = standing.hungry().then(|| R::claim(standing));
        let hold = (standing.held > 0).then(|| R::hold(standing));
        [claim, hold]
    }

    /// A space with this standing appears.
    pub(crate) fn insert(&mut self, standing: &Standing, space: SpaceId) {
        self.update(space, [None; 2], Self::places(standing));
    }

    /// A space with this standing is gone.
    pub(crate) fn remove(&mut self, standing: &Standing, space: SpaceId) {
        self.update(space, Self::places(standing), [None; 2]);
    }

    /// A space has another standing.
    pub(crate) fn change(&mut self, space: SpaceId, before: &Standing, after: &Standing) {
        self.update(space, Self::places(before), Self::places(after));
    }

    fn update(&mut self, space: SpaceId, before: [Option<Rank>; 2], after: [Option<Rank>; 2]) {
        let sets = [&mut self.hungry, &mut self.holders];
        for ((set, before), after) in sets.into_iter().zip(before).zip(after) {
            if before == after {
                continue;
            }
            if let Some(rank) = before {
                set.remove(&(rank.packed(), space));
            }
            if let Some(rank) = after {
                set.insert((rank.packed(), space));
            }
        }
    }
}
