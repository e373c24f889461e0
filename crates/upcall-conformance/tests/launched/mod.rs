//! Runs a scenario as a program on this kernel: natively, which checks the scenario, and under `upcall run` with one
//! backend.

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use program_tests::case::{self, Case};
use program_tests::program::{Outcome, Program};
use program_tests::provision;
use upcall_conformance::scenarios::{self, Facts};
use upcall_conformance::threads::Threads;
use upcall_conformance::{Counters, Scenario, Slices};

/// The variable for the length of a time slice. If the caller sets it, it holds for all scenarios.
const SLICE: &str = "UPCALL_SLICE_US";
/// How often a scenario repeats what it does, in one run.
const ROUNDS: u32 = 20;
/// Threads of another program for each processor of a crowded scenario.
const CROWD: usize = 3;

/// One backend of `upcall run`.
pub struct Backend {
    /// The name after `--backend`.
    pub name: &'static str,
    /// True if the kernel tells the runtime of every processor that it takes from the program.
    pub is_told: bool,
}

/// The same, on a backend that not every machine has: where it does not work the scenario is skipped, with what `upcall doctor` has seen.
#[allow(dead_code, reason = "the backend `standby` works everywhere")]
pub fn run_if_it_works(backend: &Backend, name: &str, processors: usize) {
    let found = upcall_linux::probe::find(backend.name).expect("a backend");
    let finding = found.probe();
    if !finding.works {
        return provision::skip(&format!("{name}_with_{processors}"), &finding.evidence);
    }
    run(backend, name, processors);
}

/// Runs a scenario natively and then, as often as `UPCALL_TEST_REPEAT` says, on this backend.
///
/// # Panics
///
/// When a run fails.
pub fn run(backend: &Backend, name: &str, processors: usize) {
    let scenario = scenarios::find(name).expect("a scenario of that name");
    let title = format!("{name}_with_{processors}");
    let case = Case::new(
        &title,
        &given("CARGO_TARGET_TMPDIR", env!("CARGO_TARGET_TMPDIR")),
    );
    if processors < scenario.least {
        return provision::skip(&title, "it takes more processors");
    }
    let program = program(&scenario, processors);
    check_end(&title, "natively", &case.run_native(&program));
    let (vps, chosen) = (
        format!("-p{processors}"),
        format!("--backend={}", backend.name),
    );
    let mut options = vec!["--stats", &vps, &chosen];
    if scenario.by_priority {
        options.push("--policy=priority");
    }
    let _crowd = scenario.is_crowded.then(|| Crowd::new(processors));
    let mut happened = false;
    for _ in 0..case::repeats() {
        let outcome = case.run_launched(&program, &options);
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

/// What cargo says, or the environment where this runs without cargo: in an emulated machine (`tests/vm`).
fn given(name: &str, by_cargo: &str) -> PathBuf {
    env::var_os(name).map_or_else(|| PathBuf::from(by_cargo), PathBuf::from)
}

fn scenarios_program() -> PathBuf {
    let name = "CARGO_BIN_EXE_upcall-conformance";
    given(name, env!("CARGO_BIN_EXE_upcall-conformance"))
}

/// Another program, which computes until this is dropped.
struct Crowd(Child);

impl Crowd {
    fn new(processors: usize) -> Self {
        let mut command = Command::new(scenarios_program());
        command.args(["crowd", &(CROWD * processors).to_string()]);
        let child = command.stdin(Stdio::piped()).spawn();
        Crowd(child.expect("the scenarios' program starts"))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its status says nothing.
        let _ = self.0.wait();
    }
}

fn program(scenario: &Scenario<Threads>, processors: usize) -> Program {
    let slice_us = match (scenario.slices)(processors) {
        Slices::Endless => "1000000",
        Slices::Short => "1000",
        Slices::Shortest => "100",
    };
    // All scenarios come to their ends with slices of any length.
    let slice_us = env::var(SLICE).unwrap_or_else(|_| slice_us.to_owned());
    Program::new(scenarios_program())
        .args([scenario.name, &processors.to_string(), &ROUNDS.to_string()])
        .env(SLICE, &slice_us)
}

/// Returns true if the scenario came to its end, false if it cannot run there.
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
