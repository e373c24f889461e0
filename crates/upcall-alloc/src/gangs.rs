//! Spaces that have all their processors at once or wait: *gangs* (Ousterhout 1982), for programs that cannot use fewer
//! processors than they compute on.
//!
//! Space-sharing ([`Allocator`](crate::Allocator)) gives each of two programs of two threads one of two processors. A
//! program adapts to that if its virtual processors come and go. One whose threads spin for each other does not: it
//! needs all or none. So gangs take turns.
//!
//! A gang is *resting* (it computes on no processor), *on*, or *waiting*. Two gangs compete if they compute on a common
//! processor and at least one of them computes on more than one. Two that need one each lose nothing by the kernel's own
//! time slices.
//!
//! Each call, in this order:
//!
//! 1. gangs that are on and have not had their slice stay;
//! 2. those that wait go on in the order in which they began to wait, if none that stays competes with them. One that
//!    cannot go on *reserves* what it needs: no gang that waits for a shorter time goes on instead;
//! 3. gangs that have had their slice stay if none that is on competes with them, and else begin to wait. Two of them
//!    compete only if they have just begun to: the one that stays has another slice.
//!
//! # Bounds
//!
//! | what | bound |
//! |---|---|
//! | time on, of gangs that all compete, while none comes, goes or rests | one slice apart |
//! | waiting, of one of *n* gangs, if calls come in time | *n* slices |
//! | the same, of gangs that have turns of their own ([`Gangs::set_turn`]) | the sum of their turns; time on is as their turns |
//! | both, of gangs whose turns a caller prolongs ([`Gangs::prolong`]) | as if these were longer turns |
//! | a gang waits, and none that is on or waits for longer competes with it | never |
//!
//! # Rejected
//!
//! - *The turn as the only processor of an [`Allocator`](crate::Allocator)*: gangs that do not compete would wait for
//!   each other. With one allocator for each group of gangs that compete, a place in line is lost whenever a group
//!   changes, that is whenever a program rests for a moment.
//! - *Without reserving*: two small gangs in turn can keep a large one from going on for ever.
//! - *An account of the time had*: see [`Rules`](crate::Rules).

use alloc::vec::Vec;

/// Processors as bits of a set. The caller says which bit is which processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bits(pub [u64; 4]);

