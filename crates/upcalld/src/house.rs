//! Who has which processors: what spaces say comes in, what each is told goes out. It is pure: it is told the time.
//!
//! [`Division`] says who is to have which processors. This file is what a cooperative hand-over adds:
//!
//! 1. A space loses processors: it is told at once. Until it says that it has left them it *owes* them.
//! 2. A space gets processors as soon as no other space owes one that it wants, all at once. Its turn begins then, and is over when the
//!    space has had them for so long ([`Meter`]). What it has after that is taken off its next turn.
//! 3. A space that owes for longer than [`Terms::grace_ns`] is *away*: nobody waits for it any more, and the kernel
//!    divides what it still uses. The same holds for one that has a whole slice and does not come to it while others
//!    wait (it is stopped, for example). It is back when it says that it knows what it was told last.
//! 4. A space that has owed for too long [`Terms::patience`] times in a row stays away for as long as it is registered. A time in which
//!    it had no processor itself, by the kernel's account, does not count.
//! 5. A space that asks for a truce has one, with all that want common processors, directly or through others: nobody
//!    among them waits until it ends. A truce longer than [`Terms::longest_truce_ns`] is nonsense and holds for nobody.
//!    Where weight is lent ([`lending`]) nobody needs one, and who asks has none.
//! 6. A space that is on has the weight that others lend to it, until it has left its processors.
//! 7. A space that is about to lose its turn to others is *warned*, [`House::set_lead`] before. One that leaves then, and has said so, has
//!    ended its turn. What it has not had of that is added to its next one. Spaces that share are not warned.
//! 8. A space that computes while it waits, by the kernel's account of its processor time, [`Terms::patience`] times in a row, stays
//!    away for as long as it is registered.
//!
//! Invariants: a space that waits for nobody is told that it has every processor. What spaces say is bounded by the
//! machine's processors before it is used, and no value of it makes a space wait longer than the gangs' bounds and one
//! grace for each of them.

use std::collections::BTreeMap;

use upcall_alloc::{Bits, GangId, Stage};

use crate::division::Division;
use crate::lending::{self, Member};
use crate::meter::{Idle, Meter, Reading};
use crate::shares::Turn;
use crate::words::{self, Hints, Terms, Told, Truce};

/// Every processor, whether the machine has it or not.
const ALL: Bits = Bits([u64::MAX; 4]);
/// A space that waits may answer what comes: what it computes is nothing up to one part in so many of what it would on its turn.
const NEGLIGIBLE: u64 = 4;

#[derive(Debug)]
struct Space {
    hints: Hints,
    told: Told,
    /// Since when it uses what it was told to leave.
    owes_since: Option<u64>,
    /// Its processor time then.
    owes_ran_ns: u64,
    /// What it has had of its present turn; none: it has none, or goes on without end.
    meter: Option<Meter>,
    /// For how long it has had processors beyond its turns, and has not paid for.
    beyond_ns: u64,
    /// It got its processors, and was not seen on them yet.
    is_expected: bool,
    /// It was not seen on them in a whole slice.
    is_missed: bool,
    late: u32,
    away_since: Option<u64>,
    /// The kernel's group in which its weight can be set.
    group: Option<String>,
    /// What it is to weigh while it is on; none: its circle does not lend.
    weight: Option<u32>,
    /// It has left all that it wants: since when, and its processor time then.
    waits_since: Option<(u64, u64)>,
    /// That time was looked at.
    is_judged: bool,
    cheats: u32,
    /// How much of its turns it has given up, and has not had back.
    early_ns: u64,
    /// How much of that it has back in its present turn.
    more_ns: u64,
}

/// All spaces of a user.
#[derive(Debug)]
pub struct House {
    terms: Terms,
    machine: Bits,
    division: Division,
    spaces: BTreeMap<GangId, Space>,
    idle: Idle,
    lead_ns: u64,
}

/// What a space is doing, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// What its gang does.
    Gang(Stage),
    /// It is away since then, in nanoseconds.
    Away(u64),
}

impl House {
    /// An empty house on a machine of these processors, some of which spaces share that adapt.
    pub fn new(machine: Bits, shared: Bits, terms: Terms) -> Self {
        House {
            terms,
            machine,
            division: Division::new(shared, terms),
            spaces: BTreeMap::new(),
            idle: Idle::default(),
            lead_ns: 0,
        }
    }

