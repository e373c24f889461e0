//! The decisions, as pure functions: which space is served first, which loses, and when.
//!
//! Of the spaces that want more, the first by [`Rules::claim`] is served next; of those that have something, the last
//! by [`Rules::hold`] loses first. Both orders go by priority, then by the number of processors. The two spaces are
//! compared ([`Rules::verdict`]); when the one may not take from the other, no space may take from any other, and the
//! division is done.
//!
//! # Turns
//!
//! Consider a time in which nothing happens, and no processor rests. *k* spaces of one priority want more than a share
//! of *L* processors; *r* of them, fewer than *k*, have one of the remainder, *L* + 1, and the others wait with *L*.
//! The holders stand in line by when they were last given one, those that wait by when they last lost one. The heads
//! of the two lines change sides, each to the end of the other line, as soon as the one has held and the other has
//! waited for a slice ([`Rules::due_ns`]). There is no other rule.
//!
//! So the contestants stand in a ring that never changes: event *n* takes a remainder from one and gives it to the one
//! *r* places further on. The space that loses it at event *n* was given it at event *n* − *r*; the one that gets it
//! lost one at event *n* − (*k* − *r*). Event times do not decrease, so with *c* = min(*r*, *k* − *r*), in slices,
//! *t*(*n*) = max(*t*(*n* − *r*), *t*(*n* − *k* + *r*)) + 1 = *t*(*n* − *c*) + 1. The first *c* events come within a
//! slice from the beginning, whatever was before, since then all have held, or waited, for a slice. It follows:
//!
//! 1. *Movement.* *c* processors change hands in a slice. With and without, each lasts a slice at least.
//! 2. *Fairness.* If *c* = *r*, each turn lasts exactly a slice (those that are under way at the beginning count as
//!    begun a slice before their end). If *i* stands before *j*, their *m*-th turns begin in the order *i*(*m*) ≤
//!    *j*(*m*) ≤ *i*(*m* + 1). By the first half *i* never has had less time than *j*; by the second, never more than
//!    its first turn besides. If *c* = *k* − *r*, the same holds for waits. So **over any time, two contestants have
//!    the same processor time to within one slice**, and each has *r*/*k* of the time to within less than a slice.
//! 3. *Waiting.* The last in line is served by event *k* − *r*, within ⌈(*k* − *r*) / *c*⌉ slices: **max(1, ⌈*k*/*r*⌉
//!    − 1) slices**.
//!
//! # Spaces that come back
//!
//! The place in line is the moment of the last loss, and is kept while a space wants nothing. A space that gave up a
//! remainder for which it had no use, and was away while the others had their turns, is served before them when it
//! comes back. A space that has just had a turn is served last. One turn is all that can be saved up. When a space
//! lends a part of its share that it does not need, that is no loss ([`Rules::loses`]).
//!
//! **No space starves**, whatever equals do. Let a space wait for its first processor, one of *n* spaces on *P*
//! processors. It is overtaken only by those whose last loss was before its own, by each once: a space that loses the
//! processor again is behind it. After a slice of waiting, each of the *P* processors has a new holder at least once
//! in a slice. So it waits for **1 + ⌈*n*/*P*⌉ slices** at most. Those that come later are behind it, however many.
//!
//! **A false statement gains one processor at any moment, and two slices for each time that a need changes.** Let a
//! space need *d*, and state something else in another world, in which the others state the same. If its share in the
//! true world covers *d*, there is nothing to gain. Else it is a contestant there, with *L* or *L* + 1. In the other
//! world it has *L* + 1 at most: an overstatement lowers the common share or leaves it, and an understatement of *L*
//! or less has *L* or less, while one of more leaves it. If the share is lower, or it states *L* or less, it gains
//! nothing. Otherwise both worlds have the same share, contestants and remainder, so as long as needs stay as they
//! are, it has by 2. less than a slice more than *r*/*k* of the time there, and less than a slice less here. (For an
//! understatement each change of what is stated counts as a change, too. An overstatement may change as it likes: it
//! is one of the same contestant.)

use core::cmp::Reverse;

/// How important a space is; the greater number goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

/// The two times that the policy is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a space has a remainder, and is without it, at least, in turn with others.
    pub slice_ns: u64,
    /// How long an idle processor is left to its owner while others could only borrow it.
    pub spell_ns: u64,
}

impl Default for Terms {
    /// A slice that makes the cost of moving a processor (refilling its caches, tens of
    /// microseconds) a thousandth, and a spell as long as a few such moves.
    fn default() -> Self {
        Terms {
            slice_ns: 20_000_000,
            spell_ns: 100_000,
        }
    }
}

/// When something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub ns: u64,
    /// How many things had happened before: a line must not change its order because two things
    /// happened at the same time.
    pub number: u64,
}

/// What decides about a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its priority.
    pub priority: Priority,
    /// How many processors it wants in all.
    pub want: u32,
    /// How many it has. Those that it does not want rest.
    pub held: u32,
    /// When it was last given a processor.
    pub given: Moment,
    /// When it last lost one ([`Rules::loses`]), or joined.
    pub lost: Moment,
}

