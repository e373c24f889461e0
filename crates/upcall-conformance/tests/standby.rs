//! Every scenario on the kernel that this is: natively, which checks the scenario, and under
//! `upcall run`, with the `standby` backend.

use std::env;
use std::path::Path;

use program_tests::case::Case;
use program_tests::program::{Outcome, Program};
use program_tests::provision;
use upcall_conformance::scenarios::Facts;
use upcall_conformance::threads::Threads;
use upcall_conformance::{Counters, Scenario, Slices, scenarios};

/// How long a time slice is; said from outside, it holds for all scenarios.
const SLICE: &str = "UPCALL_SLICE_US";
/// Repetitions of each scenario in a run.
const ROUNDS: u32 = 20;

/// Declares a test for each scenario and number of virtual processors.
macro_rules! on_standby {
    ($($name:ident)+) => {
        $(mod $name {
            #[test] fn with_1() { super::run(stringify!($name), 1); }
            #[test] fn with_2() { super::run(stringify!($name), 2); }
            #[test] fn with_4() { super::run(stringify!($name), 4); }
        })+

        #[test]
        fn every_scenario_is_a_test() {
            let names: Vec<_> = scenarios::<Threads>().iter().map(|one| one.name).collect();
            assert_eq!(names, [$(stringify!($name)),+]);
        }
    };
}

on_standby! {
    block fault unblock_while_idle unblock_while_busy priority_unblock preempt_in_critical_section
    preempt_in_runtime last_processor add idle need resume recycle warning exhaustion
}

fn run(name: &str, processors: usize) {
    let all = scenarios();
    let scenario = (all.iter().find(|one| one.name == name)).expect("a scenario of that name");
    let title = format!("{name}_with_{processors}");
    let case = Case::new(&title, Path::new(env!("CARGO_TARGET_TMPDIR")));
    if processors < scenario.least {
        return provision::skip(&title, "it takes more processors");
    }
    let program = program(scenario, processors);
    let native = program.run(&case.fresh("native"), None);
    check_end(&title, "natively", &native);
    let launcher = case
        .launcher()
        .with("--stats")
        .with(&format!("-p{processors}"));
    let outcome = program.run(&case.fresh("launched"), Some(&launcher));
    if check_end(&title, "under upcall", &outcome) {
        check_counters(&title, scenario, &outcome);
    }
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

fn check_counters(title: &str, scenario: &Scenario<Threads>, outcome: &Outcome) {
    let facts = Facts {
        processors: outcome.counted("virtual processors"),
        rounds: u64::from(ROUNDS),
        counters: counters(outcome),
    };
    let counters = facts.counters;
    assert!(
        (scenario.holds)(&facts),
        "{title}: does not hold: {counters:?}"
    );
    if let Some(count) = scenario.happens {
        let never = "it never came to what it is about";
        assert_ne!(count(&counters), 0, "{title}: {never}: {counters:?}");
    }
}

fn counters(outcome: &Outcome) -> Counters {
    Counters {
        blocked: outcome.counted("upcalls: blocked"),
        unblocked: outcome.counted("upcalls: unblocked"),
        displaced: outcome.counted("upcalls: preempted by a returning one"),
        added: outcome.counted("upcalls: processor added"),
        taken: outcome.counted("upcalls: processor taken"),
        preempted: outcome.counted("time-slice preemptions"),
        recycled: outcome.counted("activations recycled"),
        refused: outcome.counted("activations refused by the kernel"),
        peak: outcome.counted("activations at peak"),
    }
}
