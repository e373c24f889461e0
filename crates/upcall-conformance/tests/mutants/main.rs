//! Shows that each scenario can fail: changes a line of the runtime or of a backend, and expects the scenario that
//! is named beside it to fail.
//!
//! ```text
//! cargo test --profile testing -p upcall-conformance --test mutants -- --ignored --nocapture
//! ```
//!
//! A mutant is a text that occurs exactly once in a file, and its replacement. The test applies each mutant to a copy
//! of the sources and builds the copy. `UPCALL_TEST_MUTANT=SCENARIO` runs the mutants of one scenario only.

#[path = "../../../upcall-sim/tests/mutants/scratch.rs"]
mod scratch;

use scratch::Scratch;
use upcall_conformance::scenarios;
use upcall_conformance::threads::Threads;

/// A change that a scenario catches.
struct Mutant {
    scenario: &'static str,
    /// The test that runs it: `sim`, or that of a backend.
    on: &'static str,
    /// Below `crates`.
    file: &'static str,
    text: &'static str,
    instead: &'static str,
}

/// Of the runtime, on the simulated machine.
const fn of_runtime(
    scenario: &'static str,
    file: &'static str,
    text: &'static str,
    instead: &'static str,
) -> Mutant {
    Mutant {
        scenario,
        on: "sim",
        file,
        text,
        instead,
    }
}

/// Of the backend `standby`.
const fn of_standby(
    scenario: &'static str,
    file: &'static str,
    text: &'static str,
    instead: &'static str,
) -> Mutant {
    Mutant {
        on: "standby",
        ..of_runtime(scenario, file, text, instead)
    }
}

const RETURNED: &str = "upcall-core/src/runtime/returned.rs";
const PREEMPTED: &str = "upcall-core/src/runtime/preempted.rs";
const TAKEN: &str = "upcall-core/src/runtime/taken.rs";
const SCHEDULE: &str = "upcall-core/src/runtime/schedule.rs";
const STANDBY: &str = "upcall-core/src/runtime/standby.rs";
const ACTIVATIONS: &str = "upcall-core/src/runtime/activations.rs";
const SPARES: &str = "upcall-core/src/runtime/spares.rs";
const READY: &str = "upcall-core/src/state/ready.rs";
const IDLE: &str = "upcall-core/src/runtime/idle.rs";
const KERNEL: &str = "upcall-linux/src/kernel/mod.rs";
const OBSERVE: &str = "upcall-linux/src/blocked/observe.rs";
const PREEMPT: &str = "upcall-linux/src/activation/preempt.rs";

const MUTANTS: &[Mutant] = &[
    of_runtime(
        "priority_unblock",
        RETURNED,
        "if runtime.is_ranked() && self.is_less_urgent",
        "if false && self.is_less_urgent",
    ),
    of_runtime(
        "block",
        STANDBY,
        "if runtime.kernel.is_blocked(word.owner(), cheap_doubt) {",
        "if word.state() == State::User && runtime.kernel.is_blocked(word.owner(), cheap_doubt) {",
    ),
    of_runtime(
        "fault",
        STANDBY,
        "if runtime.kernel.is_blocked(word.owner(), cheap_doubt) {",
        "if word.state() == State::Kernel && runtime.kernel.is_blocked(word.owner(), cheap_doubt) {",
    ),
    of_runtime(
        "recycle",
        SPARES,
        "self.take_pooled(vp)\n            .or_else(|| self.spawn_activation(vp, false))",
        "self.spawn_activation(vp, false)",
    ),
    of_runtime(
        "exhaustion",
        ACTIVATIONS,
        "if self.kernel.spawn(activation, watches).is_err() {",
        "if self.kernel.spawn(activation, watches).is_err() && watches {",
    ),
    // Threads whose calls have ended are made ready, and a sleeping processor is not told.
    of_runtime(
        "unblock_while_idle",
        IDLE,
        "word.owner().notify();\n        true",
        "true",
    ),
    // A displaced thread makes the owner choose again, and so displaces in its turn.
    of_runtime(
        "unblock_while_busy",
        RETURNED,
        "&& displaced == 0",
        "&& displaced < 2",
    ),
    // A displaced thread goes on without the runtime.
    of_runtime(
        "resume",
        RETURNED,
        "runtime.stats.displaced.add();\n        runtime.kernel.interrupt(owner);",
        "runtime.stats.displaced.add();",
    ),
    of_runtime(
        "preempt_in_critical_section",
        PREEMPTED,
        "if fetched.is_none() && !advised && !runtime.gives_way(vp, Some(thread)) {",
        "if !advised && runtime.kernel.may_run(vp) {",
    ),
    // A thread that is stopped inside the runtime is replaced.
    of_runtime(
        "preempt_in_runtime",
        RETURNED,
        "State::Granted | State::Runtime => return false,",
        "State::Runtime => return vp.replace(word, self.activation(), State::Runtime),\n                \
         State::Granted => return false,",
    ),
    // Lists that are not locked: seen only by a thread that is preempted between two instructions.
    of_runtime(
        "preempt_in_runtime",
        READY,
        "| LOCKED;\n            // SeqCst: see `len`",
        ";\n            // SeqCst: see `len`",
    ),
    of_runtime(
        "last_processor",
        SCHEDULE,
        "if !runtime.kernel.may_run(vp) && !self.pause(vp) {",
        "if false && !self.pause(vp) {",
    ),
    // A thread whose processor was taken waits until it comes back.
    of_runtime(
        "warning",
        TAKEN,
        "others.filter(|other| self.kernel.may_run(other))",
        "others.filter(|_| false)",
    ),
    of_runtime(
        "add",
        IDLE,
        "State::Idle if self.grant_idle(vp, word) => return true,",
        "State::Idle if word.owner().thread().is_some() && self.grant_idle(vp, word) => return true,",
    ),
    of_runtime(
        "need",
        SCHEDULE,
        "let rung = self.vps.any_idle() && self.ring(vp.index());",
        "let rung = false;",
    ),
    of_runtime(
        "idle",
        IDLE,
        "if runtime.kernel.now().wrapping_sub(began) >= spell {",
        "if runtime.kernel.now().wrapping_sub(began) >= spell.max(1 << 40) {",
    ),
    of_standby(
        "block",
        OBSERVE,
        "Probe::Proc => cheap_doubt ||",
        "Probe::Proc => !cheap_doubt &&",
    ),
    // Blocked outside of any call: a page fault.
    of_standby(
        "fault",
        OBSERVE,
        "[b'-' | b'0'..=b'9', ..]",
        "[b'0'..=b'9', ..]",
    ),
    of_standby(
        "preempt_in_critical_section",
        PREEMPT,
        "set_timer(timer, slice_ns, slice_ns.min(FIRST_SLICE_NS));",
        "let _ = FIRST_SLICE_NS;",
    ),
    of_standby(
        "need",
        KERNEL,
        "Sleeps::InPoll => self.poller.kick(),",
        "Sleeps::InPoll => {}",
    ),
    of_standby(
        "idle",
        KERNEL,
        "activation.wake_word().load(Ordering::SeqCst) == seen;",
        "activation.wake_word().load(Ordering::SeqCst) != seen;",
    ),
];

