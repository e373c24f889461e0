//! What is remembered of a program changes nothing that a user can see: each test compares runs before and after.
//!
//! The command is a copy in a directory of the test's own, with a guest library that does nothing beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{compile, directory, file, stderr, stdout};

/// A command that is installed, a user's directory, and programs. All have been there for longer than two seconds.
struct Place {
    directory: PathBuf,
    command: PathBuf,
}

const STATUS_7: &str = "int main(void) { return 7; }\n";

fn place(test: &str) -> Place {
    let directory = directory(test);
    let source = file(&directory, "empty.c", "int upcall_nothing;\n", 0o644);
    let library = directory.join("libupcall_guest.so");
    compile(&["-shared", "-fPIC"], &source, &library).expect("cc makes a shared library");
    let source = file(&directory, "status.c", STATUS_7, 0o644);
    compile(&[], &source, &directory.join("status")).expect("cc makes a program");
    let command = directory.join("upcall");
    // Another process writes it: see `file`.
    let copied = Command::new("cp")
        .args([Path::new(env!("CARGO_BIN_EXE_upcall")), &command])
        .status();
    assert!(copied.expect("cp starts").success());
    fs::create_dir(directory.join("cache")).expect("a directory");
    let place = Place { directory, command };
    place.settle();
    place
}

impl Place {
    /// Lets so much time pass that files count as settled.
    fn settle(&self) {
        std::thread::sleep(Duration::from_millis(2100));
    }

    fn upcall(&self) -> Command {
        let mut command = Command::new(&self.command);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("UPCALL_") {
                command.env_remove(name);
            }
        }
        command
            .env_remove("LD_PRELOAD")
            .env("XDG_RUNTIME_DIR", self.directory.join("cache"))
            .current_dir(&self.directory);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = self.upcall();
        command.arg("run").args(words);
        command.output().expect("upcall starts")
    }

    fn remembered(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.directory.join("cache/upcall/programs"));
        files.map_or(Vec::new(), |files| {
            files.map(|file| file.expect("an entry").path()).collect()
        })
    }

    /// Runs `./status` and returns the one file about it.
    fn remember(&self) -> PathBuf {
        assert_eq!(self.run(&["./status"]).status.code(), Some(7));
        let [file] = self.remembered().try_into().expect("one file");
        file
    }
}

#[test]
fn a_program_runs_alike_when_it_is_remembered() {
    let place = place("remembered-alike");
    for words in [
        &["sh", "-c", "echo out; exit 3"][..],
        &["--", "env"],
        &["./status", "--", "-p"],
        &["/bin/echo", "", "a b"],
    ] {
        let first = place.run(words);
        let files = place.remembered();
        let again = place.run(words);
        assert_eq!(first, again, "{words:?}");
        assert_eq!(files, place.remembered(), "nothing is learnt twice");
    }
    assert!(!place.remembered().is_empty());
    let shown = stdout(&place.run(&["env"]));
    let library = place.directory.join("libupcall_guest.so");
    assert!(
        shown.contains(&format!("LD_PRELOAD={}\n", library.display())),
        "{shown}"
    );
    assert!(shown.contains("UPCALL_SENTINEL="), "{shown}");
}

#[test]
fn a_file_that_is_damaged_or_another_s_is_not_believed() {
    let place = place("remembered-damaged");
    let remembered = place.remember();
    let whole = fs::read(&remembered).expect("readable");
    for length in [0, 7, 8, 16, 64, whole.len() / 2, whole.len() - 1] {
        fs::write(&remembered, &whole[..length]).expect("writable");
        assert_eq!(place.run(&["./status"]).status.code(), Some(7), "{length}");
        assert_eq!(fs::read(&remembered).expect("readable"), whole, "{length}");
    }
    for at in (0..whole.len()).step_by(37) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        fs::write(&remembered, &bytes).expect("writable");
        assert_eq!(place.run(&["./status"]).status.code(), Some(7), "{at}");
        assert_eq!(fs::read(&remembered).expect("readable"), whole, "{at}");
    }
    // One that others can write, or that is reached by a link.
    fs::set_permissions(&remembered, fs::Permissions::from_mode(0o622)).expect("a mode");
    assert_eq!(place.run(&["./status"]).status.code(), Some(7));
    let mode = fs::metadata(&remembered)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "it was written anew");
}

