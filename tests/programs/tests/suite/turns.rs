//! Two programs at once that spin on the same two processors: they take turns, and what happens to
//! one does not stop the other.

use crate::case;
use program_tests::case::Case;
use program_tests::guard::{Running, limit};
use program_tests::program::{Outcome, Program};
use program_tests::{guest, provision};
use std::path::{Path, PathBuf};
use std::thread::{available_parallelism, yield_now};
use std::time::Instant;

/// The guests that this module runs.
pub const GUESTS: &[&str] = &["spin_copies"];

const ROUNDS: &str = "5000";

/// The guest, or why the case is skipped.
fn guest(case: &Case) -> Option<PathBuf> {
    let name = case.name();
    if case.launcher().upcall().is_none() {
        provision::skip(name, "the launcher is no `upcall run`");
        return None;
    }
    if available_parallelism().map_or(1, usize::from) < 2 {
        provision::skip(name, "it takes two processors, and one is allowed");
        return None;
    }
    guest::compile(name, case.scratch(), "spin_copies.c")
}

/// Starts a copy and waits until it has come to its rounds.
fn begin(case: &Case, path: &Path, label: &str, rounds: &str) -> Running {
    let dir = case.fresh(label);
    let launcher = case.launcher().with("--stats");
    let mut running = Program::new(path)
        .args([rounds, "spins"])
        .start(&dir, Some(&launcher));
    let begun = Instant::now();
    while !dir.join("spins").exists() {
        if running.ended().is_some() || begun.elapsed() > limit() {
            running.give_up("never came to its rounds");
        }
        yield_now();
    }
    running
}

fn check(case: &Case, outcome: &Outcome) {
    let fine = outcome.status.success() && outcome.stdout == b"ok spin_copies\n";
    assert!(
        fine,
        "{}: {}\n{}",
        case.name(),
        outcome.ending(),
        outcome.talk()
    );
}

#[test]
fn programs_that_spin_take_turns() {
    let case = case("programs_that_spin_take_turns");
    let Some(path) = guest(&case) else { return };
    let other = begin(&case, &path, "other", "0");
    let outcome = begin(&case, &path, "copy", ROUNDS).finish();
    drop(other);
    check(&case, &outcome);
    assert_ne!(outcome.counted("turns taken after waiting"), 0);
    assert_ne!(outcome.counted("waited for turns, us"), 0);
}

#[test]
fn turns_can_be_switched_off() {
    let case = case("turns_can_be_switched_off");
    let Some(path) = guest(&case) else { return };
    let dir = case.fresh("copy");
    let launcher = case.launcher().with("--stats");
    let outcome = Program::new(path)
        .args(["200", "spins"])
        .env("UPCALL_GANG", "0")
        .start(&dir, Some(&launcher))
        .finish();
    check(&case, &outcome);
    assert_eq!(outcome.counted("turns taken after waiting"), 0);
}

/// One of two is sent a signal in the middle; the other comes to its end.
fn survives(name: &str, signal: libc::c_int) {
    let case = case(name);
    let Some(path) = guest(&case) else { return };
    let other = begin(&case, &path, "other", "0");
    let copy = begin(&case, &path, "copy", ROUNDS);
    other.signal(signal);
    check(&case, &copy.finish());
    other.signal(libc::SIGKILL);
    let ending = other.finish().ending();
    assert_eq!(ending, "killed by signal 9");
}

#[test]
fn a_program_goes_on_when_the_other_is_killed() {
    survives("a_program_goes_on_when_the_other_is_killed", libc::SIGKILL);
}

#[test]
fn a_program_goes_on_when_the_other_is_stopped() {
    survives("a_program_goes_on_when_the_other_is_stopped", libc::SIGSTOP);
}