    /// How long before the end of its turn a space is warned, in nanoseconds, and half of the turn at most; 0: it is not.
    pub fn set_lead(&mut self, lead_ns: u64) {
        self.lead_ns = lead_ns;
    }

    /// Returns true if a space waits for a turn.
    pub fn takes_turns(&self) -> bool {
        self.spaces.values().any(|space| space.told.wanted)
    }

    /// For how long processors have idled by now.
    pub fn set_idle(&mut self, idle: Idle) {
        self.idle = idle;
    }

    /// A space comes. It has every processor until others are in its way.
    pub fn join(&mut self, id: GangId) {
        let told = Told {
            changes: 0,
            has: ALL,
            wanted: false,
            lends: false,
            truce: Truce::default(),
            leaves_at_ns: 0,
            gains: 0,
        };
        let space = Space {
            hints: Hints::default(),
            told,
            owes_since: None,
            owes_ran_ns: 0,
            meter: None,
            beyond_ns: 0,
            is_expected: false,
            is_missed: false,
            late: 0,
            away_since: None,
            group: None,
            weight: None,
            waits_since: None,
            is_judged: false,
            cheats: 0,
            early_ns: 0,
            more_ns: 0,
        };
        self.spaces.insert(id, space);
    }

    /// The kernel's group in which a space's weight can be set; none: it cannot.
    pub fn set_group(&mut self, id: GangId, group: Option<String>) {
        if let Some(space) = self.spaces.get_mut(&id) {
            space.group = group;
        }
    }

    /// What a space is to weigh now; `None`: its weight is its own.
    pub fn weight(&self, id: GangId) -> Option<u32> {
        let space = self.spaces.get(&id)?;
        let weight = space.weight?;
        let is_on = match self.division.shares(id) {
            true => !space.told.has.and(self.machine).is_empty(),
            false => {
                let has = space.told.has.or(space.debt());
                space.hints.wants.without(has).is_empty()
            }
        };
        Some(if is_on { weight } else { lending::ONE })
    }

    /// A space goes, with all that it owes.
    pub fn leave(&mut self, id: GangId) {
        self.spaces.remove(&id);
        self.division.leave(id);
    }

    /// What a space says now.
    pub fn hear(&mut self, id: GangId, said: Hints) {
        let Some(space) = self.spaces.get_mut(&id) else {
            return;
        };
        let wants = said.wants.and(self.machine);
        space.hints = Hints {
            wants,
            uses: said.uses.and(wants),
            ..said
        };
        if space.away_since.is_some()
            && said.changes == space.told.changes
            && space.late < self.terms.patience
        {
            space.away_since = None;
        }
    }

    /// Decides. Returns when to call this again if nothing happens before; never, if nobody waits for anything.
    pub fn settle(&mut self, now: u64) -> Option<u64> {
        self.agree_on_truces(now);
        self.let_leave(now);
        self.prolong(now);
        loop {
            let wants = self.spaces.iter().map(|(&id, space)| {
                let mut hints = space.hints;
                if space.is_free(now) {
                    hints.wants = Bits::default();
                }
                (id, hints)
            });
            self.division.divide(now, wants);
            self.take(now);
            if !(self.lose_patience(now) | self.catch(now)) {
                break;
            }
        }
        self.give(now);
        self.measure(now);
        self.lend(now);
        // The slices of those that got something have begun.
        let turn = self.division.next_ns(now);
        let warning = self.warn(now);
        let grace = self.terms.grace_ns;
        let spaces = self.spaces.values();
        let waits = spaces.flat_map(|space| {
            let owes = space.owes_since.map(|since| since + grace);
            [owes, Some(space.told.truce.until_ns)]
        });
        waits
            .chain([turn, warning])
            .flatten()
            .filter(|&moment| moment > now)
            .min()
    }

    /// What a space is told; `None`: there is no such space.
    pub fn told(&self, id: GangId) -> Option<Told> {
        self.spaces.get(&id).map(|space| space.told)
    }

