//! `upcall trace`: real programs, their timelines decoded by Perfetto's own schema and loaded by its own trace processor, and bad
//! days.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use program_tests::case::Case;
use program_tests::provision;

use crate::subject::case;

/// The program, compiled, and an empty directory. None if the case must be skipped.
struct Traced {
    case: Case,
    program: PathBuf,
    directory: PathBuf,
}

impl Traced {
    fn new(name: &str) -> Option<Self> {
        let case = case(name)?;
        let program = case.compile_with("timeline.c", &["-O1"])?;
        let directory = case.fresh("trace");
        Some(Traced {
            case,
            program,
            directory,
        })
    }

    /// `upcall` with these words, where timelines are written, and a limit.
    fn upcall(&self, words: &[&OsStr]) -> Command {
        let upcall = self.case.launcher().upcall().expect("the command");
        let mut command = Command::new("timeout");
        command
            .args(["-s", "KILL", "100"])
            .arg(upcall)
            .args(words)
            .current_dir(&self.directory)
            .stdin(Stdio::null());
        command
    }

    fn trace(&self, options: &[&str], arguments: &[&str]) -> Command {
        let mut words: Vec<&OsStr> = vec!["trace".as_ref(), "-o".as_ref(), "a.pftrace".as_ref()];
        words.extend(options.iter().map(OsStr::new));
        words.extend(["--".as_ref(), self.program.as_os_str()]);
        words.extend(arguments.iter().map(OsStr::new));
        self.upcall(&words)
    }

    fn file(&self) -> PathBuf {
        self.directory.join("a.pftrace")
    }

    /// What is in the directory beside what the program makes.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).expect("the directory is there");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry.expect("an entry")))
            .collect();
        names.retain(|name| name != "timeline.lock");
        names.sort();
        names
    }

    /// Decodes the timeline, checks that it adds up, and returns how often each name is in it. None if there is no decoder.
    fn names(&self, busy: Option<f64>) -> Option<String> {
        let python = decoder(&self.case)?;
        if std::env::var_os("UPCALL_TEST_TRACE_PROCESSOR").is_none() {
            let why = "Perfetto's trace processor is not asked: ./test gets it, and names it in UPCALL_TEST_TRACE_PROCESSOR";
            provision::skip(self.case.name(), why);
        }
        let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/check.py");
        let mut command = Command::new(python);
        command.arg(check).arg(self.file()).arg("--names");
        if let Some(busy) = busy {
            command.arg("--busy").arg(busy.to_string());
        }
        let done = command.output().expect("python starts");
        assert!(done.status.success(), "{}", talk(&done));
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        print!("{text}");
        Some(text)
    }
}

/// A Python that has Perfetto's package: the one in UPCALL_TEST_PERFETTO, or the usual one.
fn decoder(case: &Case) -> Option<PathBuf> {
    let named = std::env::var_os("UPCALL_TEST_PERFETTO").map(PathBuf::from);
    let python = named.or_else(|| provision::python(case.name()))?;
    let import = "import perfetto.protos.perfetto.trace.perfetto_trace_pb2";
    let has = Command::new(&python)
        .args(["-c", import])
        .stderr(Stdio::null())
        .status();
    if !has.is_ok_and(|status| status.success()) {
        let why = "no package perfetto for Python: ./test gets it, and names that Python in UPCALL_TEST_PERFETTO";
        provision::skip(case.name(), why);
        return None;
    }
    Some(python)
}

