//! `upcall bench`: its exit statuses, and where it builds.

use crate::common::upcall;

/// What it prints to standard error, if its exit status is that of our own failures.
fn refused(command: &mut std::process::Command) -> String {
    let output = command.output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    said
}

#[test]
fn our_own_failures_have_the_status_of_every_command() {
    let said = refused(upcall().args(["bench", "no_such_workload"]));
    assert!(said.contains("no_such_workload"), "{said}");
    refused(upcall().args(["bench", "--rounds", "0", "yield"]));
    refused(upcall().args(["bench", "--no-such-option"]));
}

#[test]
fn without_a_home_nothing_is_built_in_a_shared_directory() {
    let mut command = upcall();
    for name in ["HOME", "XDG_CACHE_HOME", "UPCALL_BENCH_CACHE"] {
        command.env_remove(name);
    }
    let said = refused(command.args(["bench", "--quick", "--runtime", "nptl", "yield"]));
    assert!(said.contains("HOME"), "{said}");
    assert!(said.contains("try: --cache DIR"), "{said}");
}

#[test]
fn a_terminal_without_utf_8_gets_ascii() {
    let list = |locale: &str| {
        let mut command = upcall();
        command.args(["bench", "--list"]).env("LC_ALL", locale);
        let output = command.output().expect("the command starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let (rich, plain) = (list("C.UTF-8"), list("C"));
    assert!(rich.contains("≤") && rich.contains("µs"), "{rich}");
    assert!(plain.contains("<=") && plain.contains(" us"), "{plain}");
    assert!(plain.is_ascii() && !plain.contains('?'), "{plain}");
}