    /// What a space is doing and wants, and its share; `None`: there is no such space.
    pub fn doing(&self, id: GangId) -> Option<(Doing, Bits, u32)> {
        let space = self.spaces.get(&id)?;
        let doing = match space.away_since {
            Some(since) => Doing::Away(since),
            None => Doing::Gang(self.division.stage(id, space.told.has)),
        };
        Some((doing, space.hints.wants, space.hints.share.max(1)))
    }

    fn agree_on_truces(&mut self, now: u64) {
        let all: Vec<_> = self
            .spaces
            .values()
            .map(|space| {
                let asks = match space.told.lends {
                    true => Truce::default(),
                    false => space.hints.truce,
                };
                (space.hints.wants, [asks, space.told.truce])
            })
            .collect();
        let truces = words::agree(&all, now, self.terms.longest_truce_ns);
        for (space, truce) in self.spaces.values_mut().zip(truces) {
            if truce.until_ns > space.told.truce.until_ns {
                space.told.truce = truce;
                space.told.changes = space.told.changes.wrapping_add(1);
                space.told.gains = space.told.gains.wrapping_add(1);
            }
        }
    }

    /// Turns that have begun are measured.
    fn measure(&mut self, now: u64) {
        for (&id, space) in &mut self.spaces {
            let turn = self.division.turn_began(id);
            let measured = |turn| space.meter.is_some_and(|meter| meter.is_of(turn));
            if let Some(turn) = turn.filter(|&turn| !measured(turn)) {
                let at = space.reading(now, &self.idle);
                space.meter = Some(Meter::new(turn, space.hints.wants, at, 0));
            } else if space
                .meter
                .is_some_and(|meter| turn.is_none() && !meter.has_ended())
            {
                // It rests.
                space.meter = None;
            }
        }
    }

    /// Who has had less of its turn than is due to it goes on.
    fn prolong(&mut self, now: u64) {
        for (&id, space) in &self.spaces {
            let is_over = self.division.end_of_turn(id).is_some_and(|end| end <= now);
            if is_over && space.meter.is_some_and(|meter| !meter.has_ended()) {
                let missing = self.missing(now, id, space);
                self.division.prolong(id, missing);
            }
        }
    }

    /// By how much the turn of a space is to be longer than its time: see [`Meter::missing`].
    fn missing(&self, now: u64, id: GangId, space: &Space) -> u64 {
        let (Some(meter), Some(turn)) = (space.meter, self.division.turn(id)) else {
            return 0;
        };
        meter.missing(space.whole(turn), space.reading(now, &self.idle))
    }

    /// Those that were warned and have left have ended their turns.
    fn let_leave(&mut self, now: u64) {
        for (&id, space) in &mut self.spaces {
            let hints = space.hints;
            let has_read = hints.changes == space.told.changes;
            let has_left = has_read && !hints.wants.is_empty() && hints.uses.is_empty();
            if !has_left || space.told.leaves_at_ns <= now || space.is_free(now) {
                continue;
            }
            let at = space.reading(now, &self.idle);
            if let (Some(meter), Some(turn)) = (space.meter, self.division.turn(id))
                && !meter.has_ended()
            {
                let left = meter.left(space.whole(turn), at);
                space.early_ns = (space.early_ns + left).min(self.lead_ns);
            }
            if let Some(meter) = &mut space.meter {
                meter.end(at);
            }
            self.division.end_turn(id);
        }
    }

    /// When a space is to lose its processors, if it is to be warned now, and otherwise when to look again.
    fn warning(&self, now: u64, id: GangId, space: &Space) -> (u64, Option<u64>) {
        let is_on = self.lead_ns != 0
            && space.hints.wants.without(space.told.has).is_empty()
            && space.debt().is_empty()
            && !space.is_free(now);
        let end = self.division.end_of_turn(id).filter(|&end| end > now);
        let (Some(end), Some(turn)) = (end.filter(|_| is_on), self.division.turn(id)) else {
            return (0, None);
        };
        let said = space.told.leaves_at_ns;
        if said > now {
            // It does not change because another moment is expected meanwhile.
            return (said, None);
        }
        let lead = self.lead_ns.min(turn.length_ns / 2);
        // Before that what it has had says little.
        let first = end.saturating_sub(lead);
        if first > now {
            return (0, Some(first));
        }
        // See `prolong`.
        let end = end.max(now + self.missing(now, id, space));
        let at = end.saturating_sub(lead);
        match at > now {
            true => (0, Some(at)),
            false => (end, None),
        }
    }

