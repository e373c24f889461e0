//! Two programs that spin on the same two processors take turns. If one is killed or stopped, the other goes on.

use crate::real_on_two;
use program_tests::case::Case;
use program_tests::guard::{Running, limit};
use program_tests::program::{Outcome, Program};
use std::path::Path;
use std::thread::yield_now;
use std::time::Instant;

/// For how many milliseconds a copy spins, however fast the processor is: it has turns after some tens, and a truce after some
/// hundred.
const LONG: &str = "2000";
const ENDLESS: &str = "0";

/// Starts a copy and waits until it has come to its rounds.
fn begin(case: &Case, path: &Path, label: &str, ms: &str) -> Running {
    let dir = case.fresh(label);
    let launcher = case.launcher().with("--stats");
    let mut running = Program::new(path)
        .args([ms, "spins"])
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

fn happened(case: &Case, outcome: &Outcome, what: &str) {
    let times = outcome.counted(what);
    assert_ne!(times, 0, "{}: {what}\n{}", case.name(), outcome.talk());
}

#[test]
fn programs_that_spin_take_turns() {
    let Some((case, path)) = real_on_two("programs_that_spin_take_turns", "spin_copies.c") else {
        return;
    };
    let other = begin(&case, &path, "other", ENDLESS);
    let outcome = begin(&case, &path, "copy", LONG).finish();
    drop(other);
    check(&case, &outcome);
    happened(&case, &outcome, "turns taken after waiting");
    happened(&case, &outcome, "waited for turns, us");
}

/// The native program computes on both processors.
#[test]
fn turns_rest_beside_a_native_program() {
    let name = "turns_rest_beside_a_native_program";
    let Some((case, path)) = real_on_two(name, "spin_copies.c") else {
        return;
    };
    let native = Program::new(&path)
        .args([ENDLESS, "spins"])
        .start(&case.fresh("native"), None);
    let mut other = begin(&case, &path, "other", ENDLESS);
    let outcome = begin(&case, &path, "copy", LONG).finish();
    assert!(other.ended().is_none(), "the other copy has come to an end");
    drop((other, native));
    check(&case, &outcome);
    happened(&case, &outcome, "truces");
}

#[test]
fn turns_can_be_switched_off() {
    let Some((case, path)) = real_on_two("turns_can_be_switched_off", "spin_copies.c") else {
        return;
    };
    let program = Program::new(path)
        .args(["200", "spins"])
        .env("UPCALL_GANG", "0");
    let outcome = case.run_launched(&program, &["--stats"]);
    check(&case, &outcome);
    assert_eq!(outcome.counted("turns taken after waiting"), 0);
}

/// One of two is sent a signal in the middle; the other comes to its end.
fn survives(name: &str, signal: libc::c_int) {
    let Some((case, path)) = real_on_two(name, "spin_copies.c") else {
        return;
    };
    let other = begin(&case, &path, "other", ENDLESS);
    let copy = begin(&case, &path, "copy", LONG);
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
