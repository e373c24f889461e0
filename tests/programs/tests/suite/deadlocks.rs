//! What `upcall run` shows of a program's threads: `--report-deadlocks` and `--stacks-on`.

use crate::real;
use program_tests::program::Program;

/// Runs a program with this flag, without an argument and with one.
fn both_ways(test: &str, source: &str, flags: &[&str], printed: &[u8]) {
    let Some((case, path)) = real(test, source) else {
        return;
    };
    for arguments in [&[][..], &["alone"]] {
        let program = Program::new(&path).args(arguments);
        let outcome = case.run_launched(&program, flags);
        let fine = outcome.status.success() && outcome.stdout == printed;
        assert!(
            fine,
            "{arguments:?}: {}\n{}",
            outcome.ending(),
            outcome.talk()
        );
    }
}

/// All threads that wait for one another are shown where they wait; if one waits for a time, nothing is said.
#[test]
fn a_deadlock_is_said_with_where_each_thread_waits() {
    both_ways(
        "a_deadlock_is_said_with_where_each_thread_waits",
        "deadlocked.c",
        &["--report-deadlocks"],
        b"ok deadlock\n",
    );
}

/// A program is asked by a signal, time after time, and goes on.
#[test]
fn threads_are_shown_at_a_signal() {
    both_ways(
        "threads_are_shown_at_a_signal",
        "shown.c",
        &["--stacks-on", "sigquit"],
        b"ok shown\n",
    );
}