#[test]
fn a_program_that_has_changed_is_examined_again() {
    let place = place("remembered-changed");
    place.remember();
    let program = place.directory.join("status");
    // A static program in its place is refused, by the same name.
    let source = place.directory.join("status.c");
    if let Err(error) = compile(&["-static"], &source, &program) {
        println!("skipped: no static C library here: {error}");
        return;
    }
    let refused = place.run(&["./status"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(stderr(&refused).contains("PT_INTERP"));
    compile(&[], &source, &program).expect("cc makes a program");
    // It is too new to be remembered.
    assert_eq!(place.run(&["./status"]).status.code(), Some(7));
    for mode in [0o4755, 0o2755] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("a mode");
        let refused = place.run(&["./status"]);
        assert_eq!(refused.status.code(), Some(125), "{mode:o}");
        assert!(stderr(&refused).contains("set-"), "{}", stderr(&refused));
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).expect("a mode");
    assert_eq!(place.run(&["./status"]).status.code(), Some(126));
    fs::remove_file(&program).expect("removable");
    assert_eq!(place.run(&["./status"]).status.code(), Some(127));
}

#[test]
fn a_library_that_others_could_replace_is_refused_though_the_program_is_remembered() {
    let place = place("remembered-library");
    place.remember();
    let open = |mode| {
        fs::set_permissions(&place.directory, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    open(0o777);
    let refused = place.run(&["./status"]);
    open(0o755);
    assert_eq!(refused.status.code(), Some(125));
    assert!(stderr(&refused).contains("0777"), "{}", stderr(&refused));
    assert_eq!(place.run(&["./status"]).status.code(), Some(7));
    fs::remove_file(place.directory.join("libupcall_guest.so")).expect("removable");
    let refused = place.run(&["./status"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(stderr(&refused).contains("not installed"));
}

#[test]
fn flags_and_variables_count_though_the_program_is_remembered() {
    let place = place("remembered-variables");
    place.run(&["env"]);
    let mut command = place.upcall();
    command.args(["run", "env"]).env("UPCALL_GANG", "off");
    let shown = stdout(&command.output().expect("upcall starts"));
    assert!(shown.contains("UPCALL_GANG=0\n"), "{shown}");
    let shown = stdout(&place.run(&["-p", "1", "env"]));
    assert!(shown.contains("UPCALL_VPS=1\n"), "{shown}");
    let mut command = place.upcall();
    command.args(["run", "env"]).env("UPCALL_GANG", "maybe");
    let refused = command.output().expect("upcall starts");
    assert_eq!(refused.status.code(), Some(125));
    let mut command = place.upcall();
    let other = place.directory.join("empty.so");
    fs::copy(place.directory.join("libupcall_guest.so"), &other).expect("a copy");
    command.args(["run", "env"]).env("LD_PRELOAD", &other);
    let shown = stdout(&command.output().expect("upcall starts"));
    assert!(
        shown.contains(&format!(":{}\n", other.display())),
        "{shown}"
    );
}

#[test]
fn scripts_are_not_remembered() {
    let place = place("remembered-script");
    file(&place.directory, "script", "#!/bin/sh\nexit 9\n", 0o755);
    place.settle();
    for _ in 0..2 {
        assert_eq!(place.run(&["./script"]).status.code(), Some(9));
    }
    assert!(place.remembered().is_empty());
}

#[test]
fn the_command_runs_under_itself_and_by_the_dynamic_linker() {
    let place = place("remembered-nested");
    for _ in 0..2 {
        let done = place.run(&["./upcall", "run", "./status"]);
        assert_eq!(done.status.code(), Some(7), "{}", stderr(&done));
    }
    let version = place.upcall().arg("--version").output().expect("it starts");
    assert!(stdout(&version).starts_with("upcall "));
    let linker = Path::new("/lib64/ld-linux-x86-64.so.2");
    if linker.exists() {
        let mut command = Command::new(linker);
        let by_linker = command.arg(&place.command).arg("--version").output();
        assert_eq!(stdout(&by_linker.expect("it starts")), stdout(&version));
    }
}

#[test]
fn more_than_the_front_has_room_for_is_left_to_the_complete_command() {
    let place = place("remembered-room");
    place.remember();
    let mut command = place.upcall();
    command.args(["run", "./status"]);
    for number in 0..1000 {
        command.env(format!("VARIABLE_{number}"), "x".repeat(100));
    }
    assert_eq!(command.status().expect("upcall starts").code(), Some(7));
    let long = format!("./{}status", "./".repeat(900));
    assert_eq!(place.run(&[&long]).status.code(), Some(7));
}
