//! Syscall User Dispatch is on only if some system-call instruction cannot be rewritten. If the kernel forbids it, `doctor`
//! and `--stats` say so. The cases of `programs.rs` test what programs do under it.

use crate::real;
use program_tests::case::Case;
use program_tests::program::{Outcome, Program};
use program_tests::provision;
use std::path::Path;

/// The numbers of `--stats`: refused sites, 1 if dispatch is on, calls that it caught.
fn stats(outcome: &Outcome) -> [u64; 3] {
    [
        "sites that cannot be rewritten",
        "system-call dispatch is on",
        "system calls caught by it",
    ]
    .map(|name| outcome.counted(name))
}

fn with_stats(case: &Case, program: &Program) -> Outcome {
    case.run_launched(program, &["--stats"])
}

/// Asks `upcall doctor`, behind the words of `prefix`, for dispatch.
fn doctor(case: &Case, prefix: &[&Path]) -> Outcome {
    let upcall = case.launcher().upcall().expect("the real command");
    let words = [prefix, &[upcall]].concat();
    Program::new(words[0])
        .args(&words[1..])
        .args(["doctor", "syscall-user-dispatch", "-q"])
        .run(&case.fresh("doctor"), None)
}

/// Returns true if dispatch works here. Otherwise it says aloud that the case is skipped.
fn works(case: &Case) -> bool {
    let works = doctor(case, &[]).status.success();
    if !works {
        provision::skip(case.name(), "no Syscall User Dispatch here");
    }
    works
}

#[test]
fn dispatch_is_off_where_every_site_is_rewritten() {
    let name = "dispatch_is_off_where_every_site_is_rewritten";
    let Some((case, program)) = real(name, "raw_futex.c") else {
        return;
    };
    let outcome = with_stats(&case, &Program::new(program));
    assert_eq!(stats(&outcome), [0, 0, 0], "{}", outcome.talk());
}

#[test]
fn dispatch_stays_off_when_a_loaded_library_is_rewritten() {
    let name = "dispatch_stays_off_when_a_loaded_library_is_rewritten";
    let Some((case, program)) = real(name, "dlopen_sites.c") else {
        return;
    };
    let Some(plugin) = case.compile("plugin_sites.c") else {
        return;
    };
    let outcome = with_stats(&case, &Program::new(program).arg(plugin));
    assert!(outcome.status.success(), "{}", outcome.talk());
    assert_eq!(stats(&outcome), [0, 0, 0], "{}", outcome.talk());
}

#[test]
fn dispatch_is_on_for_a_refused_site() {
    let name = "dispatch_is_on_for_a_refused_site";
    let Some((case, program)) = real(name, "refused_site.c") else {
        return;
    };
    if !works(&case) {
        return;
    }
    let outcome = with_stats(&case, &Program::new(program));
    let [refused, on, caught] = stats(&outcome);
    assert_eq!((refused, on), (3, 1), "{}", outcome.talk());
    assert!(caught > 4000, "each thread asks for its id: {caught}");
}

/// As in a container that forbids dispatch: the program runs all the same, and `--stats` prints the reason.
#[test]
fn without_dispatch_the_program_runs_and_stats_say_so() {
    let name = "without_dispatch_the_program_runs_and_stats_say_so";
    let Some((case, program)) = real(name, "refused_site.c") else {
        return;
    };
    let Some(deny) = case.compile("deny_dispatch.c") else {
        return;
    };
    let upcall = case.launcher().upcall().expect("the real command");
    let doctor = doctor(&case, &[&deny]);
    assert_eq!(doctor.status.code(), Some(1), "{}", doctor.talk());
    let outcome = Program::new(&deny)
        .arg(upcall)
        .args(["run", "--stats", "--"])
        .arg(program)
        .run(&case.fresh("launched"), None);
    // It notices: its own calls see the kernel threads. It is not ended.
    assert_eq!(outcome.status.code(), Some(1), "{}", outcome.talk());
    assert_eq!(stats(&outcome), [3, 0, 0], "{}", outcome.talk());
    let text = String::from_utf8_lossy(&outcome.stderr);
    let said = text.contains("no Syscall User Dispatch (errno 1)");
    assert!(said, "{}", outcome.talk());
}
