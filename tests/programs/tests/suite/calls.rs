//! What system calls do under the runtime, beside what they do natively.

use crate::case;
use program_tests::case::verbatim;
use program_tests::guest;
use program_tests::program::Program;

/// The guests that this file runs.
pub const GUESTS: &[&str] = &["restarts"];

fn agrees(name: &str) {
    let case = case(name);
    if let Some(path) = guest::compile(name, case.scratch(), &format!("{name}.c")) {
        case.succeeds(&Program::new(path), verbatim, |_| ());
    }
}

#[test]
fn calls_that_wait_go_on_after_a_handler_as_signal_7_says() {
    agrees("restarts");
}