    /// Warns those that will lose their processors. Returns when to do so next.
    fn warn(&mut self, now: u64) -> Option<u64> {
        let all = self.spaces.iter();
        let all: Vec<(u64, Option<u64>)> = all
            .map(|(&id, space)| self.warning(now, id, space))
            .collect();
        for (space, &(leaves_at_ns, _)) in self.spaces.values_mut().zip(&all) {
            if space.told.leaves_at_ns == leaves_at_ns {
                continue;
            }
            space.told.leaves_at_ns = leaves_at_ns;
            space.told.changes = space.told.changes.wrapping_add(1);
            let has = space.hints.wants.without(space.told.has).is_empty();
            // It has perhaps left, and sleeps.
            let is_withdrawn = leaves_at_ns == 0 && has;
            space.told.gains = space.told.gains.wrapping_add(is_withdrawn.into());
        }
        all.into_iter().filter_map(|(_, next)| next).min()
    }

    /// Tells those that lose processors.
    fn take(&mut self, now: u64) {
        for (&id, space) in &mut self.spaces {
            let due = self.division.due(id);
            let lost = space.told.has.without(due);
            if !lost.is_empty() {
                space.told.has = space.told.has.and(due);
                space.told.changes = space.told.changes.wrapping_add(1);
                space.is_missed = space.is_expected
                    && space.hints.uses.is_empty()
                    && (!self.division.shares(id) || space.told.has.and(self.machine).is_empty());
                space.is_expected = false;
                let at = space.reading(now, &self.idle);
                if let Some(meter) = &mut space.meter {
                    meter.end(at);
                }
            }
            space.told.wanted = self.division.is_wanted(id);
            if space.debt().is_empty() || space.is_free(now) {
                if space.owes_since.take().is_some() && !space.is_free(now) {
                    space.late = 0;
                }
                if let Some(meter) = space.meter.take_if(|meter| meter.has_ended())
                    && let Some(turn) = self.division.turn(id)
                    && !space.is_free(now)
                {
                    let beyond = meter.beyond(space.whole(turn), space.reading(now, &self.idle));
                    space.beyond_ns = (space.beyond_ns + beyond).min(self.terms.grace_ns);
                }
            } else if space.owes_since.is_none() {
                space.owes_since = Some(now);
                space.owes_ran_ns = space.hints.ran_ns;
            }
            space.is_expected &= space.hints.uses.is_empty();
        }
    }

    /// Nobody waits any longer for who is late. Returns true if there was one.
    fn lose_patience(&mut self, now: u64) -> bool {
        let grace = self.terms.grace_ns;
        let is_over = |since: Option<u64>| since.is_some_and(|since| now >= since + grace);
        let mut found = false;
        for space in self.spaces.values_mut() {
            let owes = is_over(space.owes_since);
            let is_missed = std::mem::take(&mut space.is_missed);
            if space.away_since.is_none() && (owes || is_missed) {
                // One that had no processor could not leave one.
                let ran_ns = space.hints.ran_ns.saturating_sub(space.owes_ran_ns);
                let whole = grace.saturating_mul(space.hints.wants.len().max(2).into());
                let could = space.owes_ran_ns == 0 || ran_ns >= whole / 2;
                space.late += u32::from(owes && could);
                space.away_since = Some(now);
                space.owes_since = None;
                // It is back when it has read this.
                space.told.changes = space.told.changes.wrapping_add(1);
                found = true;
            }
        }
        found
    }

