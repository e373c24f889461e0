//! The policy with one decision replaced: what the properties must catch.

use std::cmp::Reverse;

use upcall_alloc::{Moment, Priority, Rank, Rules, Source, SpaceSharing, Standing, Terms, Verdict};

/// Leaves idle processors to their owner for good.
pub struct NeverLends;

impl Rules for NeverLends {
    fn source(now_ns: u64, _: Option<u64>, verdict: Verdict) -> Source {
        SpaceSharing::source(now_ns, None, verdict)
    }
}

/// Takes back nothing that is used: lent once, lent until it idles.
pub struct NeverRecalls;

impl Rules for NeverRecalls {
    fn verdict(_: &Terms, _: u64, _: &Standing, _: &Standing) -> Verdict {
        Verdict::Never
    }
}

/// Does nothing about a difference of `MORE`.
pub struct Tolerates<const MORE: u32>;

impl<const MORE: u32> Rules for Tolerates<MORE> {
    fn verdict(terms: &Terms, now_ns: u64, claimant: &Standing, holder: &Standing) -> Verdict {
        let equals = claimant.priority == holder.priority;
        if equals && holder.held == claimant.held + MORE {
            return Verdict::Never;
        }
        SpaceSharing::verdict(terms, now_ns, claimant, holder)
    }
}

/// Evens out only differences of three.
pub type Coarse = Tolerates<2>;
/// Leaves remainders where they are.
pub type NoTurns = Tolerates<1>;

/// What a policy does that decides otherwise only among equals: the claimant has the processor now if it `takes` it.
fn among_equals(
    [claimant, holder]: [&Standing; 2],
    usual: Verdict,
    takes: impl FnOnce() -> bool,
) -> Verdict {
    match claimant.priority == holder.priority {
        false => usual,
        true if takes() => Verdict::Now,
        true => Verdict::Never,
    }
}

/// Takes all spaces for equals.
pub struct Leveller;

impl Rules for Leveller {
    fn claim(space: &Standing) -> Rank {
        Rank {
            priority: Reverse(Priority(0)),
            ..SpaceSharing::claim(space)
        }
    }

    fn hold(space: &Standing) -> Rank {
        Rank {
            priority: Reverse(Priority(0)),
            ..SpaceSharing::hold(space)
        }
    }

    fn verdict(terms: &Terms, now_ns: u64, claimant: &Standing, holder: &Standing) -> Verdict {
        let mut holder = *holder;
        holder.priority = claimant.priority;
        SpaceSharing::verdict(terms, now_ns, claimant, &holder)
    }
}

/// Takes what is used before what rests.
pub struct TakesTheBusy;

impl Rules for TakesTheBusy {
    fn source(now_ns: u64, offered_ns: Option<u64>, verdict: Verdict) -> Source {
        match verdict {
            Verdict::Now => Source::Holder,
            _ => SpaceSharing::source(now_ns, offered_ns, verdict),
        }
    }
}

/// Ends turns early.
pub struct Restless;

impl Rules for Restless {
    fn due_ns(terms: &Terms, claimant: &Standing, holder: &Standing) -> u64 {
        claimant.lost.ns.max(holder.given.ns) + terms.slice_ns / 8
    }
}

/// Ends turns after a slice, however short the other has waited.
pub struct Hasty;

impl Rules for Hasty {
    fn due_ns(terms: &Terms, _: &Standing, holder: &Standing) -> u64 {
        holder.given.ns + terms.slice_ns
    }
}

/// Serves first the space that lost last.
pub struct LastFirst;

impl Rules for LastFirst {
    fn claim(space: &Standing) -> Rank {
        let rank = SpaceSharing::claim(space);
        Rank {
            key: -rank.key,
            ..rank
        }
    }
}

/// Takes from the space that was given one last.
pub struct NewestLoses;

impl Rules for NewestLoses {
    fn hold(space: &Standing) -> Rank {
        let rank = SpaceSharing::hold(space);
        Rank {
            key: -rank.key,
            ..rank
        }
    }
}

/// Sends a space that comes back to the end of the line.
pub struct Ungrateful;

impl Rules for Ungrateful {
    fn place(_: Moment, now: Moment) -> Moment {
        now
    }
}

/// Sends a space that lends to the end of the line.
pub struct Grudging;

impl Rules for Grudging {
    fn loses(_: &Standing, _: &Standing) -> bool {
        true
    }
}

/// Divides in proportion to what each says that it wants.
pub struct InProportion;

impl InProportion {
    const LIMIT: u32 = 1 << 10;

    fn share(running: u32, want: u32) -> u32 {
        (running << 20) / want.clamp(1, Self::LIMIT)
    }
}

impl Rules for InProportion {
    fn claim(space: &Standing) -> Rank {
        Rank {
            held: Self::share(space.held, space.want),
            ..SpaceSharing::claim(space)
        }
    }

    fn hold(space: &Standing) -> Rank {
        Rank {
            held: Self::share(space.held, space.want),
            ..SpaceSharing::hold(space)
        }
    }

    fn verdict(terms: &Terms, now_ns: u64, claimant: &Standing, holder: &Standing) -> Verdict {
        let usual = SpaceSharing::verdict(terms, now_ns, claimant, holder);
        among_equals([claimant, holder], usual, || {
            let after = Self::share(claimant.held + 1, claimant.want);
            after < Self::share(holder.held, holder.want)
        })
    }
}

/// Serves the space that says that it wants least.
pub struct SmallestFirst;

impl Rules for SmallestFirst {
    fn claim(space: &Standing) -> Rank {
        Rank {
            held: space.want,
            ..SpaceSharing::claim(space)
        }
    }

    fn hold(space: &Standing) -> Rank {
        Rank {
            held: space.want,
            ..SpaceSharing::hold(space)
        }
    }

    fn verdict(terms: &Terms, now_ns: u64, claimant: &Standing, holder: &Standing) -> Verdict {
        let usual = SpaceSharing::verdict(terms, now_ns, claimant, holder);
        among_equals([claimant, holder], usual, || claimant.want < holder.want)
    }
}

/// Gives away first what has just begun to rest.
pub struct NewestRestFirst;

impl Rules for NewestRestFirst {
    fn rest_order(since_ns: u64) -> u64 {
        u64::MAX - since_ns
    }
}

/// Lends a processor as soon as it idles.
pub struct NoSpell;

impl Rules for NoSpell {
    fn source(now_ns: u64, offered_ns: Option<u64>, verdict: Verdict) -> Source {
        SpaceSharing::source(now_ns, offered_ns.map(|_| now_ns), verdict)
    }
}

/// Serves newcomers before those that wait.
pub struct Courteous;

impl Rules for Courteous {
    fn welcome(now: Moment) -> Moment {
        Moment {
            ns: 0,
            number: now.number.wrapping_neg(),
        }
    }
}
