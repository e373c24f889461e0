//! Decides whose turn it is. It is a pure function of what the processes publish.
//!
//! A member of the registry is *resting* (it keeps no processor in continuous use), *on* (it has its turn) or *waiting*
//! for a turn. Two members compete if they keep a common processor busy and at least one of them keeps more than one. Two
//! that need one processor each lose nothing by the kernel's own time slices.
//!
//! 1. A member that becomes busy goes on, unless a competitor is on, or waits and could go on. In that case it waits.
//! 2. A member that has been on for the time of a turn waits, if a competitor waits that no other member hinders whose
//!    turn is not over too. The member that has waited longest is served first. The last member to leave offers it the
//!    turn. Until then the members that left go on with their work beside those that did not.
//! 3. Two competitors can both be on, because their decisions crossed or because one was stopped for a while. The one that
//!    went on later stays, since the other has had its time.
//! 4. A member that is on and silent for a while is disregarded, and so is one that does not take an offer. A member that
//!    has waited for the longest time takes no part for a while: it rests, whatever the others say. So members that are
//!    dead, stopped or hostile, however many, cost a program at most [`Times::longest`] (and the time to its next look) in
//!    each [`Times::longest`] and [`Times::apart`] together.
//!
//! 5. Members that share processors with programs that take no turns make a truce, and then no two compete ([`truce`]).
//!
//! Every member computes this for itself and writes its own phase only. So nothing needs a lock that a dead process could
//! hold. Rule 3 puts right at the next time slice what crossed.

pub(super) mod truce;

use truce::Truce;

/// Processors, by number modulo [`Set::BITS`]: a collision costs a needless turn, no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Set(pub [u64; Set::WORDS]);

impl Set {
    pub const WORDS: usize = 4;
    /// Processors that are told apart.
    pub const BITS: u32 = Set::WORDS as u32 * u64::BITS;

    /// Word and bit of a processor.
    pub fn place(processor: u32) -> (usize, u64) {
        let number = processor % Self::BITS;
        ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
    }

    /// The set of one processor.
    pub fn only(processor: u32) -> Set {
        let (word, bit) = Self::place(processor);
        let mut set = Set::default();
        set.0[word] = bit;
        set
    }

    /// Whether a processor is in it.
    pub fn contains(self, processor: u32) -> bool {
        let (word, bit) = Self::place(processor);
        self.0[word] & bit != 0
    }

    /// All that are not in it.
    pub fn complement(self) -> Set {
        Set(self.0.map(|word| !word))
    }

    /// The members of both.
    pub fn and(self, other: Set) -> Set {
        Set(core::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    /// The members of either.
    pub fn or(self, other: Set) -> Set {
        Set(core::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == [0; Self::WORDS]
    }

    /// How many there are.
    pub fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// What a member is doing. Times in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Nothing that needs a turn.
    #[default]
    Resting,
    /// Has its turn.
    On { since: u64 },
    /// Wants a turn.
    Waiting {
        since: u64,
        /// When somebody last offered it the turn and was not answered; 0: not so.
        offered: u64,
    },
}

/// What a member publishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// Its place in the registry, below 64.
    pub id: u32,
    /// The processors that it uses continuously.
    pub busy: Set,
    pub phase: Phase,
    /// When it was last heard of.
    pub beat: u64,
    /// Its last truce.
    pub truce: Truce,
}

/// The times of the rules, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// A turn, when others wait.
    pub turn: u64,
    /// A member that is on and silent for this time is disregarded.
    pub stale: u64,
    /// A member that does not take an offer for this time is disregarded.
    pub(crate) grace: u64,
    /// No member waits longer.
    pub longest: u64,
    /// A member that has waited for the longest time takes no part for this time.
    pub apart: u64,
    /// A member that has lost so much of its processor time to programs without turns makes a truce, in thousandths.
    pub loss: u64,
    /// It must have lost so much of one processor, too. Programs that take less do not compute all the time.
    pub loss_of_one: u64,
    pub first_truce: u64,
    pub longest_truce: u64,
    /// The processors are watched for so long at least before what was lost counts.
    pub watch: u64,
}

pub(super) const TIMES: Times = Times {
    turn: 20_000_000,
    stale: 100_000_000,
    grace: 30_000_000,
    longest: 1_000_000_000,
    apart: 10_000_000_000,
    loss: 62,
    loss_of_one: 300,
    first_truce: 250_000_000,
    longest_truce: 2_000_000_000,
    watch: 100_000_000,
};

/// What a member should do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub phase: Phase,
    /// It has waited too long, and takes no part from now on.
    pub gives_up: bool,
    /// Members to offer the turn to: one bit each.
    pub offers: u64,
    /// Members that hold what it waits for: one bit each.
    pub holders: u64,
    /// Whether a competitor waits.
    pub wanted: bool,
    /// The processors that it must leave alone.
    pub off: Set,
    /// The processors that other members have, too, which are on.
    pub shared: Set,
}