    /// Who computes while it waits is left to the kernel. Returns true if there was one.
    fn catch(&mut self, now: u64) -> bool {
        let mut found = false;
        for (&id, space) in &mut self.spaces {
            let hints = space.hints;
            let waits = !hints.wants.is_empty()
                && hints.ran_ns != 0
                && !self.division.shares(id)
                && hints.wants.and(space.told.has.or(space.debt())).is_empty()
                && !space.is_free(now);
            if !waits {
                space.waits_since = None;
                space.is_judged = false;
                continue;
            }
            let &mut (since, ran_ns) = space.waits_since.get_or_insert((now, hints.ran_ns));
            let is_over = self.division.due(id).and(hints.wants) == hints.wants;
            if !is_over || std::mem::replace(&mut space.is_judged, is_over) {
                continue;
            }
            let had = hints.ran_ns.saturating_sub(ran_ns);
            let whole = now
                .saturating_sub(since)
                .saturating_mul(hints.wants.len().into());
            match had > whole / NEGLIGIBLE {
                true => space.cheats += 1,
                false => space.cheats = 0,
            }
            if space.cheats >= self.terms.patience {
                space.late = self.terms.patience;
                space.away_since = Some(now);
                space.owes_since = None;
                space.told.changes = space.told.changes.wrapping_add(1);
                found = true;
            }
        }
        found
    }

    /// Says what each is to weigh, and if it needs truces.
    fn lend(&mut self, now: u64) {
        let weights = self.weights_without(|space| space.is_free(now));
        // One that is away for a moment needs no truce either.
        let patience = self.terms.patience;
        let lends = self.weights_without(|space| {
            now < space.told.truce.until_ns || space.away_since.is_some() && space.late >= patience
        });
        for ((space, weight), lends) in self.spaces.values_mut().zip(weights).zip(lends) {
            space.weight = weight;
            space.told.lends = lends.is_some();
        }
    }

    /// What each is to weigh, if these are left out.
    fn weights_without(&self, is_out: impl Fn(&Space) -> bool) -> Vec<Option<u32>> {
        let member = |space: &'_ Space| match is_out(space) {
            true => Bits::default(),
            false => space.hints.wants,
        };
        let members: Vec<Member<'_>> = self
            .spaces
            .values()
            .map(|space| Member {
                wants: member(space),
                group: space.group.as_deref(),
            })
            .collect();
        lending::weights(&members)
    }

    /// Tells those that get processors which nobody owes.
    fn give(&mut self, now: u64) {
        let owed = self
            .spaces
            .values()
            .filter(|space| space.owes_since.is_some())
            .fold(Bits::default(), |bits, space| bits.or(space.debt()));
        for (&id, space) in &mut self.spaces {
            let due = self.division.due(id);
            let gained = due.without(space.told.has);
            if gained.is_empty() {
                continue;
            }
            let wanted = match self.division.shares(id) {
                // It moves to what it gets.
                true => gained.and(self.machine),
                false => gained.and(space.hints.wants),
            };
            // Its slice begins when it has them.
            self.division.begins(now, id, wanted.and(owed).is_empty());
            if wanted.and(owed).is_empty() {
                let paid = self.division.shorten(id, space.beyond_ns);
                space.beyond_ns -= paid;
                space.more_ns = std::mem::take(&mut space.early_ns);
                self.division.prolong(id, space.more_ns);
                space.meter = self.division.turn_began(id).map(|turn| {
                    let at = space.reading(now, &self.idle);
                    Meter::new(turn, space.hints.wants, at, paid)
                });
                space.told.has = due;
                space.told.changes = space.told.changes.wrapping_add(1);
                space.told.gains = space.told.gains.wrapping_add(1);
                space.is_expected = !wanted.is_empty() && space.hints.uses.is_empty();
            }
        }
    }
}

impl Space {
    /// It is left to the kernel.
    fn is_free(&self, now: u64) -> bool {
        self.away_since.is_some() || now < self.told.truce.until_ns
    }

    /// A turn of this length, with what it has back of an earlier one.
    fn whole(&self, turn: Turn) -> Turn {
        Turn {
            length_ns: turn.length_ns + self.more_ns,
            ..turn
        }
    }

    fn reading<'a>(&self, now_ns: u64, idle: &'a Idle) -> Reading<'a> {
        Reading {
            now_ns,
            ran_ns: self.hints.ran_ns,
            idle,
        }
    }

    /// What it uses and was told to leave.
    fn debt(&self) -> Bits {
        self.hints.uses.without(self.told.has)
    }
}

#[cfg(test)]
#[path = "house_tests.rs"]
mod tests;
