//! libc's spin locks under the runtime: their holders are not preempted, and a thread that waits for one gives way.

use crate::real;
use program_tests::program::Program;

/// Not compared with a native run, in which the kernel preempts holders, too.
#[test]
fn on_one_processor_spin_locks_are_seldom_waited_for() {
    let Some((case, path)) = real(
        "on_one_processor_spin_locks_are_seldom_waited_for",
        "spin_holders.c",
    ) else {
        return;
    };
    let outcome = case.run_launched(&Program::new(path), &["-p1"]);
    let fine = outcome.status.success()
        && outcome.stdout == b"ok spin_holders_go_on\nok spin_waiters_give_way\n";
    assert!(fine, "{}\n{}", outcome.ending(), outcome.talk());
}
