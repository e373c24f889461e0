//! `upcall top`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use program_tests::guard::limit;
use program_tests::launcher::Launcher;
use program_tests::provision;
use serde_json::Value;

use crate::known_in_c;
use crate::subject::{Subject, case};

/// `upcall top --once --json`, with more arguments, as this user.
fn command(launcher: &Launcher, arguments: &[&str]) -> Command {
    let upcall = launcher.upcall().expect("the command");
    let mut command = Command::new("timeout");
    command
        .args(["-s", "KILL", "100"])
        .arg(upcall)
        .args(["top", "--once", "--json", "-d", "0.1"])
        .args(arguments)
        .stdin(Stdio::null());
    command
}

fn report(output: &Output) -> Value {
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && talk.is_empty(), "{talk}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn look(launcher: &Launcher, arguments: &[&str]) -> Value {
    report(
        &command(launcher, arguments)
            .output()
            .expect("timeout starts"),
    )
}

/// What is said of a program.
fn program(report: &Value, pid: i32) -> Option<&Value> {
    let all = report["programs"].as_array().expect("an array");
    all.iter().find(|one| one["pid"] == pid)
}

/// The segment that is mapped in a process, by its number.
fn segment(pid: i32) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it is there");
    let line = maps.lines().find(|line| line.contains("/SYSV"))?;
    line.split_whitespace().nth(4)?.parse().ok()
}

fn is_listed(number: u64) -> bool {
    let list = fs::read_to_string("/proc/sysvipc/shm").expect("the kernel lists segments");
    let numbers = list
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(1));
    numbers
        .into_iter()
        .any(|listed| listed.parse() == Ok(number))
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < limit(), "{what} does not come");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn top_shows_a_programs_threads_and_rising_counters() {
    let name = "top_shows_a_programs_threads_and_rising_counters";
    let Some(subject) = Subject::of_c(name, "stay") else {
        return;
    };
    let (pid, launcher) = (subject.pid(), subject.case.launcher());
    let report = look(launcher, &["-p", &pid.to_string()]);
    assert_eq!(report["v"], 1);
    let one = program(&report, pid).expect("it is listed");
    let known = known_in_c("computes");
    assert_eq!(one["counters"]["vps"], 1, "{one}");
    assert_eq!(one["counters"]["created"], known.len() as u64 - 1, "{one}");
    assert_eq!(one["threads"], known.len() as u64, "{one}");
    assert_eq!(one["states"]["parked"], 4, "{one}");
    let list = one["list"].as_array().expect("-p lists threads");
    assert_eq!(list.len(), known.len(), "{one}");
    for (thread, known) in list.iter().zip(&known) {
        let state = thread["state"].as_str().expect("text");
        let waits = thread["waits_for"].as_str().unwrap_or_default();
        let fine = known.states.contains(&state) && waits.contains(known.waits);
        assert!(fine, "{}: {thread}", known.name);
    }
    // Two threads compute on one virtual processor.
    let slices = || {
        let report = look(launcher, &[]);
        program(&report, pid).expect("it is listed")["counters"]["preempted"].as_u64()
    };
    let first = slices().expect("a number");
    wait_for("the end of a time slice", || {
        slices().filter(|&now| now > first)
    });
}

#[test]
fn top_does_not_show_a_program_without_threads() {
    let name = "top_does_not_show_a_program_without_threads";
    let Some(case) = case(name) else {
        return;
    };
    let stops = "echo ready; kill -STOP $$";
    let shell = Subject::launched(
        case,
        &[],
        "/bin/sh".into(),
        &["-c".as_ref(), stops.as_ref()],
        "ready",
    );
    assert_eq!(segment(shell.pid()), None);
    let report = look(shell.case.launcher(), &[]);
    assert!(program(&report, shell.pid()).is_none(), "{report}");
}

#[test]
fn counters_go_with_a_program_that_is_killed() {
    let name = "counters_go_with_a_program_that_is_killed";
    let Some(subject) = Subject::of_c(name, "stay") else {
        return;
    };
    let number = segment(subject.pid()).expect("it has counters");
    assert!(is_listed(number));
    // With SIGKILL.
    drop(subject);
    assert!(!is_listed(number));
}

#[test]
fn children_have_counters_of_their_own_or_none() {
    let name = "children_have_counters_of_their_own_or_none";
    let Some(case) = case(name) else {
        return;
    };
    let Some(path) = case.compile("seen_from_outside.c") else {
        return;
    };
    let (subject, lines) = Subject::talking(case, path);
    let mut pids = std::collections::HashMap::new();
    while pids.len() < 4 {
        let line = lines.recv_timeout(limit()).expect("it says so");
        let (name, pid) = line.split_once(' ').expect("two words");
        pids.insert(name.to_owned(), pid.parse::<i32>().expect("a number"));
    }
    let pid = |name: &str| pids[name];
    wait_for("the other program", || {
        let comm = fs::read_to_string(format!("/proc/{}/comm", pid("executes"))).ok()?;
        (comm.trim() == "sleep").then_some(())
    });
    let parents = segment(pid("parent")).expect("it has counters");
    let own = segment(pid("threads")).expect("it has counters");
    assert_ne!(parents, own);
    assert_eq!(segment(pid("copy")), None);
    assert_eq!(segment(pid("executes")), None);
    let report = look(subject.case.launcher(), &[]);
    for (name, created) in [("parent", 1), ("threads", 1)] {
        let one = program(&report, pid(name)).expect("it is listed");
        assert_eq!(one["counters"]["created"], created, "{name}: {one}");
    }
    assert!(program(&report, pid("copy")).is_none_or(|one| one["counters"].is_null()));
    assert!(program(&report, pid("executes")).is_none(), "{report}");
}

#[test]
fn another_user_sees_nothing_of_a_program() {
    let name = "another_user_sees_nothing_of_a_program";
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } != 0 {
        provision::skip(name, "only the superuser can be another user");
        return;
    }
    let Some(subject) = Subject::of_c(name, "stay") else {
        return;
    };
    let other = 65_534;
    let mut command = command(subject.case.launcher(), &[]);
    let output = command
        .uid(other)
        .gid(other)
        .output()
        .expect("timeout starts");
    if matches!(output.status.code(), Some(126 | 127)) {
        provision::skip(name, "another user cannot execute the command");
        return;
    }
    let report = report(&output);
    assert!(program(&report, subject.pid()).is_none(), "{report}");
}
