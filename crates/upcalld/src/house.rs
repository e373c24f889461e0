//! Who has which processors: what spaces say comes in, what each is told goes out. It is pure: it is told the time.
//!
//! [`Gangs`] decide whose turn it is. This file is what a cooperative hand-over adds:
//!
//! 1. A space loses processors: it is told at once. Until it says that it has left them it *owes* them.
//! 2. A space gets processors as soon as no other space owes one that it wants, all at once. Its slice begins then.
//! 3. A space that owes for longer than [`Terms::grace_ns`] is *away*: nobody waits for it any more, and the kernel
//!    divides what it still uses. The same holds for one that has a whole slice and does not come to it while others
//!    wait (it is stopped, for example). It is back when it says that it knows what it was told last.
//! 4. A space that has owed for too long [`Terms::patience`] times in a row stays away for as long as it is registered.
//! 5. A space that asks for a truce has one, with all that want common processors, directly or through others: nobody
//!    among them waits until it ends. A truce longer than [`Terms::longest_truce_ns`] is nonsense and holds for nobody.
//!
//! Invariants: a space that waits for nobody is told that it has every processor. What spaces say is bounded by the
//! machine's processors before it is used, and no value of it makes a space wait longer than the gangs' bounds and one
//! grace for each of them.

use std::collections::BTreeMap;

use upcall_alloc::{Bits, GangId, Gangs, Stage};

/// The times of the house.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long a gang is on while others wait, in nanoseconds.
    pub slice_ns: u64,
    /// How long a space may take to leave a processor, or to come to its turn, in nanoseconds.
    pub grace_ns: u64,
    /// No truce lasts longer, in nanoseconds.
    pub longest_truce_ns: u64,
    /// A space that has left too late so many times in a row is left to the kernel.
    pub patience: u32,
}

/// A time in which no space of a group waits for another, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Truce {
    /// When it ends.
    pub until_ns: u64,
    /// How long it was to be.
    pub length_ns: u64,
}

/// What a space says. Any value may be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// The last [`Told::changes`] that it has acted on.
    pub changes: u32,
    /// What it computes on, or would.
    pub wants: Bits,
    /// What it runs on.
    pub uses: Bits,
    /// The truce that it asks for.
    pub truce: Truce,
}

/// What a space is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Counts what it was told.
    pub changes: u32,
    /// What it may use.
    pub has: Bits,
    /// Another space waits for something of it.
    pub wanted: bool,
    /// The last truce that concerned it.
    pub truce: Truce,
    /// Counts the times that it got something: each time those that wait in it must be woken.
    pub gains: u32,
}

#[derive(Debug)]
struct Space {
    hints: Hints,
    told: Told,
    /// Since when it uses what it was told to leave.
    owes_since: Option<u64>,
    /// It got its processors, and was not seen on them yet.
    is_expected: bool,
    /// It was not seen on them in a whole slice.
    is_missed: bool,
    late: u32,
    away_since: Option<u64>,
}

/// All spaces of a user.
#[derive(Debug)]
pub struct House {
    terms: Terms,
    machine: Bits,
    gangs: Gangs,
    spaces: BTreeMap<GangId, Space>,
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
    /// An empty house on these processors.
    pub fn new(machine: Bits, terms: Terms) -> Self {
        House {
            terms,
            machine,
            gangs: Gangs::new(terms.slice_ns),
            spaces: BTreeMap::new(),
        }
    }

    /// A space comes. It has every processor until others are in its way.
    pub fn join(&mut self, id: GangId) {
        let told = Told {
            changes: 0,
            has: Bits([u64::MAX; 4]),
            wanted: false,
            truce: Truce::default(),
            gains: 0,
        };
        let space = Space {
            hints: Hints::default(),
            told,
            owes_since: None,
            is_expected: false,
            is_missed: false,
            late: 0,
            away_since: None,
        };
        self.spaces.insert(id, space);
    }

    /// A space goes, with all that it owes.
    pub fn leave(&mut self, id: GangId) {
        self.spaces.remove(&id);
        self.gangs.leave(id);
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
        loop {
            for (&id, space) in &self.spaces {
                let busy = if space.is_free(now) {
                    Bits::default()
                } else {
                    space.hints.wants
                };
                self.gangs.set_busy(now, id, busy);
            }
            self.gangs.decide(now);
            self.take(now);
            if !self.lose_patience(now) {
                break;
            }
        }
        self.give(now);
        // The slices of those that got something have begun.
        let turn = self.gangs.decide(now);
        let grace = self.terms.grace_ns;
        let spaces = self.spaces.values();
        let waits = spaces.flat_map(|space| {
            let owes = space.owes_since.map(|since| since + grace);
            [owes, Some(space.told.truce.until_ns)]
        });
        waits
            .chain([turn])
            .flatten()
            .filter(|&moment| moment > now)
            .min()
    }

