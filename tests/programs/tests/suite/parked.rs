//! Threads that wait for descriptors are parked: they do not keep an activation each.

use crate::real;
use program_tests::program::Program;

/// 200 threads wait at once, in every way there is.
#[test]
fn waiting_threads_are_parked() {
    let Some((case, path)) = real("waiting_threads_are_parked", "poll_many.c") else {
        return;
    };
    let outcome = case.run_launched(&Program::new(path), &["--stats"]);
    assert!(outcome.status.success(), "{}", outcome.talk());
    let (parked, blocked) = (
        outcome.counted("parked on the poller"),
        outcome.counted("activations blocked at peak"),
    );
    assert!(
        parked >= 160 && blocked < 40,
        "{parked} times parked, {blocked} activations blocked at a time"
    );
}

/// Otherwise each byte would wake the poller, which would find the pipe empty.
#[test]
fn a_pipe_on_which_threads_block_is_watched_no_more() {
    let Some((case, path)) = real(
        "a_pipe_on_which_threads_block_is_watched_no_more",
        "pipe_unwatched.c",
    ) else {
        return;
    };
    let outcome = case.run_launched(&Program::new(path), &[]);
    let fine =
        outcome.status.success() && outcome.stdout == b"ok pipe_watched\nok pipe_unwatched\n";
    assert!(fine, "{}\n{}", outcome.ending(), outcome.talk());
}