/// What is copied.
const CRATES: &[&str] = &[
    "crates/upcall",
    "crates/upcall-alloc",
    "crates/upcall-bench",
    "crates/upcall-cli",
    "crates/upcall-conformance",
    "crates/upcall-core",
    "crates/upcall-guest",
    "crates/upcall-linux",
    "crates/upcall-sim",
    "tests/programs",
];

/// Seeds that a mutant may take on the simulated machine, and seconds after which a program hangs.
const LIMITS: [(&str, &str); 2] = [("UPCALL_TEST_SEEDS", "200"), ("UPCALL_TEST_GUARD", "30")];

#[test]
#[ignore = "builds the runtime for each mutant: minutes"]
fn each_scenario_catches_its_mutants() {
    let scratch = Scratch::new("conformance-mutants", CRATES);
    let only = std::env::var("UPCALL_TEST_MUTANT").ok();
    let wanted = |one: &&Mutant| only.as_deref().is_none_or(|only| only == one.scenario);
    let mutants: Vec<_> = MUTANTS.iter().filter(wanted).collect();
    // Nothing fails without them.
    for on in ["sim", "standby"] {
        let with_mutants = mutants.iter().filter(|one| one.on == on);
        let names: Vec<_> = with_mutants.map(|one| one.scenario).collect();
        let report = run(&scratch, on, &names);
        assert!(
            report.is_none(),
            "{on}, as it is: {}",
            report.unwrap_or_default()
        );
    }
    let mut missed = Vec::new();
    for Mutant {
        scenario,
        on,
        file,
        text,
        instead,
    } in mutants
    {
        scratch.restore();
        scratch.replace(&format!("crates/{file}"), text, instead);
        match run(&scratch, on, &[scenario]) {
            Some(report) => eprintln!("{scenario} on {on}: {}", first_failure(&report)),
            None => missed.push(format!("{scenario} on {on}")),
        }
    }
    assert!(missed.is_empty(), "not caught: {}", missed.join(", "));
}

#[test]
fn every_mutant_changes_a_text_that_is_there() {
    for mutant in MUTANTS {
        scratch::find(&format!("crates/{}", mutant.file), mutant.text);
    }
}

#[test]
fn every_scenario_has_a_mutant() {
    for scenario in scenarios::<Threads>() {
        let has_one = MUTANTS.iter().any(|one| one.scenario == scenario.name);
        assert!(has_one, "{}", scenario.name);
    }
}

/// Runs these scenarios in the copy, with all numbers of processors. Returns the report if one fails.
fn run(scratch: &Scratch, on: &str, scenarios: &[&str]) -> Option<String> {
    let names = |name| ["with_1", "with_2", "with_4"].map(|with| format!("{name}::{with}"));
    let names: Vec<String> = scenarios.iter().flat_map(names).collect();
    let mut arguments = vec!["--exact"];
    arguments.extend(names.iter().map(String::as_str));
    if scenarios.is_empty() {
        return None;
    }
    scratch.run("upcall-conformance", on, &arguments, &LIMITS)
}

/// The line of the report that says what failed first.
fn first_failure(report: &str) -> &str {
    let mut lines = report.lines();
    lines.find(|line| line.contains("panicked at "));
    lines.next().unwrap_or(report)
}
