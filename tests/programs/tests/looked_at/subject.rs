//! A program that says when its threads are in their states, and stays.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use program_tests::case::Case;
use program_tests::guard::limit;
use program_tests::{diagnosis, provision};

/// A running program. Dropping it kills it.
pub struct Subject {
    child: Child,
    pub path: PathBuf,
    /// Where it runs, for files of the test, too.
    pub directory: PathBuf,
    pub case: Case,
}

/// A case of these tests. None if it must be skipped.
pub fn case(name: &str) -> Option<Case> {
    let case = Case::new(name, Path::new(env!("CARGO_TARGET_TMPDIR")));
    case.runs_upcall().then_some(case)
}

impl Subject {
    /// `known_states.c` under `upcall run` with one virtual processor, when it has said that it is ready, and computes if it
    /// does that `then`. None if the case must be skipped.
    pub fn of_c(name: &str, then: &str) -> Option<Self> {
        let case = case(name)?;
        let path = case.compile_with("known_states.c", &["-g"])?;
        let subject = Self::launched(case, &["-p1"], path, &[then.as_ref()], "ready");
        subject.is_at(then);
        Some(subject)
    }

    /// `known_states_of_crate.rs`, which has a runtime of its own.
    pub fn of_crate(name: &str, then: &str) -> Option<Self> {
        let case = case(name)?;
        let test = std::env::current_exe().expect("this test has a path");
        let built = test.parent().and_then(Path::parent).expect("in deps");
        let path = built.join("examples/known_states_of_crate");
        let mut command = Command::new(&path);
        command.arg(then);
        let subject = Self::start(case, command, path, "ready");
        subject.is_at(then);
        Some(subject)
    }

    /// Where it stays and computes, waits until it has done so for some time slices: the thread that said something has left that call.
    fn is_at(&self, then: &str) {
        if then != "stay" {
            return;
        }
        let used = || diagnosis::used(self.pid());
        let (before, begun) = (used(), Instant::now());
        while used() < before + 4 {
            assert!(begun.elapsed() < limit(), "it does not compute");
            thread::yield_now();
        }
    }

    /// A program under `upcall run` with options, when it has said this.
    pub fn launched(
        case: Case,
        options: &[&str],
        path: PathBuf,
        arguments: &[&OsStr],
        says: &str,
    ) -> Self {
        let launcher = options
            .iter()
            .fold(case.launcher().clone(), |launcher, option| {
                launcher.with(option)
            });
        let mut command = Command::new(&launcher.words()[0]);
        command
            .args(&launcher.words()[1..])
            .arg(&path)
            .args(arguments);
        Self::start(case, command, path, says)
    }

    fn start(case: Case, command: Command, path: PathBuf, says: &str) -> Self {
        let (subject, lines) = Self::spawn(case, command, path);
        if !says.is_empty() {
            let line = lines.recv_timeout(limit());
            assert!(
                line.as_deref() == Ok(says),
                "{line:?}\n{}",
                diagnosis::describe(subject.pid())
            );
        }
        subject
    }

    /// A program under `upcall run`, and the lines that it prints.
    pub fn talking(case: Case, path: PathBuf) -> (Self, Receiver<String>) {
        let mut command = Command::new(&case.launcher().words()[0]);
        command.args(&case.launcher().words()[1..]).arg(&path);
        Self::spawn(case, command, path)
    }

    fn spawn(case: Case, mut command: Command, path: PathBuf) -> (Self, Receiver<String>) {
        let directory = case.fresh("looked_at");
        command
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        // SAFETY: system calls on plain values of its own.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let mut core = std::mem::zeroed::<libc::rlimit>();
                libc::getrlimit(libc::RLIMIT_CORE, &raw mut core);
                core.rlim_cur = core.rlim_max;
                libc::setrlimit(libc::RLIMIT_CORE, &raw const core);
                Ok(())
            });
        }
        let mut child = command.spawn().expect("it can be started");
        let output = child.stdout.take().expect("a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                sender.send(line).ok();
            }
        });
        let subject = Subject {
            child,
            path,
            directory,
            case,
        };
        (subject, lines)
    }

    pub fn pid(&self) -> libc::pid_t {
        self.child.id() as libc::pid_t
    }

    /// The core file of a program that ends by `abort`. None if the kernel gives it to somebody else, or none is allowed.
    pub fn core(mut self) -> Option<(Self, PathBuf)> {
        self.child.wait().expect("a child can be waited for");
        let files = std::fs::read_dir(&self.directory).expect("the directory is there");
        let core = files
            .map(|entry| entry.expect("an entry").path())
            .find(|path| path.file_name().is_some_and(|name| name != "locked"));
        if core.is_none() {
            let why = "no core file: see /proc/sys/kernel/core_pattern, and ulimit -c";
            provision::skip(self.case.name(), why);
        }
        core.map(|core| (self, core))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            diagnosis::kill_tree(self.pid());
            self.child.wait().ok();
        }
    }
}
