//! Finds a smaller run that fails in the same way.
//!
//! Taking anything away makes another run, which may do something else. So every smaller plan is tried with many seeds. The
//! run that is left in the end often has another seed, with fewer threads, processors and bad luck. Steps, each as often as
//! it helps:
//!
//! 1. Take a feature of the style away.
//! 2. Take virtual processors away, and repetitions of what the scenario does many times.
//! 3. Draw nothing any more after some point, which is found by halving. What still fails then failed because of what was
//!    drawn before.

use crate::run::drive::{Failure, hunt};
use crate::setup::plan::Plan;
use crate::setup::style::Feature;

/// Seeds with which a smaller plan is tried.
const SEEDS: u64 = 400;

/// The smallest failing run found, by attempts at which one failed.
pub(crate) fn shrink(failure: Failure, attempt: impl Fn(&Plan) -> Result<u64, Failure>) -> Failure {
    let kind = failure.kind();
    let same = |plans: &mut dyn Iterator<Item = Plan>| {
        let hunted = hunt(plans, &attempt);
        hunted.err().filter(|failure| failure.kind() == kind)
    };
    let mut least = failure;
    for feature in Feature::ALL {
        let mut plan = least.plan.clone();
        plan.without.push(feature);
        if let Some(smaller) = same(&mut with_seeds(plan)) {
            least = smaller;
        }
    }
    for vps in [1, 2, 3, 4] {
        let plan = Plan {
            vps,
            ..least.plan.clone()
        };
        if let Some(smaller) = same(&mut with_seeds(plan)) {
            least = smaller;
            break;
        }
    }
    for size in [16, 8, 4, 2] {
        let plan = Plan {
            size,
            ..least.plan.clone()
        };
        if let Some(smaller) = same(&mut with_seeds(plan)) {
            least = smaller;
            break;
        }
    }
    // The shortest of some runs that are small in the same way.
    for seed in 1..=16 {
        let seeds = (seed - 1) * SEEDS / 4..seed * SEEDS / 4;
        let mut plans = seeds.map(|seed| Plan {
            seed,
            ..least.plan.clone()
        });
        if let Some(other) = same(&mut plans)
            && other.points < least.points
        {
            least = other;
        }
    }
    // Draws that do not matter: none after the middle of what may still matter.
    let (mut too_few, mut enough) = (0, least.draws);
    while too_few < enough {
        let calm = too_few.midpoint(enough);
        let plan = Plan {
            calm,
            ..least.plan.clone()
        };
        match same(&mut [plan].into_iter()) {
            Some(smaller) => {
                least = smaller;
                enough = calm;
            }
            None => too_few = calm + 1,
        }
    }
    least
}

/// A plan with its own seed, then with others.
fn with_seeds(plan: Plan) -> impl Iterator<Item = Plan> {
    let others = (1..=SEEDS).map({
        let plan = plan.clone();
        move |seed| Plan {
            seed,
            ..plan.clone()
        }
    });
    std::iter::once(plan).chain(others)
}
