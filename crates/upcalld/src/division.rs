//! Who is to have which processors: gangs by turns, and spaces that adapt by shares of what gangs leave.
//!
//! 1. How long each space's turn is, [`shares`] says.
//! 2. A space is one of the *commons* if it says that it adapts, may run on the whole machine, has the share 1 and the shortest turn,
//!    and an even part would be enough for it ([`Hints::adapts`]). Any other is a gang.
//! 3. Together the commons are one gang more, [`COMMON`], with the turns of all of its spaces. While it waits, its spaces share what
//!    the gangs that are on do not use.
//! 4. Where nobody is in anybody's way, all have every processor.
//!
//! So each space has its part of the time, whatever it is, and a space that adapts gets it as fewer processors for all of the
//! time. Pure: it is told the time.

use std::collections::BTreeMap;

use upcall_alloc::{Bits, GangId, Gangs, Stage};

use crate::commons::{Commons, Want};
use crate::shares::{self, Claim, Turn};
use crate::words::{Hints, Terms};

/// The commons as a gang.
const COMMON: GangId = GangId::MAX;

/// A space's part in it.
#[derive(Debug)]
struct Part {
    wants: Bits,
    shares: bool,
    /// Of one that shares: since when it has what it has.
    since_ns: u64,
    has_any: bool,
    turn: Turn,
}

/// The division.
#[derive(Debug)]
pub struct Division {
    machine: Bits,
    slice_ns: u64,
    gangs: Gangs,
    commons: Commons,
    parts: BTreeMap<GangId, Part>,
    /// What the commons want.
    common: Bits,
    /// Somebody is in the way of a space of the commons.
    is_contended: bool,
    /// The commons have a turn, and none of them has got its processors yet.
    begins: bool,
    next_of_commons: Option<u64>,
}

impl Division {
    /// Of these processors among nobody.
    pub fn new(machine: Bits, terms: Terms) -> Self {
        Division {
            machine,
            slice_ns: terms.slice_ns,
            gangs: Gangs::new(terms.slice_ns),
            commons: Commons::new(upcall_alloc::Terms {
                slice_ns: terms.slice_ns,
                spell_ns: terms.spell_ns,
            }),
            parts: BTreeMap::new(),
            common: Bits::default(),
            is_contended: false,
            begins: false,
            next_of_commons: None,
        }
    }

    /// A space goes.
    pub fn leave(&mut self, id: GangId) {
        self.parts.remove(&id);
        self.gangs.leave(id);
    }

    /// Divides among spaces that say this.
    pub fn divide(&mut self, now: u64, spaces: impl Iterator<Item = (GangId, Hints)>) {
        let spaces: Vec<(GangId, Hints)> = spaces.collect();
        let claims: Vec<Claim> = spaces.iter().map(|(_, hints)| claim(hints)).collect();
        let turns = shares::turns(&claims, self.slice_ns);
        let on = turns.iter().zip(&claims).filter(|(_, claim)| claim.is_on);
        let shortest = on.map(|(turn, _)| turn.length_ns).min().unwrap_or(0);
        let adapts = |hints: &Hints, turn: Turn| {
            !self.machine.is_empty()
                && hints.adapts != 0
                && hints.share <= 1
                && turn.length_ns == shortest
                && !hints.wants.is_empty()
                && self.machine.without(hints.may).is_empty()
        };
        let each = || spaces.iter().zip(&turns);
        let adapting = each().filter(|((_, hints), turn)| adapts(hints, **turn));
        let count = adapting.count() as u32;
        let share = self.machine.len().checked_div(count).unwrap_or(0).max(1);
        let mut common_turn = 0u64;
        let mut wants = BTreeMap::new();
        let mut common = Bits::default();
        let mut is_contended = false;
        for ((id, hints), &turn) in each() {
            let shares = adapts(hints, turn) && hints.adapts <= share;
            if shares {
                common_turn = common_turn.saturating_add(turn.length_ns);
                let want = Want {
                    most: hints.wants.len(),
                    least: hints.adapts,
                };
                is_contended |= wants
                    .keys()
                    .any(|other| self.parts[other].wants.competes(hints.wants));
                wants.insert(*id, want);
                common = common.or(hints.wants);
            }
            let part = self.parts.entry(*id).or_insert(Part {
                wants: hints.wants,
                shares,
                since_ns: now,
                has_any: false,
                turn,
            });
            (part.wants, part.shares, part.turn) = (hints.wants, shares, turn);
            let busy = if shares { Bits::default() } else { hints.wants };
            self.gangs.set_busy(now, *id, busy);
            self.gangs.set_turn(*id, turn.length_ns);
        }
        let gangs = self.parts.values().filter(|part| !part.shares);
        is_contended |= gangs
            .map(|part| part.wants)
            .any(|wants| wants.competes(common));
        (self.common, self.is_contended) = (common, is_contended);
        let waited = self.waits(COMMON);
        self.gangs.set_busy(now, COMMON, common);
        self.gangs.set_turn(COMMON, common_turn);
        self.gangs.decide(now);
        self.begins = !self.waits(COMMON) && (self.begins || waited);
        self.next_of_commons = None;
        if is_contended {
            let left = self.machine.without(self.gangs.others_on(COMMON));
            // Gangs of one processor are in nobody's way, and may be everywhere.
            let present = match left.is_empty() && !self.waits(COMMON) {
                true => self.machine,
                false => left,
            };
            self.next_of_commons = self.commons.divide(now, present, &wants);
        }
        for (id, _) in &spaces {
            let has_any = !self.due(*id).and(self.machine).is_empty();
            if let Some(part) = self.parts.get_mut(id)
                && part.has_any != has_any
            {
                part.has_any = has_any;
                part.since_ns = now;
            }
        }
    }

