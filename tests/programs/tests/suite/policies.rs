//! Scheduling policies that the user names with `--policy`.

use crate::real;
use program_tests::program::Program;

/// Not compared with a native run: natively real-time policies need a privilege, and the kernel's order is not
/// strict.
#[test]
fn priorities_order_the_threads_of_a_program() {
    holds_under(
        "priorities_order_the_threads_of_a_program",
        "priorities.c",
        "--policy=priority",
    );
}

#[test]
fn priorities_are_inherited() {
    holds_under(
        "priorities_are_inherited",
        "priorities_inherited.c",
        "--policy=priority",
    );
}

/// This holds under the policies that leave nice values to the kernel, too. Under `--policy=deadline` priorities have
/// no effect.
#[test]
fn children_have_the_priorities_of_their_makers() {
    for policy in ["fifo", "lifo", "priority", "round-robin"] {
        holds_under(
            "children_have_the_priorities_of_their_makers",
            "priorities_of_children.c",
            &format!("--policy={policy}"),
        );
    }
}

/// Whoever makes an activation, it has what the process has.
#[test]
fn a_priority_is_not_passed_on_to_who_is_woken() {
    holds_under(
        "a_priority_is_not_passed_on_to_who_is_woken",
        "priority_is_not_passed_on.c",
        "--policy=fifo",
    );
}

#[test]
fn a_timers_signal_reaches_the_most_urgent() {
    holds_under(
        "a_timers_signal_reaches_the_most_urgent",
        "timer_priorities.c",
        "--policy=priority",
    );
}

#[test]
fn deadlines_order_the_threads_of_a_program() {
    holds_under(
        "deadlines_order_the_threads_of_a_program",
        "deadlines.c",
        "--policy=deadline",
    );
}

fn holds_under(name: &str, source: &str, policy: &str) {
    let Some((case, path)) = real(name, source) else {
        return;
    };
    let outcome = case.run_launched(&Program::new(&path), &[policy, "-p1"]);
    let (ending, talk) = (outcome.ending(), outcome.talk());
    assert!(outcome.status.success(), "{ending}\n{talk}");
}