fn talk(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn has(names: &str, wanted: &str) -> bool {
    names.lines().any(|line| {
        let name = line.trim_start().split_once(' ').map(|(_, name)| name);
        name.is_some_and(|name| name.starts_with(wanted))
    })
}

/// A number of `--stats`.
fn stat(text: &str, row: &str) -> f64 {
    let line = text.lines().find(|line| line.contains(row));
    let number = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
    number.unwrap_or_else(|| panic!("no row '{row}':\n{text}"))
}

#[test]
fn a_timeline_has_what_threads_did() {
    let Some(traced) = Traced::new("a_timeline_has_what_threads_did") else {
        return;
    };
    let done = traced
        .trace(&[], &["work"])
        .env("UPCALL_VPS", "2")
        .env("UPCALL_STATS", "1")
        .output()
        .expect("it starts");
    let talk = talk(&done);
    assert!(done.status.success(), "{talk}");
    assert_eq!(done.stdout, b"done\n");
    assert!(talk.contains("busy"), "{talk}");
    assert_eq!(traced.files(), ["a.pftrace"]);
    let idle = stat(&talk, "of that idle");
    let busy = 100.0 * (1.0 - idle / stat(&talk, "time of virtual processors"));
    // Where the machine let the reader run too late, a virtual processor's idleness may be among what was dropped.
    let busy = (!talk.contains("were dropped")).then_some(busy);
    let Some(names) = traced.names(busy) else {
        return;
    };
    for wanted in [
        "fighter",
        "computer",
        "echo",
        "sleeper",
        "runs",
        "ready",
        "idle",
        "sleeps",
        "waits for a word",
        "waits to read",
        "wakes ",
        "waits for descriptors",
    ] {
        assert!(has(&names, wanted), "'{wanted}':\n{names}");
    }
    // What happens a few times may be all among what was dropped.
    for wanted in [
        "flock",
        "upcall: blocked in a",
        "upcall: unblocked",
        "upcall: put to work",
        "on processor",
    ] {
        assert!(
            has(&names, wanted) || busy.is_none(),
            "'{wanted}':\n{names}"
        );
    }
}

#[test]
fn a_program_that_is_killed_leaves_its_timeline() {
    let Some(traced) = Traced::new("a_program_that_is_killed_leaves_its_timeline") else {
        return;
    };
    let done = traced.trace(&[], &["kill"]).output().expect("it starts");
    assert_eq!(done.status.code(), Some(137), "{}", talk(&done));
    assert_eq!(traced.files(), ["a.pftrace"]);
    if let Some(names) = traced.names(None) {
        assert!(has(&names, "computer"), "{names}");
    }
}

#[test]
fn the_time_is_over_and_the_program_goes_on() {
    let Some(traced) = Traced::new("the_time_is_over_and_the_program_goes_on") else {
        return;
    };
    let done = traced
        .trace(&["-d", "0.3"], &["work"])
        .output()
        .expect("it starts");
    assert!(done.status.success(), "{}", talk(&done));
    assert_eq!(done.stdout, b"done\n");
    assert_eq!(traced.files(), ["a.pftrace"]);
    traced.names(None);
}

#[test]
fn a_command_that_is_killed_leaves_no_file_and_the_next_removes_its_directory() {
    let Some(traced) = Traced::new("a_command_that_is_killed") else {
        return;
    };
    let place = traced.case.fresh("runtime");
    let upcall = traced.case.launcher().upcall().expect("the command");
    let mut command = Command::new(upcall);
    command
        .args(["trace", "-o", "a.pftrace", "--"])
        .arg(&traced.program)
        .arg("stay")
        .env("XDG_RUNTIME_DIR", &place)
        .current_dir(&traced.directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().expect("it starts");
    await_ready(&mut child);
    let left = || {
        let entries = fs::read_dir(&place).expect("a directory").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name.starts_with("upcall-trace-"))
            .count()
    };
    assert_eq!(left(), 1);
    // It alone, and then its program.
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(traced.files().is_empty(), "{:?}", traced.files());
    let done = traced
        .trace(&[], &["work"])
        .env("XDG_RUNTIME_DIR", &place)
        .output()
        .expect("it starts");
    // SAFETY: a group of children, of which one is left.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    assert!(done.status.success(), "{}", talk(&done));
    assert_eq!(left(), 0);
    assert_eq!(traced.files(), ["a.pftrace"]);
}

#[test]
fn an_interrupt_keeps_what_there_is() {
    let Some(traced) = Traced::new("an_interrupt_keeps_what_there_is") else {
        return;
    };
    let mut command = traced.trace(&[], &["stay"]);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().expect("it starts");
    await_ready(&mut child);
    // As a terminal does: to the whole group, of which `timeout` is one, too.
    // SAFETY: a group of children.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGINT) };
    let done = child.wait_with_output().expect("it ends");
    let talk = talk(&done);
    assert!(talk.contains("busy"), "{talk}");
    assert_eq!(traced.files(), ["a.pftrace"]);
    traced.names(None);
}

#[test]
fn a_thousand_activations_are_traced() {
    let Some(traced) = Traced::new("a_thousand_activations_are_traced") else {
        return;
    };
    let done = traced
        .trace(&[], &["many", "1000"])
        .output()
        .expect("it starts");
    let talk = talk(&done);
    assert!(done.status.success(), "{talk}");
    traced.names(None);
}

#[test]
fn a_file_that_cannot_be_is_refused_before_the_program_starts() {
    let Some(traced) = Traced::new("a_file_that_cannot_be_is_refused") else {
        return;
    };
    for file in ["/sys/a.pftrace", "/nowhere/a.pftrace", "."] {
        let words = ["trace", "-o", file, "--", "sh", "-c", "echo ran"].map(OsStr::new);
        let done = traced.upcall(&words).output().expect("it starts");
        let talk = talk(&done);
        assert_eq!(done.status.code(), Some(125), "{file}: {talk}");
        assert!(done.stdout.is_empty(), "{file}");
        assert!(talk.starts_with("upcall: cannot write"), "{file}: {talk}");
        assert_eq!(talk.lines().count(), 4, "{file}: {talk}");
    }
    assert!(traced.files().is_empty());
}

/// A limit of file sizes stands for a full disk: what does not fit is said, and no half of a file stays.
#[test]
fn a_disk_without_room_leaves_no_half_of_a_file() {
    let Some(traced) = Traced::new("a_disk_without_room_leaves_no_half_of_a_file") else {
        return;
    };
    let Some(mount) = Small::new(&traced) else {
        return;
    };
    let file = mount.0.join("a.pftrace");
    let words: [&OsStr; 6] = [
        "trace".as_ref(),
        "-o".as_ref(),
        file.as_ref(),
        "--".as_ref(),
        traced.program.as_ref(),
        "work".as_ref(),
    ];
    let done = traced.upcall(&words).output().expect("it starts");
    let talk = talk(&done);
    assert_eq!(done.status.code(), Some(125), "{talk}");
    assert_eq!(done.stdout, b"done\n");
    assert!(talk.contains("No space left"), "{talk}");
    let left = fs::read_dir(&mount.0).expect("a directory").count();
    assert_eq!(left, 0, "{talk}");
}

/// A file system of 64 KiB.
struct Small(PathBuf);

impl Small {
    fn new(traced: &Traced) -> Option<Self> {
        let place = traced.directory.join("small");
        fs::create_dir(&place).expect("a directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "small"])
            .arg(&place)
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Small(place));
        }
        provision::skip(traced.case.name(), "nothing can be mounted here");
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

/// The last events of a program that nobody looked at, and those of one that runs.
#[test]
fn a_flight_recorder_is_read() {
    let Some(traced) = Traced::new("a_flight_recorder_is_read") else {
        return;
    };
    let place = traced.case.fresh("events");
    let words: [&OsStr; 4] = [
        "run".as_ref(),
        "--".as_ref(),
        traced.program.as_ref(),
        "stay".as_ref(),
    ];
    let mut command = traced.upcall(&words);
    command
        .env("UPCALL_TRACE", &place)
        .stdout(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().expect("it starts");
    await_ready(&mut child);
    let noted = fs::read_dir(&place).expect("a directory").next();
    let noted = noted.expect("a file").expect("an entry").file_name();
    let noted = noted.to_string_lossy().into_owned();
    let pid = noted.split('.').next().expect("a number");
    let words = ["trace", "-o", "a.pftrace", "-d", "0.3", "-p", pid].map(OsStr::new);
    let done = traced.upcall(&words).output().expect("it starts");
    assert!(done.status.success(), "{}", talk(&done));
    let named = traced.names(None);
    // SAFETY: a group of children.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    child.wait().expect("it ends");
    let words: [&OsStr; 5] = [
        "trace".as_ref(),
        "-o".as_ref(),
        "a.pftrace".as_ref(),
        "--from".as_ref(),
        place.as_ref(),
    ];
    let done = traced.upcall(&words).output().expect("it starts");
    assert!(done.status.success(), "{}", talk(&done));
    for names in [named, traced.names(None)].into_iter().flatten() {
        assert!(has(&names, "computer"), "{names}");
    }
    // Cut off behind its head, and beside a file of something else: named, and the timeline of before stays.
    let before = fs::read(traced.file()).expect("a timeline");
    let cut = fs::OpenOptions::new().write(true).open(place.join(&noted));
    cut.and_then(|file| file.set_len(8192)).expect("it is cut");
    fs::write(place.join("other"), "no events").expect("a file");
    let done = traced.upcall(&words).output().expect("it starts");
    let text = talk(&done);
    assert_eq!(done.status.code(), Some(125), "{text}");
    for said in ["has no events", "is cut off", "other is passed over"] {
        assert!(text.contains(said), "'{said}': {text}");
    }
    assert_eq!(fs::read(traced.file()).ok(), Some(before), "{text}");
    assert_eq!(traced.files(), ["a.pftrace"]);
}

/// A server that gives up its rights before it has threads is no riddle to the superuser.
#[test]
fn a_program_that_cannot_note_anything_is_explained_to_the_superuser() {
    let Some(traced) = Traced::new("a_program_that_cannot_note_anything") else {
        return;
    };
    let words = ["trace", "-o", "a.pftrace", "--", "true"].map(OsStr::new);
    let done = traced.upcall(&words).output().expect("it starts");
    let talk = talk(&done);
    assert!(done.status.success(), "{talk}");
    assert!(talk.contains("nothing was traced"), "{talk}");
    // SAFETY: asks only.
    let is_root = unsafe { libc::geteuid() } == 0;
    assert_eq!(talk.contains("by -p"), is_root, "{talk}");
    assert!(traced.files().is_empty(), "{talk}");
}

/// The program itself says nothing of a directory that is not there, since whoever reads may have gone.
#[test]
fn a_flight_recorder_without_a_directory_is_told() {
    let Some(traced) = Traced::new("a_flight_recorder_without_a_directory") else {
        return;
    };
    let run = |place: &Path| {
        let words = ["run", "--", "echo", "ran"].map(OsStr::new);
        let mut command = traced.upcall(&words);
        let done = command.env("UPCALL_TRACE", place).output();
        let done = done.expect("it starts");
        assert!(done.status.success(), "{}", talk(&done));
        assert_eq!(done.stdout, b"ran\n");
        talk(&done)
    };
    let absent = traced.directory.join("absent");
    let said = run(&absent);
    assert!(
        said.starts_with("upcall: warning: nothing is noted"),
        "{said}"
    );
    assert!(said.contains(absent.to_str().expect("text")), "{said}");
    assert_eq!(run(&traced.directory), "");
    // One that a command which has ended had made.
    assert_eq!(run(&traced.directory.join("upcall-trace-1")), "");
}

/// Returns when the program, which is to stay, has had threads.
fn await_ready(child: &mut Child) {
    let mut line = String::new();
    let said = child.stdout.take().expect("a pipe");
    BufReader::new(said).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
}

/// A program that works until this is dropped.
struct Working(Child);

impl Working {
    /// It has had threads when this returns.
    fn new(mut command: Command) -> Self {
        let mut child = command
            .arg("stay")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        await_ready(&mut child);
        Working(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn goes_on(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that was started without anything is asked to begin, and again after that. Nothing of it is left.
#[test]
fn a_program_that_runs_is_asked() {
    let Some(traced) = Traced::new("a_program_that_runs_is_asked") else {
        return;
    };
    let mut command = Command::new(traced.case.launcher().upcall().expect("the command"));
    command
        .args(["run", "--"])
        .arg(&traced.program)
        .current_dir(&traced.directory);
    let mut working = Working::new(command);
    for round in ["first", "second"] {
        let pid = working.pid();
        let words = ["trace", "-o", "a.pftrace", "-d", "1", "-p", &pid].map(OsStr::new);
        let done = traced.upcall(&words).output().expect("it starts");
        assert!(done.status.success(), "{round}: {}", talk(&done));
        assert!(working.goes_on(), "{round}");
        assert_eq!(traced.files(), ["a.pftrace"], "{round}");
        if let Some(names) = traced.names(None) {
            for wanted in ["computer", "fighter", "runs"] {
                assert!(has(&names, wanted), "{round}: '{wanted}':\n{names}");
            }
        }
        fs::remove_file(traced.file()).expect("it was made");
    }
}

#[test]
fn who_cannot_be_asked_is_told_from_who_is_not_there() {
    let Some(traced) = Traced::new("who_cannot_be_asked") else {
        return;
    };
    let mut command = Command::new(&traced.program);
    command.current_dir(&traced.directory);
    let native = Working::new(command);
    for (pid, said) in [
        (native.pid(), "cannot be asked for a timeline"),
        ("2147483647".into(), "cannot look at process"),
    ] {
        let words = ["trace", "-o", "a.pftrace", "-p", &pid].map(OsStr::new);
        let done = traced.upcall(&words).output().expect("it starts");
        let talk = talk(&done);
        assert_eq!(done.status.code(), Some(125), "{talk}");
        assert!(talk.contains(said), "{talk}");
        assert_eq!(talk.lines().count(), 4, "{talk}");
        assert!(traced.files().is_empty(), "{talk}");
    }
}
