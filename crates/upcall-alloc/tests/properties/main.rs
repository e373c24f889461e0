//! What the policy promises, as properties of random histories.
//!
//! Each test is one sentence of Anderson, Bershad, Lazowska and Levy (TOCS 1992), by section. It
//! demands that the property holds for the policy, and that at least one history shows the property
//! broken by a *mutant*: the policy with one decision replaced (`mutants.rs`). So no property is empty.
//!
//! Histories are drawn from a fixed seed; `UPCALL_TEST_SEED=S` draws others, `UPCALL_TEST_SEEDS=N`
//! tries N times as many. A failure prints the shortest history that shows it.

mod division;
mod history;
mod honesty;
mod movement;
mod mutants;
mod spells;
mod turns;
mod twins;
mod world;

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

/// What a check says: nothing, or how the property is broken.
pub type Verdict = Result<(), String>;

/// Histories of each property in an ordinary run.
const CASES: u32 = 400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run<S: Strategy>(
    strategy: &S,
    shrinks: u32,
    check: fn(&S::Value) -> Verdict,
) -> Result<(), TestError<S::Value>> {
    let times = number("UPCALL_TEST_SEEDS").unwrap_or(1) as u32;
    let config = Config {
        cases: CASES * times,
        failure_persistence: None,
        max_shrink_iters: shrinks,
        rng_seed: RngSeed::Fixed(number("UPCALL_TEST_SEED").unwrap_or(1991)),
        ..Config::default()
    };
    let judge = |value| check(&value).map_err(TestCaseError::fail);
    TestRunner::new(config).run(strategy, judge)
}

/// Demands that `check` finds nothing in any history.
fn holds<S: Strategy>(strategy: &S, check: fn(&S::Value) -> Verdict)
where
    S::Value: Debug,
{
    if let Err(error) = run(strategy, 4000, check) {
        panic!("{error}");
    }
}

/// Demands that `check`, over a mutant, finds something in at least one history.
fn breaks<S: Strategy>(strategy: &S, check: fn(&S::Value) -> Verdict) {
    match run(strategy, 0, check) {
        Err(TestError::Fail(why, _)) => println!("the mutant is caught: {why}"),
        Err(TestError::Abort(why)) => panic!("no verdict: {why}"),
        Ok(()) => panic!("the mutant is not caught"),
    }
}