impl Standing {
    /// Returns true if it wants more than it has.
    pub fn hungry(&self) -> bool {
        self.held < self.want
    }

    /// How many processors it uses.
    pub fn running(&self) -> u32 {
        self.held.min(self.want)
    }
}

/// A place in an order: the least is served first, the greatest loses first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The more important first.
    pub priority: Reverse<Priority>,
    /// Then the space that has fewer processors.
    pub held: u32,
    /// Then the space that waits for longer, or holds for less long.
    pub key: i64,
}

impl Rank {
    /// The same order in one number, for a sorted set: one comparison instead of three.
    pub fn packed(self) -> u128 {
        let priority = u128::from(!self.priority.0.0);
        let key = u128::from(self.key.cast_unsigned() ^ 1 << 63);
        priority << 96 | u128::from(self.held) << 64 | key
    }
}

/// Whether a claimant takes a processor from a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Now,
    /// Not before this time, if things stay as they are.
    At(u64),
    /// Not while things are as they are.
    Never,
}

/// Where the next processor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The processor that has rested longest.
    Resting,
    /// The holder of the highest rank.
    Holder,
    /// Nowhere; the question is to be asked again at this time.
    Nowhere(Option<u64>),
}

/// The decisions. The defaults are the policy ([`SpaceSharing`]); tests replace one of them.
pub trait Rules {
    /// The place of a space among those that want more: with as many, the one that lost last comes last.
    fn claim(space: &Standing) -> Rank {
        Rank {
            priority: Reverse(space.priority),
            held: space.held,
            key: space.lost.number.cast_signed(),
        }
    }

    /// The place of a space among those that have something: with as many, the one that was given one last loses last.
    fn hold(space: &Standing) -> Rank {
        Rank {
            priority: Reverse(space.priority),
            held: space.held,
            key: -space.given.number.cast_signed(),
        }
    }

    /// When a remainder is due to change sides: both have had their turn, with it and without.
    fn due_ns(terms: &Terms, claimant: &Standing, holder: &Standing) -> u64 {
        let since_ns = claimant.lost.ns.max(holder.given.ns);
        since_ns.saturating_add(terms.slice_ns)
    }

    /// Whether `claimant`, first of those that want more, takes from `holder`, last of those that have
    /// something.
    ///
    /// A lower priority gives way; between equals a difference of two is evened out, and one of a
    /// single processor changes sides when it is due.
    fn verdict(terms: &Terms, now_ns: u64, claimant: &Standing, holder: &Standing) -> Verdict {
        if holder.priority != claimant.priority {
            return if holder.priority < claimant.priority {
                Verdict::Now
            } else {
                Verdict::Never
            };
        }
        match holder.held.saturating_sub(claimant.held) {
            0 => Verdict::Never,
            1 => match Self::due_ns(terms, claimant, holder) {
                due_ns if due_ns > now_ns => Verdict::At(due_ns),
                _ => Verdict::Now,
            },
            _ => Verdict::Now,
        }
    }

    /// Returns true if `owner` goes to the end of the line when one of its processors is given to `to`: false, if it
    /// lends a part of its share to a space that comes after it.
    fn loses(owner: &Standing, to: &Standing) -> bool {
        owner.priority < to.priority || owner.priority == to.priority && owner.held > to.held
    }

    /// Returns where the claimant's processor comes from when none is free. `offered_ns` is the end of the oldest
    /// spell.
    ///
    /// A space that may take a used processor takes one that rests instead. A space that may not waits for the spell
    /// to end.
    fn source(now_ns: u64, offered_ns: Option<u64>, verdict: Verdict) -> Source {
        match (offered_ns, verdict) {
            (Some(offered), _) if offered <= now_ns => Source::Resting,
            (Some(_), Verdict::Now) => Source::Resting,
            (None, Verdict::Now) => Source::Holder,
            (Some(offered), Verdict::At(time)) => Source::Nowhere(Some(offered.min(time))),
            (Some(offered), Verdict::Never) => Source::Nowhere(Some(offered)),
            (None, Verdict::At(time)) => Source::Nowhere(Some(time)),
            (None, Verdict::Never) => Source::Nowhere(None),
        }
    }

    /// The order in which resting processors are given away: its owner is least likely to need again the one that
    /// rests longest.
    fn rest_order(since_ns: u64) -> u64 {
        since_ns
    }

    /// The place in line of a space that begins to want more: the one that it had.
    fn place(lost: Moment, _: Moment) -> Moment {
        lost
    }

    /// The place of a newcomer: the last, or a stream of newcomers would starve those that wait.
    fn welcome(now: Moment) -> Moment {
        now
    }
}

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpaceSharing;

impl Rules for SpaceSharing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_ranks_are_in_the_order_of_ranks() {
        let mut ranks = alloc::vec::Vec::new();
        for priority in [0, 1, u8::MAX] {
            for held in [0, 1, u32::MAX] {
                for key in [i64::MIN, -1, 0, 1, i64::MAX] {
                    ranks.push(Rank {
                        priority: Reverse(Priority(priority)),
                        held,
                        key,
                    });
                }
            }
        }
        ranks.sort();
        assert!(ranks.is_sorted_by(|a, b| a.packed() < b.packed()));
    }
}
