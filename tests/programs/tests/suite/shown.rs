//! What `upcall run` shows of a program's threads: `--report-deadlocks`, `--stacks-on` and `--comm`.

use crate::real;
use program_tests::program::Program;

/// Runs a program with each of these flags and arguments.
fn each_way(test: &str, source: &str, ways: [(&[&str], &[&str]); 2], printed: &[u8]) {
    let Some((case, path)) = real(test, source) else {
        return;
    };
    for (flags, arguments) in ways {
        let outcome = case.run_launched(&Program::new(&path).args(arguments), flags);
        let fine = outcome.status.success() && outcome.stdout == printed;
        assert!(
            fine,
            "{flags:?} {arguments:?}: {}\n{}",
            outcome.ending(),
            outcome.talk()
        );
    }
}

/// All threads that wait for one another are shown where they wait; if one waits for a time, nothing is said.
#[test]
fn a_deadlock_is_said_with_where_each_thread_waits() {
    each_way(
        "a_deadlock_is_said_with_where_each_thread_waits",
        "deadlocked.c",
        [
            (&["--report-deadlocks"], &[]),
            (&["--report-deadlocks"], &["ends"]),
        ],
        b"ok deadlock\n",
    );
}

/// A program is asked by a signal, time after time, and goes on.
#[test]
fn threads_are_shown_at_a_signal() {
    each_way(
        "threads_are_shown_at_a_signal",
        "shown.c",
        [
            (&["--stacks-on=sigquit"], &[]),
            (&["--stacks-on=QUIT"], &["alone"]),
        ],
        b"ok shown\n",
    );
}

/// With the flag the names of kernel threads follow; without it they do not.
#[test]
fn kernel_threads_have_the_names_of_threads() {
    each_way(
        "kernel_threads_have_the_names_of_threads",
        "kernel_names.c",
        [(&["--comm"], &[]), (&[], &["alone"])],
        b"ok kernel_names\n",
    );
}
