//! Where virtual processors go when a process of somebody else computes on a processor of theirs.
//! Skipped where the program may use one processor only, or the others are never idle.

use crate::real_on_two;
use program_tests::program::Program;
use program_tests::provision;

/// The guests that this module runs.
pub const GUESTS: &[&str] = &["beside_hog"];

fn beside_hog(name: &str, vps: &str, threads: &str, hog: &str, verdict: &str) {
    let Some((case, path)) = real_on_two(name, "beside_hog.c") else {
        return;
    };
    let launcher = case.launcher().with(vps);
    let program = Program::new(path).args([threads, hog]);
    let outcome = program.run(&case.fresh("launched"), Some(&launcher));
    let text = String::from_utf8_lossy(&outcome.stdout);
    if let Some(reason) = text.strip_prefix("skipped: ") {
        provision::skip(name, reason.trim_end());
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
        "beside_hog_apart",
    );
}