impl Member {
    fn competes(&self, other: &Member, now: u64, times: &Times) -> bool {
        self.id != other.id
            && !self.busy.and(other.busy).is_empty()
            && (self.busy.len() > 1 || other.busy.len() > 1)
            && !self.truce.holds(now, times)
            && !other.truce.holds(now, times)
    }

    /// Since when it is on, if it is and was heard of lately. A time that is still to come is that
    /// of somebody whose clock was read after ours.
    fn on_since(&self, now: u64, times: &Times) -> Option<u64> {
        match self.phase {
            Phase::On { since } if now.saturating_sub(self.beat) < times.stale => {
                Some(since.min(now))
            }
            _ => None,
        }
    }

    /// Since when it waits, if it does and would take an offer.
    fn waits_since(&self, now: u64, times: &Times) -> Option<u64> {
        match self.phase {
            Phase::Waiting { since, offered }
                if offered == 0 || now.saturating_sub(offered) < times.grace =>
            {
                Some(since)
            }
            _ => None,
        }
    }
}

/// The waiting members whose turn is next, the longest waiting first, as bits: those that only
/// members whose turn is over hinder. `me` as given stands for its own entry.
fn successors(me: &Member, others: &[Member], now: u64, times: &Times) -> u64 {
    let all = || others.iter().filter(|other| other.id != me.id).chain([me]);
    let mut chosen = 0u64;
    let mut last = (0, 0);
    loop {
        let next = all()
            .filter_map(|member| Some((member.waits_since(now, times)?, member.id + 1)))
            .filter(|&key| key > last)
            .min();
        let Some(key) = next else {
            return chosen;
        };
        last = key;
        let Some(member) = all().find(|member| member.id + 1 == key.1) else {
            return chosen;
        };
        let hindered = all().any(|other| {
            other.competes(member, now, times)
                && (chosen & (1 << other.id) != 0
                    || other
                        .on_since(now, times)
                        .is_some_and(|since| now - since < times.turn))
        });
        if !hindered {
            chosen |= 1 << member.id;
        }
    }
}

/// Those of `chosen` that no member which is on hinders any more.
fn ready(chosen: u64, me: &Member, others: &[Member], now: u64, times: &Times) -> u64 {
    let all = || others.iter().filter(|other| other.id != me.id).chain([me]);
    all()
        .filter(|member| chosen & (1 << member.id) != 0)
        .filter(|member| {
            !all().any(|other| {
                other.competes(member, now, times) && other.on_since(now, times).is_some()
            })
        })
        .fold(0, |bits, member| bits | 1 << member.id)
}

/// What `me` should do at `now`. `others` may contain `me`'s own entry, which is disregarded.
pub(super) fn decide(me: &Member, others: &[Member], now: u64, times: &Times) -> Verdict {
    let rivals = || others.iter().filter(|other| other.competes(me, now, times));
    let waiting = |since| Phase::Waiting { since, offered: 0 };
    let bit = 1u64 << me.id;
    let as_waiting = |since| Member {
        phase: waiting(since),
        ..*me
    };
    let next = |me: &Member| {
        let chosen = successors(me, others, now, times);
        (chosen, ready(chosen, me, others, now, times))
    };
    let resting = Member {
        phase: Phase::Resting,
        ..*me
    };
    let gives_up = !me.busy.is_empty()
        && matches!(me.phase, Phase::Waiting { since, .. } if now.saturating_sub(since) >= times.longest);
    let (phase, offers) = if me.busy.is_empty() || gives_up {
        (Phase::Resting, next(&resting).1)
    } else {
        match me.phase {
            Phase::On { since } => {
                let (chosen, ready) = next(&as_waiting(now));
                let overtaken = rivals().any(|rival| {
                    rival
                        .on_since(now, times)
                        .is_some_and(|theirs| (theirs, rival.id) > (since, me.id))
                });
                let over = now.saturating_sub(since) >= times.turn
                    && rivals().any(|rival| chosen & (1 << rival.id) != 0);
                if overtaken || over {
                    (waiting(now), ready)
                } else {
                    (me.phase, 0)
                }
            }
            Phase::Resting | Phase::Waiting { .. } => {
                let since = match me.phase {
                    Phase::Waiting { since, .. } if since <= now => since,
                    _ => now,
                };
                let (_, ready) = next(&as_waiting(since));
                if ready & bit != 0 {
                    (Phase::On { since: now }, ready)
                } else {
                    (waiting(since), ready)
                }
            }
        }
    };
    let mut verdict = Verdict {
        phase,
        gives_up,
        offers: offers & !bit,
        holders: 0,
        wanted: rivals().any(|rival| rival.waits_since(now, times).is_some()),
        off: Set::default(),
        shared: others
            .iter()
            .filter(|other| other.id != me.id && other.on_since(now, times).is_some())
            .fold(Set::default(), |all, other| all.or(other.busy)),
    };
    if let Phase::Waiting { .. } = phase {
        for rival in rivals() {
            if rival.on_since(now, times).is_some() || verdict.offers & (1 << rival.id) != 0 {
                verdict.holders |= 1 << rival.id;
                verdict.off = verdict.off.or(rival.busy);
            }
        }
    }
    verdict
}

#[cfg(test)]
mod tests;