    /// When to divide again, if nothing happens before. The slices of those that got something have begun.
    pub fn next_ns(&mut self, now: u64) -> Option<u64> {
        let turn = self.gangs.decide(now);
        let of_commons = self.next_of_commons.filter(|&next| next > now);
        turn.into_iter().chain(of_commons).min()
    }

    fn waits(&self, id: GangId) -> bool {
        matches!(self.gangs.stage(id), Some(Stage::Waiting { .. }))
    }

    fn wants(&self, id: GangId) -> Bits {
        self.parts
            .get(&id)
            .map_or(Bits::default(), |part| part.wants)
    }

    /// Returns true if the space has a share of the processors now, and no turn.
    pub fn shares(&self, id: GangId) -> bool {
        self.is_contended && self.parts.get(&id).is_some_and(|part| part.shares)
    }

    /// What a space is to have.
    pub fn due(&self, id: GangId) -> Bits {
        if self.shares(id) {
            self.commons.has(id)
        } else if self.waits(id) {
            Bits([u64::MAX; 4]).without(self.gangs.taken_from(id, self.wants(id)))
        } else {
            Bits([u64::MAX; 4])
        }
    }

    /// Returns true if others wait for what this space has.
    pub fn is_wanted(&self, id: GangId) -> bool {
        if self.shares(id) {
            return self.commons.others_want(id) || self.gangs.is_wanted(COMMON, self.common);
        }
        self.gangs.is_wanted(id, self.wants(id))
            && matches!(self.gangs.stage(id), Some(Stage::On { .. }))
    }

    /// A space is told that it has more, or, if not `at_once`, will have when others have left it.
    pub fn begins(&mut self, now: u64, id: GangId, at_once: bool) {
        if !self.shares(id) {
            self.gangs.begins(now, id);
        } else if self.begins {
            self.gangs.begins(now, COMMON);
            self.begins = !at_once;
        }
    }

    /// The turn of a space, if it is a gang's.
    pub fn turn(&self, id: GangId) -> Option<Turn> {
        let part = self.parts.get(&id).filter(|_| !self.shares(id))?;
        Some(part.turn)
    }

    /// Since when a space has its turn, if it has one.
    pub fn turn_began(&self, id: GangId) -> Option<u64> {
        match self.gangs.stage(id) {
            Some(Stage::On { since_ns }) if !self.shares(id) => Some(since_ns),
            _ => None,
        }
    }

    /// The turn of a gang ends so much later.
    pub fn prolong(&mut self, id: GangId, by_ns: u64) {
        self.gangs.prolong(id, by_ns);
    }

    /// The turn of a gang that has just begun ends so much earlier. Returns by how much it is shorter.
    pub fn shorten(&mut self, id: GangId, by_ns: u64) -> u64 {
        match self.shares(id) {
            true => 0,
            false => self.gangs.shorten(id, by_ns),
        }
    }

    /// A gang gives up the rest of its turn.
    pub fn end_turn(&mut self, id: GangId) {
        if !self.shares(id) {
            self.gangs.end(id);
        }
    }

    /// When the turn of a gang ends, or has ended, for whose processors others wait.
    pub fn end_of_turn(&self, id: GangId) -> Option<u64> {
        let has_turns = !self.shares(id) && self.is_wanted(id);
        has_turns.then(|| self.gangs.end_ns(id)).flatten()
    }

    /// What a space that has these is doing.
    pub fn stage(&self, id: GangId, has: Bits) -> Stage {
        let Some(part) = self.parts.get(&id).filter(|part| part.shares) else {
            return self.gangs.stage(id).unwrap_or(Stage::Resting);
        };
        let since_ns = part.since_ns;
        match has.and(self.machine).is_empty() {
            true => Stage::Waiting { since_ns },
            false => Stage::On { since_ns },
        }
    }
}

fn claim(hints: &Hints) -> Claim {
    Claim {
        user: hints.user,
        share: hints.share,
        is_on: !hints.wants.is_empty(),
    }
}
