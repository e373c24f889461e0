//! A scenario as a program, on the kernel that this is: natively, which checks the scenario, and under
//! `upcall run`, with the backend that is asked for.

use std::env;
use std::path::Path;

use program_tests::case::{self, Case};
use program_tests::program::{Outcome, Program};
use program_tests::provision;
use upcall_conformance::scenarios::{self, Facts};
use upcall_conformance::threads::Threads;
use upcall_conformance::{Counters, Scenario, Slices};

/// How long a time slice is; said from outside, it holds for all scenarios.
const SLICE: &str = "UPCALL_SLICE_US";
/// Repetitions of each scenario in a run.
const ROUNDS: u32 = 20;

/// One backend of `upcall run`.
pub struct Backend {
    /// As `--backend` has it.
    pub name: &'static str,
    /// Whether the runtime is told of every processor that is taken from the program.
    pub is_told: bool,
}

/// Runs a scenario natively and then, as often as `UPCALL_TEST_REPEAT` says, on this backend.
///
/// # Panics
///
/// When a run fails.
pub fn run(backend: &Backend, name: &str, processors: usize) {
    let scenario = scenarios::find(name).expect("a scenario of that name");
    let title = format!("{name}_with_{processors}");
    let case = Case::new(&title, Path::new(env!("CARGO_TARGET_TMPDIR")));
    if processors < scenario.least {
        return provision::skip(&title, "it takes more processors");
    }
    let program = program(&scenario, processors);
    let native = program.run(&case.fresh("native"), None);
    check_end(&title, "natively", &native);
    let mut launcher = (case.launcher())
        .with("--stats")
        .with(&format!("-p{processors}"))
        .with(&format!("--backend={}", backend.name));
    if scenario.by_priority {
        launcher = launcher.with("--policy=priority");
    }
    let mut happened = false;
    for _ in 0..case::repeats() {
        let outcome = program.run(&case.fresh("launched"), Some(&launcher));
        if !check_end(&title, "under upcall", &outcome) {
            return;
        }
        let facts = facts(&outcome, backend.is_told);
        let (fine, counters) = ((scenario.holds)(&facts), facts.counters);
        assert!(fine, "{title}: does not hold: {counters:?}");
        happened |= (scenario.happens)(&facts);
    }
    assert!(happened, "{title}: it never came to what it is about");
}

fn program(scenario: &Scenario<Threads>, processors: usize) -> Program {
    let slice_us = match (scenario.slices)(processors) {
        Slices::Endless => "1000000",
        Slices::Short => "1000",
        Slices::Shortest => "100",
    };
    // Whatever the slices, all scenarios come to their ends.
    let slice_us = env::var(SLICE).unwrap_or_else(|_| slice_us.to_owned());
    Program::new(env!("CARGO_BIN_EXE_upcall-conformance"))
        .args([scenario.name, &processors.to_string(), &ROUNDS.to_string()])
        .env(SLICE, &slice_us)
}

/// Whether the scenario was played to its end; false: it could not be played there.
fn check_end(title: &str, how: &str, outcome: &Outcome) -> bool {
    let text = String::from_utf8_lossy(&outcome.stdout);
    if let Some(reason) = text.strip_prefix("skipped: ") {
        provision::skip(title, &format!("{how}: {}", reason.trim_end()));
        return false;
    }
    let fine = outcome.status.success() && text.starts_with("ok ");
    let (ending, talk) = (outcome.ending(), outcome.talk());
    assert!(fine, "{title} {how}: {ending}\n{talk}");
    true
}

fn facts(outcome: &Outcome, is_told: bool) -> Facts {
    let counters = Counters {
        blocked: outcome.counted("upcalls: blocked"),
        unblocked: outcome.counted("upcalls: unblocked"),
        displaced: outcome.counted("upcalls: preempted by a returning one"),
        added: outcome.counted("upcalls: processor added"),
        taken: outcome.counted("upcalls: processor taken"),
        preempted: outcome.counted("time-slice preemptions"),
        recycled: outcome.counted("activations recycled"),
        refused: outcome.counted("activations refused by the kernel"),
        peak: outcome.counted("activations at peak"),
    };
    Facts {
        processors: outcome.counted("virtual processors"),
        rounds: u64::from(ROUNDS),
        is_told,
        counters,
    }
}
