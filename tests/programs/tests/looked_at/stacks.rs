//! `upcall stacks`.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use program_tests::launcher::Launcher;

use crate::subject::Subject;
use crate::{Known, known_in_c, known_in_crashed_c, known_in_crate};

const UNSEEN: &str = "(its frames are seen with --stop only)";

/// What it prints.
pub fn says(launcher: &Launcher, arguments: &[&OsStr]) -> String {
    let upcall = launcher.upcall().expect("the command");
    let output = Command::new("timeout")
        .args(["-s", "KILL", "100"])
        .arg(upcall)
        .arg("stacks")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("timeout starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && talk.is_empty(), "{text}\n{talk}");
    text
}

/// What is said of each thread.
pub fn parts(text: &str) -> Vec<&str> {
    let parts: Vec<&str> = text.split("\n\n").skip(1).collect();
    match parts.split_last() {
        Some((last, rest)) if last.contains("went on while") => rest.to_vec(),
        _ => parts,
    }
}

/// `stopped`: the program, or it is a core file.
fn check(text: &str, stopped: bool, all: &[Known]) {
    let parts = parts(text);
    assert_eq!(parts.len(), all.len(), "{text}");
    for (part, known) in parts.iter().zip(all) {
        let Known {
            name,
            states,
            waits,
            function,
        } = known;
        let head = part.lines().next().unwrap_or_default();
        let has_state = |state: &&str| head.contains(&format!("\") {state}"));
        let sees = match part.contains(UNSEEN) {
            true => !stopped && head.contains("running"),
            // A thread that has not begun is in no function of the program.
            false => part.contains(function),
        };
        let stands = !stopped && states == &crate::ANY_RUNS || !head.starts_with('~');
        let fine = head.contains(name)
            && states.iter().any(has_state)
            && head.contains(waits)
            && sees
            && stands;
        assert!(fine, "{name}, {states:?}, {waits}, in {function}:\n{text}");
    }
}

#[test]
fn stacks_shows_every_thread_of_a_program_that_runs() {
    let name = "stacks_shows_every_thread_of_a_program_that_runs";
    let Some(subject) = Subject::of_c(name, "stay") else {
        return;
    };
    let pid = subject.pid().to_string();
    let launcher = subject.case.launcher();
    let text = says(launcher, &[pid.as_ref()]);
    check(&text, false, &known_in_c("computes"));
    // Nothing is left out, and what waits is the same a second time.
    let full = says(launcher, &[pid.as_ref(), "--full".as_ref()]);
    check(&full, false, &known_in_c("computes"));
    assert!(
        full.contains("libupcall_guest.so") || full.contains("upcall-core"),
        "{full}"
    );
    let waiting = |text: &str| parts(text)[1..4].join("\n");
    assert_eq!(waiting(&text), waiting(&says(launcher, &[pid.as_ref()])));
    // Stopped, also those that run.
    let text = says(launcher, &["--stop".as_ref(), pid.as_ref()]);
    check(&text, true, &known_in_c("computes"));
    // And it goes on.
    let state = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    assert!(
        state.contains("TracerPid:\t0") && !state.contains("(stopped)"),
        "{state}"
    );
}

#[test]
fn stacks_shows_every_thread_of_a_program_with_the_crate() {
    let name = "stacks_shows_every_thread_of_a_program_with_the_crate";
    let Some(subject) = Subject::of_crate(name, "stay") else {
        return;
    };
    let pid = subject.pid().to_string();
    let launcher = subject.case.launcher();
    let text = says(launcher, &[pid.as_ref()]);
    check(&text, false, &known_in_crate("computes"));
    let text = says(launcher, &["--stop".as_ref(), pid.as_ref()]);
    check(&text, true, &known_in_crate("computes"));
}

#[test]
fn stacks_shows_every_thread_in_a_core_file() {
    let name = "stacks_shows_every_thread_in_a_core_file";
    let Some((subject, core)) = Subject::of_c(name, "abort").and_then(Subject::core) else {
        return;
    };
    let text = says(subject.case.launcher(), &["--core".as_ref(), core.as_ref()]);
    let head = text.lines().next().unwrap_or_default();
    let program = subject.path.to_str().expect("a path of ours");
    assert!(head.contains(program), "{text}");
    check(&text, true, &known_in_crashed_c());
}

#[test]
fn stacks_shows_every_thread_in_a_core_file_of_the_crate() {
    let name = "stacks_shows_every_thread_in_a_core_file_of_the_crate";
    let Some((subject, core)) = Subject::of_crate(name, "abort").and_then(Subject::core) else {
        return;
    };
    let text = says(subject.case.launcher(), &["--core".as_ref(), core.as_ref()]);
    check(&text, true, &known_in_crate("main"));
}

#[test]
fn stacks_says_the_same_as_json() {
    let name = "stacks_says_the_same_as_json";
    let Some(subject) = Subject::of_c(name, "stay") else {
        return;
    };
    let pid = subject.pid().to_string();
    let text = says(subject.case.launcher(), &[pid.as_ref(), "--json".as_ref()]);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.starts_with(&format!("{{\"v\":1,\"pid\":{pid},")),
        "{text}"
    );
    for part in [
        "\"name\":\"in read\",\"state\":\"parked\",\"vp\":null,\"tid\":null,\"waits_for\":\"descriptor 3 to read\"",
        "\"function\":\"waits_in_read\"",
        "\"stopped\":false",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}
