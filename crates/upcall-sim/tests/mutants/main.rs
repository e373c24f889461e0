//! Mutants of the runtime: each breaks one sentence of the paper, and the simulation must say which.
//!
//! A mutant is a text of `upcall-core`, or of fork and join in the crate, which occurs exactly once, and its replacement, applied to a
//! copy of the sources in a scratch directory. The copy is built and one scenario is explored; the
//! report must name the invariant. `cargo test --profile testing -p upcall-sim --test mutants -- --ignored`
//! does it for all; `UPCALL_TEST_MUTANT=NAME` for those of one invariant, or of the scenarios whose names begin so.

mod joins;
mod scratch;
mod table;

use std::sync::Mutex;
use std::thread::available_parallelism;

use scratch::Scratch;
use table::{MUTANTS, Mutant};
use upcall_sim::invariants::{AFTER_EVERY_EVENT, AT_EACH_STEP, AT_REST, Invariant};

/// Builds the copy and explores a scenario there: the report, if it fails.
fn explore(scratch: &Scratch, scenario: &str, variables: &[(&str, &str)]) -> Option<String> {
    let arguments = ["--exact", scenario];
    scratch.run("upcall-sim", "scenarios", &arguments, variables)
}

/// What is copied.
const CRATES: &[&str] = &[
    "crates/upcall-alloc",
    "crates/upcall-core",
    "crates/upcall-sim",
    "crates/upcall/src/join",
];

/// Seeds that a mutant may take to be caught.
const SEEDS: u64 = 10_000;

/// Mutants that are built and explored at a time, at most.
const WORKERS: usize = 4;

/// Points of a shrunk run, at most.
const SMALL: u64 = 400;

/// All mutants.
fn all() -> impl Iterator<Item = &'static Mutant> {
    MUTANTS.iter().chain(joins::MUTANTS)
}

/// What is to be said of a mutant that is not caught.
fn escape_of(mutant: &Mutant, scratch: &Scratch) -> Option<String> {
    let name = mutant.caught_by;
    scratch.restore();
    mutant.apply(scratch);
    let seeds = SEEDS.to_string();
    let variables = [
        ("UPCALL_TEST_SEEDS", &*seeds),
        ("UPCALL_TEST_SHRINK", "0"),
        ("UPCALL_TEST_WANTED", name),
    ];
    let report = explore(scratch, mutant.scenario, &variables);
    let Some(report) = report else {
        let scenario = mutant.scenario;
        return Some(format!("{name}, {scenario}: not caught by {SEEDS} seeds"));
    };
    eprintln!("{name}, {}: {}", mutant.scenario, first_failure(&report));
    None
}

#[test]
#[ignore = "builds the runtime a dozen times, in a minute or two"]
fn every_mutant_is_caught_by_its_invariant() {
    let one = std::env::var("UPCALL_TEST_MUTANT").ok();
    // One that breaks much is caught by others as well, or crashes, with some seeds.
    let wanted = |mutant: &&Mutant| {
        let is_it = |one: &str| mutant.caught_by == one || mutant.scenario.starts_with(one);
        one.as_deref().is_none_or(is_it)
    };
    let mutants = Mutex::new(all().filter(wanted));
    let escaped = Mutex::new(Vec::new());
    // An exploration takes one processor, and most of a build does.
    let workers = available_parallelism().map_or(1, |count| count.get().min(WORKERS));
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (mutants, escaped) = (&mutants, &escaped);
            scope.spawn(move || {
                let scratch = Scratch::new(&format!("mutants-{worker}"), CRATES);
                loop {
                    let mutant = mutants.lock().unwrap().next();
                    let Some(mutant) = mutant else { return };
                    if let Some(escape) = escape_of(mutant, &scratch) {
                        escaped.lock().unwrap().push(escape);
                    }
                }
            });
        }
    });
    let escaped = escaped.into_inner().unwrap();
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}

#[test]
fn every_mutant_changes_a_text_that_is_there() {
    for mutant in all() {
        scratch::find(&mutant.path(), mutant.text);
    }
}

#[test]
fn every_invariant_has_a_mutant() {
    let names = |invariants: &[(&'static str, Invariant)]| -> Vec<_> {
        invariants.iter().map(|&(name, _)| name).collect()
    };
    let at_each_step = AT_EACH_STEP.iter().map(|&(name, _)| name);
    let invariants = [
        names(&AFTER_EVERY_EVENT),
        names(&AT_REST),
        at_each_step.collect(),
    ];
    for name in invariants.concat() {
        let has_one = all().any(|mutant| mutant.caught_by == name);
        assert!(has_one, "{name}");
    }
}

/// The run that a report ends with is small, and replays exactly.
#[test]
#[ignore = "builds the runtime"]
fn a_failing_run_is_shrunk_and_replays() {
    let scratch = Scratch::new("shrunk", CRATES);
    let mutant = all().find(|mutant| mutant.caught_by == "somebody_waits_for_events");
    let mutant = mutant.expect("in the table");
    mutant.apply(&scratch);
    let seeds = SEEDS.to_string();
    let report = explore(&scratch, mutant.scenario, &[("UPCALL_TEST_SEEDS", &seeds)]);
    let report = report.expect("a failure");
    let shrunk = after(&report, "shrunk: ");
    let points: u64 = shrunk
        .split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .expect("points");
    assert!(points <= SMALL, "{shrunk}");
    let plan = after(&report, "replay: UPCALL_TEST_SEED=")
        .split(' ')
        .next()
        .unwrap_or("");
    let again = explore(&scratch, mutant.scenario, &[("UPCALL_TEST_SEED", plan)]);
    let again = again.expect("the replay fails");
    let same = format!("{points} points, {}", mutant.caught_by);
    assert!(again.contains(&same), "{again}");
    // And without the mutant nothing is wrong with it.
    scratch.restore();
    let healthy = explore(&scratch, mutant.scenario, &[("UPCALL_TEST_SEED", plan)]);
    assert!(healthy.is_none(), "{healthy:?}");
}

/// The line that says what did not hold at first.
fn first_failure(report: &str) -> &str {
    let mut lines = report
        .lines()
        .skip_while(|line| !line.contains(" failed: "));
    lines.nth(1).unwrap_or(report)
}

/// The rest of the line after some text.
fn after<'a>(report: &'a str, text: &str) -> &'a str {
    let rest = report.split_once(text).expect(text).1;
    rest.lines().next().unwrap_or("")
}
