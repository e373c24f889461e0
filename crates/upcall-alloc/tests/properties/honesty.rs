//! What honest reporting is worth.
//!
//! §3.2 leaves it to the policy to make spaces tell the truth, by favouring those that use less.
//! What a space *gains* is processor time that it can use, compared with what it has by telling the truth
//! while the others do the same as before.

use upcall_alloc::{Rules, SpaceSharing};

use crate::history::SLICE;
use crate::mutants::{InProportion, NoTurns, SmallestFirst};
use crate::twins::{Outcome, Story, stories, tell};
use crate::{Verdict, breaks, holds};

/// The bound on what a false statement gains: one processor at any moment; over time two slices for each
/// of `changes`.
fn gains_little(outcome: Outcome, changes: i128) -> Verdict {
    let gain = outcome.other_ns - outcome.honest_ns;
    let bound = i128::from(SLICE) * 2 * changes;
    if outcome.most > 1 || gain > bound {
        return Err(format!(
            "a gain of {gain} ns, more than {bound}: {outcome:?}"
        ));
    }
    Ok(())
}

/// §3.2: applications might not report their parallelism honestly; those that use more are penalized.
#[test]
fn overstating_gains_little() {
    holds(&stories(), overstates::<SpaceSharing>);
    breaks(&stories(), overstates::<InProportion>);
    breaks(&stories(), overstates::<NoTurns>);
}

fn overstates<R: Rules>(story: &Story) -> Verdict {
    let outcome = tell::<R>(story, |phase| phase.need.max(phase.lie));
    gains_little(outcome, outcome.changes)
}

/// §3.2: spaces are encouraged to give up processors that are needed elsewhere, since they are likely to
/// have them back. Here: compared with one that never gives up any.
#[test]
fn idling_honestly_loses_little() {
    holds(&stories(), hoards::<SpaceSharing>);
    breaks(&stories(), hoards::<InProportion>);
    breaks(&stories(), hoards::<NoTurns>);
}

fn hoards<R: Rules>(story: &Story) -> Verdict {
    let mut most = 0;
    let says = |need: u32| {
        most = need.max(most);
        most
    };
    let mut says = says;
    let outcome = tell::<R>(story, |phase| says(phase.need));
    gains_little(outcome, outcome.changes)
}

/// §3.2, the other side: favour for those that use less is no reason to claim less than one can use.
#[test]
fn understating_gains_little() {
    holds(&stories(), understates::<SpaceSharing>);
    breaks(&stories(), understates::<SmallestFirst>);
}

fn understates<R: Rules>(story: &Story) -> Verdict {
    let outcome = tell::<R>(story, |phase| phase.need.min(phase.lie));
    gains_little(outcome, outcome.statements)
}
