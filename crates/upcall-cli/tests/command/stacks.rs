//! `upcall stacks` where there is nothing to show, and why. With programs it is tested in `tests/programs`.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output};

use crate::common::{directory, file, upcall};

/// It is refused, in four lines.
fn refused(output: &Output) -> String {
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{talk}");
    assert!(output.stdout.is_empty());
    assert_eq!(talk.lines().count(), 4, "{talk}");
    talk
}

fn stacks(words: &[&str]) -> Output {
    let mut command = upcall();
    command.arg("stacks").args(words);
    command.output().expect("the command runs")
}

/// A program that is not under Upcall.
struct Sleeping(Child);

impl Sleeping {
    fn start() -> Self {
        let child = Command::new("sleep").arg("1000").spawn();
        Sleeping(child.expect("sleep starts"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        self.0.kill().expect("it is a child");
        self.0.wait().expect("it is a child");
    }
}

#[test]
fn a_program_that_is_not_under_upcall_has_no_threads_to_show() {
    let program = Sleeping::start();
    let talk = refused(&stacks(&[&program.pid()]));
    assert!(talk.contains("upcall run"), "{talk}");
    let talk = refused(&stacks(&["--stop", &program.pid()]));
    assert!(talk.contains("upcall run"), "{talk}");
}

#[test]
fn a_process_that_is_not_there_is_said_to_be_not_there() {
    // Ids end at 2^22.
    let talk = refused(&stacks(&["2147483647"]));
    assert!(talk.contains("there is no such process"), "{talk}");
}

#[test]
fn what_another_user_owns_is_refused_with_both_users() {
    let other = 65_534;
    // SAFETY: asks only.
    let own = unsafe { libc::geteuid() };
    let mut command = upcall();
    command.arg("stacks");
    let program = Sleeping::start();
    if own == 0 {
        command.arg(program.pid()).uid(other).gid(other);
    } else {
        command.arg("1");
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: another user cannot execute the command: {error}");
            return;
        }
    };
    let talk = refused(&output);
    let user = if own == 0 { other } else { own };
    for part in ["it is user 0's".to_owned(), format!("this is user {user}")] {
        assert!(talk.contains(&part), "{talk}");
    }
}

#[test]
fn a_file_that_is_no_core_file_is_refused() {
    let directory = directory("stacks_core");
    let nothing = file(&directory, "nothing", "", 0o600);
    let program = std::env::current_exe().expect("a path");
    for path in [nothing, program, directory.join("missing")] {
        let talk = refused(&stacks(&["--core", path.to_str().expect("text")]));
        assert!(talk.contains(path.to_str().expect("text")), "{talk}");
    }
}

#[test]
fn a_process_or_a_core_file_is_named_and_not_both() {
    for words in [
        &[][..],
        &["0"],
        &["-1"],
        &["one"],
        &["1", "--core", "core"],
        &["--core", "core", "--stop"],
    ] {
        let output = stacks(words);
        assert_eq!(output.status.code(), Some(125), "{words:?}");
    }
}
