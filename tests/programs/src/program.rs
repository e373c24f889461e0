//! A program to run: its command line, environment, standard input, and where its output goes.

use crate::guard::Running;
use crate::launcher::Launcher;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Standard input of a run.
#[derive(Clone, Debug, Default)]
pub enum Input {
    /// `/dev/null`.
    #[default]
    Empty,
    /// A pipe that delivers these bytes and then ends.
    Bytes(Vec<u8>),
    /// Descriptor 0 is not open at all.
    Closed,
}

/// Standard output of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Output {
    /// A pipe whose bytes are collected.
    #[default]
    Collected,
    /// A pipe whose reading end is closed before the program starts.
    Broken,
}

/// A program and everything that its runs share.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    ignored: Vec<libc::c_int>,
    input: Input,
    output: Output,
}

/// What a finished run left behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bytes on standard output.
    pub stdout: Vec<u8>,
    /// Bytes on standard error.
    pub stderr: Vec<u8>,
    /// How the process ended.
    pub status: ExitStatus,
}

impl Outcome {
    /// The ending as a shell would tell it, without the core-dump flag.
    pub fn ending(&self) -> String {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (_, Some(signal)) => format!("killed by signal {signal}"),
            _ => format!("{}", self.status),
        }
    }

    /// A number that `--stats` printed.
    ///
    /// # Panics
    ///
    /// When there is none of that name.
    pub fn counted(&self, what: &str) -> u64 {
        let text = String::from_utf8_lossy(&self.stderr);
        text.lines()
            .find_map(|line| line.strip_prefix("upcall: ")?.strip_prefix(what))
            .and_then(|rest| rest.trim().parse().ok())
            .unwrap_or_else(|| panic!("no \"{what}\" in:\n{text}"))
    }

    /// Standard output and error, shortened, for a failure's report.
    pub fn talk(&self) -> String {
        let part = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let mut shown: String = text.chars().take(4000).collect();
            if shown.len() < text.len() {
                shown.push_str("\n[shortened]");
            }
            shown
        };
        format!(
            "--- stdout\n{}\n--- stderr\n{}",
            part(&self.stdout),
            part(&self.stderr)
        )
    }
}

impl Program {
    /// A program by path, without arguments, with an empty standard input.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Program {
            path: path.into(),
            args: Vec::new(),
            env: Vec::new(),
            ignored: Vec::new(),
            input: Input::default(),
            output: Output::default(),
        }
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets standard input.
    pub fn input(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    /// Sets where standard output goes.
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Starts the program with this signal ignored, as `nohup` does.
    pub fn ignoring(mut self, signal: libc::c_int) -> Self {
        self.ignored.push(signal);
        self
    }

    /// The program's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts the program in `dir`, natively or behind `launcher`.
    ///
    /// # Panics
    ///
    /// When the process cannot be started.
    pub fn start(&self, dir: &Path, launcher: Option<&Launcher>) -> Running {
        let prefix = launcher.map(Launcher::words).unwrap_or_default();
        let mut words: Vec<&OsStr> = prefix.iter().map(OsString::as_os_str).collect();
        words.push(self.path.as_os_str());
        words.extend(self.args.iter().map(OsString::as_os_str));
        let line = words.join(OsStr::new(" "));

        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(dir).process_group(0);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(match self.input {
            Input::Bytes(_) => Stdio::piped(),
            _ => Stdio::null(),
        });
        command.stderr(Stdio::piped());
        match self.output {
            Output::Collected => command.stdout(Stdio::piped()),
            Output::Broken => {
                let (reader, writer) = io::pipe().expect("a pipe can be made");
                drop(reader);
                command.stdout(writer)
            }
        };
        let closed = matches!(self.input, Input::Closed);
        let ignored = self.ignored.clone();
        // SAFETY: between fork and exec the closure only makes async-signal-safe calls on
        // values that it owns.
        unsafe { command.pre_exec(move || prepare(closed, &ignored)) };
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start `{}`: {error}", line.display()));
        let bytes = match &self.input {
            Input::Bytes(bytes) => bytes.clone(),
            _ => Vec::new(),
        };
        Running::new(child, line, bytes)
    }

    /// Runs the program to its end.
    ///
    /// # Panics
    ///
    /// When the process cannot be started or hangs.
    pub fn run(&self, dir: &Path, launcher: Option<&Launcher>) -> Outcome {
        self.start(dir, launcher).finish()
    }
}

/// Runs in the child: no core files, death with the test, the wanted descriptors and signals.
fn prepare(closed: bool, ignored: &[libc::c_int]) -> io::Result<()> {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: system calls on plain values.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // What ignores signals above the test (a shell that runs it in the background, nohup)
        // must not decide how the program dies.
        for signal in 1..=libc::SIGSYS {
            libc::signal(signal, libc::SIG_DFL);
        }
        for &signal in ignored {
            libc::signal(signal, libc::SIG_IGN);
        }
        // Cargo and test runners leak descriptors; a program that looks at numbers must see none.
        // Marked and not closed, since std's own error pipe is among them.
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        if closed {
            libc::close(io::stdin().as_raw_fd());
        }
    }
    Ok(())
}
