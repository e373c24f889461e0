//! `upcall run --report-deadlocks`.

use crate::real;
use program_tests::program::Program;

/// All threads that wait for one another are shown where they wait; if one waits for a time, nothing is said.
#[test]
fn a_deadlock_is_said_with_where_each_thread_waits() {
    let Some((case, path)) = real(
        "a_deadlock_is_said_with_where_each_thread_waits",
        "deadlocked.c",
    ) else {
        return;
    };
    for arguments in [&[][..], &["ends"]] {
        let program = Program::new(&path).args(arguments);
        let outcome = case.run_launched(&program, &["--report-deadlocks"]);
        let fine = outcome.status.success() && outcome.stdout == b"ok deadlock\n";
        assert!(
            fine,
            "{arguments:?}: {}\n{}",
            outcome.ending(),
            outcome.talk()
        );
    }
}