impl Bits {
    /// What is in both.
    #[must_use]
    pub fn and(self, other: Bits) -> Bits {
        Bits(core::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    /// What is in either.
    #[must_use]
    pub fn or(self, other: Bits) -> Bits {
        Bits(core::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// What is in this one alone.
    #[must_use]
    pub fn without(self, other: Bits) -> Bits {
        Bits(core::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    /// How many there are.
    pub fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether gangs that compute on these compete.
    pub fn competes(self, other: Bits) -> bool {
        !self.and(other).is_empty() && (self.len() > 1 || other.len() > 1)
    }
}

/// What a gang is doing, and since when, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It computes on no processor.
    Resting,
    /// It has its processors.
    On {
        /// Its slice began then.
        since_ns: u64,
    },
    /// Others have them.
    Waiting {
        /// It began to wait then.
        since_ns: u64,
    },
}

/// A gang, as its user names it.
pub type GangId = u64;

#[derive(Clone, Copy, Debug)]
struct Gang {
    id: GangId,
    busy: Bits,
    stage: Stage,
    /// How long it is on, at least, if it needs its processors for so long.
    turn_ns: u64,
    /// By how much the present turn is longer.
    more_ns: u64,
    /// It has given up the rest of its turn.
    has_ended: bool,
}

/// Whose turn it is.
#[derive(Clone, Debug)]
pub struct Gangs {
    slice_ns: u64,
    now_ns: u64,
    /// In the order in which they came.
    all: Vec<Gang>,
}

impl Gangs {
    /// None yet. A gang that is on makes room for others after a slice.
    pub fn new(slice_ns: u64) -> Self {
        Gangs {
            slice_ns,
            now_ns: 0,
            all: Vec::new(),
        }
    }

    /// A gang computes on these processors from now on; on none: it rests. One that was not known comes.
    pub fn set_busy(&mut self, now_ns: u64, id: GangId, busy: Bits) {
        self.now_ns = self.now_ns.max(now_ns);
        let waiting = Stage::Waiting {
            since_ns: self.now_ns,
        };
        let stage = |before| match (before, busy.is_empty()) {
            (_, true) => Stage::Resting,
            (Stage::Resting, false) => waiting,
            (before, false) => before,
        };
        match self.find_mut(id) {
            Some(gang) => {
                gang.busy = busy;
                gang.stage = stage(gang.stage);
            }
            None => self.all.push(Gang {
                id,
                busy,
                stage: stage(Stage::Resting),
                turn_ns: self.slice_ns,
                more_ns: 0,
                has_ended: false,
            }),
        }
    }

    /// A gang stands for so many spaces, at least one: its turn is as many slices. Nothing, if it is not known.
    pub fn weigh(&mut self, id: GangId, spaces: u32) {
        self.set_turn(id, self.slice_ns.saturating_mul(spaces.max(1).into()));
    }

    /// A gang has turns of this length, in nanoseconds, from now on. Nothing, if it is not known.
    pub fn set_turn(&mut self, id: GangId, turn_ns: u64) {
        if let Some(gang) = self.find_mut(id) {
            gang.turn_ns = turn_ns;
        }
    }

    /// A gang goes.
    pub fn leave(&mut self, id: GangId) {
        self.all.retain(|gang| gang.id != id);
    }

    /// A gang that is on has its processors only now: its slice begins.
    pub fn begins(&mut self, now_ns: u64, id: GangId) {
        self.now_ns = self.now_ns.max(now_ns);
        let now_ns = self.now_ns;
        if let Some(gang) = self.find_mut(id)
            && gang.is_on()
        {
            gang.go_on(now_ns);
        }
    }

    /// The turn of a gang that is on ends so much earlier, but not before a quarter of it is over. Returns by how much it is shorter.
    pub fn shorten(&mut self, id: GangId, by_ns: u64) -> u64 {
        let gang = self.find_mut(id);
        let Some((gang, since_ns)) = gang.and_then(|gang| match gang.stage {
            Stage::On { since_ns } => Some((gang, since_ns)),
            _ => None,
        }) else {
            return 0;
        };
        let by_ns = by_ns.min(gang.turn_ns - gang.turn_ns / 4).min(since_ns);
        gang.stage = Stage::On {
            since_ns: since_ns - by_ns,
        };
        by_ns
    }

    /// The turn of a gang that is on ends so much later.
    pub fn prolong(&mut self, id: GangId, by_ns: u64) {
        if let Some(gang) = self.find_mut(id)
            && gang.is_on()
        {
            gang.more_ns = gang.more_ns.saturating_add(by_ns);
        }
    }

    /// A gang gives up the rest of its turn. Nothing, if it is not on.
    pub fn end(&mut self, id: GangId) {
        if let Some(gang) = self.find_mut(id) {
            gang.has_ended = gang.is_on();
        }
    }

    /// When the turn of a gang that is on ends, or has ended; `None`: it is not on.
    pub fn end_ns(&self, id: GangId) -> Option<u64> {
        self.find(id)?.end_ns()
    }

    /// Decides who is on. Returns when to decide again, if nothing happens before; never, if nobody waits.
    pub fn decide(&mut self, now_ns: u64) -> Option<u64> {
        self.now_ns = self.now_ns.max(now_ns);
        let now_ns = self.now_ns;
        let mut on: Vec<Bits> = Vec::with_capacity(self.all.len());
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        // Two that are on can begin to compete: the one that went on later stays, since the other has had more.
        order.sort_by_key(|&at| core::cmp::Reverse(self.key(at)));
        for &at in &order {
            let gang = &mut self.all[at];
            if gang.end_ns().is_some_and(|end| end > now_ns) {
                if fits(gang.busy, &on) {
                    on.push(gang.busy);
                } else {
                    gang.stage = Stage::Waiting { since_ns: now_ns };
                }
            }
        }
        order.sort_by_key(|&at| self.key(at));
        let mut reserved: Vec<Bits> = Vec::new();
        for &at in &order {
            let gang = &mut self.all[at];
            if matches!(gang.stage, Stage::Waiting { .. }) {
                if fits(gang.busy, &on) && fits(gang.busy, &reserved) {
                    on.push(gang.busy);
                    gang.go_on(now_ns);
                } else {
                    reserved.push(gang.busy);
                }
            }
        }
        let mut stay: Vec<usize> = Vec::new();
        for &at in order.iter().rev() {
            let gang = self.all[at];
            let busy = gang.busy;
            if gang.end_ns().is_some_and(|end| end <= now_ns) {
                if fits(busy, &on) {
                    on.push(busy);
                    stay.push(at);
                } else {
                    self.all[at].stage = Stage::Waiting { since_ns: now_ns };
                    // Two that are over have begun to compete: the one that stays has another slice, and no more.
                    for &at in &stay {
                        if self.all[at].busy.competes(busy) {
                            self.all[at].go_on(now_ns);
                        }
                    }
                }
            }
        }
        if !self.all.iter().any(Gang::is_waiting) {
            return None;
        }
        let ends = self.all.iter().filter_map(Gang::end_ns);
        // One whose slice is over changes nothing before another's is.
        ends.filter(|&end| end > now_ns).min()
    }

    /// What a gang is doing; `None`: there is no such gang.
    pub fn stage(&self, id: GangId) -> Option<Stage> {
        let gang = self.find(id)?;
        Some(gang.stage)
    }

    /// The processors of those that are on and compete with a gang that computes on these.
    pub fn taken_from(&self, id: GangId, busy: Bits) -> Bits {
        self.competitors(id, busy)
            .filter(|gang| gang.is_on())
            .fold(Bits::default(), |bits, gang| bits.or(gang.busy))
    }

    /// The processors of all others that are on, whether they compete with this one or not.
    pub fn others_on(&self, id: GangId) -> Bits {
        self.all
            .iter()
            .filter(|gang| gang.id != id && gang.is_on())
            .fold(Bits::default(), |bits, gang| bits.or(gang.busy))
    }

    /// Whether a gang waits that competes with this one, which computes on these.
    pub fn is_wanted(&self, id: GangId, busy: Bits) -> bool {
        self.competitors(id, busy).any(Gang::is_waiting)
    }

    fn find(&self, id: GangId) -> Option<&Gang> {
        self.all.iter().find(|gang| gang.id == id)
    }

    fn find_mut(&mut self, id: GangId) -> Option<&mut Gang> {
        self.all.iter_mut().find(|gang| gang.id == id)
    }

    fn competitors(&self, id: GangId, busy: Bits) -> impl Iterator<Item = &Gang> {
        self.all
            .iter()
            .filter(move |gang| gang.id != id && gang.busy.competes(busy))
    }

    fn key(&self, at: usize) -> (u64, usize) {
        match self.all[at].stage {
            Stage::Resting => (u64::MAX, at),
            Stage::On { since_ns } | Stage::Waiting { since_ns } => (since_ns, at),
        }
    }
}

impl Gang {
    fn is_on(&self) -> bool {
        matches!(self.stage, Stage::On { .. })
    }

    /// A turn begins.
    fn go_on(&mut self, now_ns: u64) {
        self.stage = Stage::On { since_ns: now_ns };
        self.more_ns = 0;
        self.has_ended = false;
    }

    fn end_ns(&self) -> Option<u64> {
        let Stage::On { since_ns } = self.stage else {
            return None;
        };
        if self.has_ended {
            return Some(since_ns);
        }
        Some(
            since_ns
                .saturating_add(self.turn_ns)
                .saturating_add(self.more_ns),
        )
    }

    fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting { .. })
    }
}

fn fits(busy: Bits, others: &[Bits]) -> bool {
    others.iter().all(|&other| !busy.competes(other))
}
