//! gdb with `gdb/upcall.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use program_tests::provision;

use crate::subject::Subject;
use crate::{Known, known_in_c, known_in_crashed_c, known_in_crate};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gdb/upcall.py");

/// gdb, if it is there and runs Python.
pub fn gdb(name: &str) -> Option<PathBuf> {
    let gdb = provision::program(name, "gdb", "gdb")?;
    let speaks = Command::new(&gdb)
        .args(["-nx", "-batch", "-ex", "python import gdb.unwinder"])
        .output()
        .expect("gdb starts");
    let text = String::from_utf8_lossy(&speaks.stderr);
    if text.contains("rror") || text.contains("Scripting") {
        provision::skip(name, "this gdb has no Python");
        return None;
    }
    Some(gdb)
}

/// What gdb prints.
pub fn says(gdb: &Path, on: &[&str], commands: &[&str]) -> String {
    let mut line = Command::new("timeout");
    line.args(["-s", "KILL", "100"])
        .arg(gdb)
        .args(["-nx", "-batch"]);
    line.args(["-ex", "set pagination off", "-ex", "set width 0"]);
    line.args(["-iex", "set debuginfod enabled off"]).args(on);
    line.arg("-ex").arg(format!("source {SCRIPT}"));
    for command in commands {
        line.args(["-ex", command]);
    }
    let output = line.output().expect("timeout starts");
    // Its status is that of the last command, which may be meant to fail.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text + &String::from_utf8_lossy(&output.stderr)
}

/// What is said of one thread, in what `info upcall threads` and `upcall backtrace` print.
struct Said<'a> {
    row: &'a str,
    frames: &'a str,
}

/// The threads in their order.
fn threads(text: &str) -> Vec<Said<'_>> {
    let rows = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("Num "))
        .skip(1)
        .take_while(|line| {
            line.trim_start()
                .starts_with(|first: char| first.is_ascii_digit())
        });
    let parts = text.split("\nUpcall thread ").skip(1);
    let said: Vec<Said<'_>> = rows
        .zip(parts)
        .map(|(row, frames)| Said { row, frames })
        .collect();
    assert!(!said.is_empty(), "{text}");
    said
}

fn check(text: &str, all: &[Known]) {
    let said = threads(text);
    assert_eq!(said.len(), all.len(), "{text}");
    for (said, known) in said.iter().zip(all) {
        let Known {
            name,
            states,
            waits,
            function,
        } = known;
        let has_state = |state: &&str| said.row.contains(&format!(" {state} "));
        let fine = said.row.contains(name)
            && states.iter().any(has_state)
            && said.row.contains(waits)
            && said.row.contains(function)
            && said.frames.contains(function);
        assert!(fine, "{name}, {states:?}, {waits}, in {function}:\n{text}");
    }
}

const LOOK: [&str; 2] = ["info upcall threads", "upcall backtrace"];

#[test]
fn gdb_shows_every_thread_of_a_program_that_runs() {
    let name = "gdb_shows_every_thread_of_a_program_that_runs";
    let Some(gdb) = gdb(name) else { return };
    let Some(subject) = Subject::of_c(name, "stay") else {
        return;
    };
    let text = says(&gdb, &["-p", &subject.pid().to_string()], &LOOK);
    check(&text, &known_in_c("computes"));
}

#[test]
fn gdb_shows_every_thread_in_the_core_file_of_gcore() {
    let name = "gdb_shows_every_thread_in_the_core_file_of_gcore";
    let Some(gdb) = gdb(name) else { return };
    let Some(subject) = Subject::of_c(name, "stay") else {
        return;
    };
    let core = subject.directory.join("gcore");
    let core = core.to_str().expect("a path of ours");
    says(
        &gdb,
        &["-p", &subject.pid().to_string()],
        &[&format!("gcore {core}")],
    );
    let program = subject.path.to_str().expect("a path of ours");
    let text = says(&gdb, &[program, core], &LOOK);
    check(&text, &known_in_c("computes"));
}

#[test]
fn gdb_shows_every_thread_in_the_core_file_of_a_crash() {
    let name = "gdb_shows_every_thread_in_the_core_file_of_a_crash";
    let Some(gdb) = gdb(name) else { return };
    let Some((subject, core)) = Subject::of_c(name, "abort").and_then(Subject::core) else {
        return;
    };
    let core = core.to_str().expect("a path of ours");
    let program = subject.path.to_str().expect("a path of ours");
    let text = says(&gdb, &[program, core], &LOOK);
    check(&text, &known_in_crashed_c());
}

#[test]
fn gdb_shows_every_thread_of_a_program_with_the_crate() {
    let name = "gdb_shows_every_thread_of_a_program_with_the_crate";
    let Some(gdb) = gdb(name) else { return };
    let Some(subject) = Subject::of_crate(name, "stay") else {
        return;
    };
    let text = says(&gdb, &["-p", &subject.pid().to_string()], &LOOK);
    check(&text, &known_in_crate("computes"));
}

#[test]
fn gdb_shows_every_thread_in_a_core_file_of_the_crate() {
    let name = "gdb_shows_every_thread_in_a_core_file_of_the_crate";
    let Some(gdb) = gdb(name) else { return };
    let Some((subject, core)) = Subject::of_crate(name, "abort").and_then(Subject::core) else {
        return;
    };
    let core = core.to_str().expect("a path of ours");
    let program = subject.path.to_str().expect("a path of ours");
    let text = says(&gdb, &[program, core], &LOOK);
    check(&text, &known_in_crate("main"));
}

#[test]
fn gdb_looks_at_one_thread_and_changes_nothing() {
    let name = "gdb_looks_at_one_thread_and_changes_nothing";
    let Some(gdb) = gdb(name) else { return };
    let Some(subject) = Subject::of_c(name, "stay") else {
        return;
    };
    let commands = [
        "info registers rip rsp rbp",
        "upcall thread 4",
        "backtrace",
        "upcall thread",
        "upcall thread off",
        "backtrace 1",
        "info registers rip rsp rbp",
        "upcall thread 99",
        "upcall thread one",
    ];
    let text = says(&gdb, &["-p", &subject.pid().to_string()], &commands);
    let looked = text.find("[Upcall thread 4 ").expect(&text);
    let off = text.find("looking at 4 ").expect(&text);
    assert!(text[looked..off].contains(" waits_in_read ("), "{text}");
    assert!(!text[off..].contains("waits_in_read"), "{text}");
    let registers: Vec<&str> = text
        .lines()
        .filter(|line| {
            ["rip ", "rsp ", "rbp "]
                .iter()
                .any(|name| line.starts_with(name))
        })
        .collect();
    assert_eq!(registers.len(), 6, "{text}");
    assert_eq!(registers[..3], registers[3..], "{text}");
    assert!(text.contains("there is no thread 99"), "{text}");
    assert!(text.contains("one is no thread's number"), "{text}");
}

#[test]
fn gdb_says_why_there_is_nothing_to_show() {
    let name = "gdb_says_why_there_is_nothing_to_show";
    let Some(gdb) = gdb(name) else { return };
    let text = says(&gdb, &[], &["info upcall threads"]);
    assert!(text.contains("upcall: "), "{text}");
    let program = Command::new("sleep").arg("1000").spawn();
    let mut program = program.expect("sleep starts");
    let text = says(&gdb, &["-p", &program.id().to_string()], &LOOK);
    program.kill().expect("it is a child");
    program.wait().expect("it is a child");
    assert!(text.contains("not under Upcall"), "{text}");
}
