//! Where virtual processors go when another process computes on a processor of theirs.
//!
//! The cases need processors that are idle at times. So this is a test program of its own, which Cargo runs beside no
//! other, and its cases take turns. They are skipped if the program may use one processor only, or if the other
//! processors are never idle.

use program_tests::case::Case;
use program_tests::program::Program;
use program_tests::provision;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

static TURN: Mutex<()> = Mutex::new(());

fn prepared(name: &str) -> Option<(Case, PathBuf)> {
    if available_parallelism().map_or(1, usize::from) < 2 {
        provision::skip(name, "it takes two processors, and one is allowed");
        return None;
    }
    let case = Case::new(name, Path::new(env!("CARGO_TARGET_TMPDIR")));
    if !case.runs_upcall() {
        return None;
    }
    let path = case.compile("beside_hog.c")?;
    Some((case, path))
}

fn beside_hog(name: &str, vps: &str, threads: &str, hog: &str, verdict: &str) {
    // One that has failed has left nothing behind.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((case, path)) = prepared(name) else {
        return;
    };
    let program = Program::new(path).args([threads, hog]);
    let outcome = case.run_launched(&program, &[vps]);
    let text = String::from_utf8_lossy(&outcome.stdout);
    if let Some(reason) = text.lines().find_map(|line| line.strip_prefix("skipped: ")) {
        provision::skip(name, reason);
        return;
    }
    let fine = outcome.status.success() && text == format!("ok {verdict}\n");
    assert!(fine, "{name}: {}\n{}", outcome.ending(), outcome.talk());
}

#[test]
fn a_virtual_processor_leaves_a_processor_that_becomes_crowded() {
    beside_hog(
        "a_virtual_processor_leaves_a_processor_that_becomes_crowded",
        "-p1",
        "1",
        "later",
        "beside_hog_moves",
    );
}

#[test]
fn a_virtual_processor_is_not_left_on_a_processor_that_was_busy() {
    beside_hog(
        "a_virtual_processor_is_not_left_on_a_processor_that_was_busy",
        "-p1",
        "1",
        "first",
        "beside_hog_moves",
    );
}

#[test]
fn virtual_processors_do_not_meet_where_nobody_else_computes() {
    beside_hog(
        "virtual_processors_do_not_meet_where_nobody_else_computes",
        "-p2",
        "2",
        "later",
        if available_parallelism().map_or(1, usize::from) > 2 {
            "beside_hog_moves\nok beside_hog_apart"
        } else {
            "beside_hog_apart"
        },
    );
}

/// `-p2` chooses two processors of three, and the other process computes on the first one already.
#[test]
fn two_virtual_processors_of_three_leave_one_that_was_busy() {
    let name = "two_virtual_processors_of_three_leave_one_that_was_busy";
    if available_parallelism().map_or(1, usize::from) < 3 {
        provision::skip(name, "it takes three processors; see tests/vm");
        return;
    }
    beside_hog(
        name,
        "-p2",
        "2",
        "first",
        "beside_hog_moves\nok beside_hog_apart",
    );
}