    /// What a space is told; `None`: there is no such space.
    pub fn told(&self, id: GangId) -> Option<Told> {
        self.spaces.get(&id).map(|space| space.told)
    }

    /// What a space is doing and wants; `None`: there is no such space.
    pub fn doing(&self, id: GangId) -> Option<(Doing, Bits)> {
        let space = self.spaces.get(&id)?;
        let doing = match space.away_since {
            Some(since) => Doing::Away(since),
            None => Doing::Gang(self.gangs.stage(id).unwrap_or(Stage::Resting)),
        };
        Some((doing, space.hints.wants))
    }

    /// Spreads truces among spaces that want common processors, until none learns of a later one.
    fn agree_on_truces(&mut self, now: u64) {
        let longest = self.terms.longest_truce_ns;
        let holds = |truce: Truce| {
            now < truce.until_ns && truce.until_ns - now <= longest && truce.length_ns <= longest
        };
        let mut all: Vec<(GangId, Bits, Truce)> = self
            .spaces
            .iter()
            .map(|(&id, space)| {
                let own = [space.hints.truce, space.told.truce];
                let own = own.into_iter().filter(|&truce| holds(truce));
                let last = own.max_by_key(|truce| truce.until_ns);
                (id, space.hints.wants, last.unwrap_or_default())
            })
            .collect();
        loop {
            let mut changed = false;
            for at in 0..all.len() {
                let (_, wants, truce) = all[at];
                for other in &mut all {
                    if other.2.until_ns < truce.until_ns && !other.1.and(wants).is_empty() {
                        other.2 = truce;
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
        }
        for (id, _, truce) in all {
            if let Some(space) = self.spaces.get_mut(&id)
                && truce.until_ns > space.told.truce.until_ns
            {
                space.told.truce = truce;
                space.told.changes = space.told.changes.wrapping_add(1);
                space.told.gains = space.told.gains.wrapping_add(1);
            }
        }
    }

    /// Tells those that lose processors.
    fn take(&mut self, now: u64) {
        for (&id, space) in &mut self.spaces {
            let due = due(&self.gangs, id, space);
            let lost = space.told.has.without(due);
            if !lost.is_empty() {
                space.told.has = space.told.has.and(due);
                space.told.changes = space.told.changes.wrapping_add(1);
                space.is_missed = space.is_expected && space.hints.uses.is_empty();
                space.is_expected = false;
            }
            space.told.wanted = self.gangs.is_wanted(id, space.hints.wants)
                && matches!(self.gangs.stage(id), Some(Stage::On { .. }));
            if space.debt().is_empty() || space.is_free(now) {
                if space.owes_since.take().is_some() && !space.is_free(now) {
                    space.late = 0;
                }
            } else {
                space.owes_since.get_or_insert(now);
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
                space.late += u32::from(owes);
                space.away_since = Some(now);
                space.owes_since = None;
                // It is back when it has read this.
                space.told.changes = space.told.changes.wrapping_add(1);
                found = true;
            }
        }
        found
    }

    /// Tells those that get processors which nobody owes.
    fn give(&mut self, now: u64) {
        let owed = self
            .spaces
            .values()
            .filter(|space| space.owes_since.is_some())
            .fold(Bits::default(), |bits, space| bits.or(space.debt()));
        for (&id, space) in &mut self.spaces {
            let due = due(&self.gangs, id, space);
            let gained = due.without(space.told.has);
            if gained.is_empty() {
                continue;
            }
            let wanted = gained.and(space.hints.wants);
            // Its slice begins when it has them.
            self.gangs.begins(now, id);
            if wanted.and(owed).is_empty() {
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

    /// What it uses and was told to leave.
    fn debt(&self) -> Bits {
        self.hints.uses.without(self.told.has)
    }
}

/// What a space is to have.
fn due(gangs: &Gangs, id: GangId, space: &Space) -> Bits {
    match gangs.stage(id) {
        Some(Stage::Waiting { .. }) => {
            Bits([u64::MAX; 4]).without(gangs.taken_from(id, space.hints.wants))
        }
        _ => Bits([u64::MAX; 4]),
    }
}

#[cfg(test)]
#[path = "house_tests.rs"]
mod tests;
