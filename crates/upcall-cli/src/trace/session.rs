//! Reads what programs note, from a start, an attachment or what they have left, until there is no more.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use upcall_linux::preempt;

use super::pace::Pace;
use super::rings::{Process, files};
use super::space::About;
use super::spool::{Sorted, Spool};
use super::{MORE, places};
use crate::live::{Answer, Asked};
use crate::refusal::Refusal;
use crate::stacks::user_of;
use crate::status::EXIT_OURS;

/// How often it is looked whether a program answers, or has ended.
const EVERY: Duration = Duration::from_millis(5);
/// How often new files are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(40);
/// How often a process that is asked is told so: its kernel threads come and go.
const TELL_EVERY: u32 = 20;
/// After so many looks the user is told why nothing happens.
const PATIENCE: u32 = 200;

/// How many signals have come that end a session, and the last of them.
static SIGNALS: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);
/// The first was passed on.
static PASSED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_signal(signal: libc::c_int) {
    LAST.store(signal, Ordering::Relaxed);
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// What is read, and from whom.
pub struct Session {
    spool: Option<Spool>,
    pub processes: Vec<Process>,
    /// What was read could not be kept.
    pub trouble: Option<io::Error>,
    known: Vec<PathBuf>,
    /// When nothing was read any more of programs that may go on.
    ended_ns: Option<u64>,
    /// The program that was started, until it is left alone.
    child: Option<Child>,
    /// Its exit status, once it has ended.
    status: i32,
    scratch: Option<Scratch>,
    is_of_a_start: bool,
}

/// A directory that is removed with what is in it. While it is used it is locked: one of a command that was killed is removed by
/// the next.
struct Scratch {
    path: PathBuf,
    _lock: Option<File>,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// What the names of such directories begin with. The number of the process follows.
pub const SCRATCH: &str = "upcall-trace-";

/// Removes the directories of commands that were killed.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(SCRATCH));
        let is_gone = |pid: &str| !fs::exists(format!("/proc/{pid}")).unwrap_or(true);
        let is_left = pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && is_gone(pid));
        // In another container it has another number.
        if is_left && lock(&entry.path()).is_some() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Locks a directory until the file is closed. None: it cannot be, or is another's.
fn lock(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
    let file = options.open(path).ok()?;
    file.try_lock().ok().map(|()| file)
}

impl Scratch {
    fn new() -> Result<Self, Refusal> {
        // SAFETY: asks only.
        let own = unsafe { libc::geteuid() };
        Self::for_user(own, usize::MAX)
    }

    /// For a process that is asked.
    fn of(pid: u32) -> Result<Self, Refusal> {
        // One that has just ended does not look for it.
        let user = user_of(pid as i32).unwrap_or(0);
        Self::for_user(user, Asked::LONGEST)
    }

    /// For this user, and with a name of so many bytes at most.
    fn for_user(user: u32, longest: usize) -> Result<Self, Refusal> {
        let mut last = None;
        for place in places(user) {
            sweep(&place);
            let path = place.join(format!("{SCRATCH}{}", std::process::id()));
            if path.as_os_str().len() > longest {
                continue;
            }
            let made = fs::DirBuilder::new().mode(0o700).create(&path);
            match made.and_then(|()| chown(&path, Some(user), None)) {
                Ok(()) => {
                    let _lock = lock(&path);
                    return Ok(Scratch { path, _lock });
                }
                Err(error) => last = Some((path, error)),
            }
        }
        let checked = last.map_or(String::new(), |(path, error)| {
            format!("{}: {error}", path.display())
        });
        Err(Refusal {
            what: "there is no directory for what the program notes".into(),
            checked,
            remedy: "set TMPDIR to a directory that you may write to".into(),
            more: MORE,
        })
    }
}

impl Session {
    pub fn new(spool: Spool) -> Self {
        Session {
            spool: Some(spool),
            processes: Vec::new(),
            trouble: None,
            known: Vec::new(),
            ended_ns: None,
            child: None,
            status: 0,
            scratch: None,
            is_of_a_start: false,
        }
    }

    /// Runs a program to its end, or until the time is over.
    pub fn start(&mut self, command: &[OsString], limit: Option<Duration>) -> Result<(), Refusal> {
        let scratch = Scratch::new()?;
        catch_signals();
        let child = Command::new("/proc/self/exe")
            .args(["run", "--"])
            .args(command)
            .env("UPCALL_TRACE", &scratch.path)
            .spawn()
            .map_err(|error| Refusal {
                what: "cannot start the program".into(),
                checked: error.to_string(),
                remedy: "upcall run -- PROGRAM".into(),
                more: MORE,
            })?;
        self.child = Some(child);
        self.is_of_a_start = true;
        let end = limit.map(|limit| Instant::now() + limit);
        let is_over = || end.is_some_and(|end| Instant::now() >= end);
        let mut pace = Pace::begin();
        let mut looked = None;
        while self.goes_on() && !is_over() && self.trouble.is_none() {
            if looked.is_none_or(|at: Instant| at.elapsed() >= LOOK_EVERY) {
                self.look(&scratch.path);
                looked = Some(Instant::now());
            }
            sleep(pace.next(self.drain(false)));
        }
        self.look(&scratch.path);
        for process in &self.processes {
            process.stop();
        }
        self.drain(true);
        self.ended_ns = Some(now());
        self.scratch = Some(scratch);
        Ok(())
    }

    /// Waits until the program that was started has ended, unless it is left alone: its exit status.
    pub fn wait(&mut self) -> i32 {
        while self.goes_on() {
            sleep(EVERY);
        }
        self.status
    }

    /// Returns true if the program goes on and is not left alone. Passes signals on.
    fn goes_on(&mut self) -> bool {
        let Some(child) = &mut self.child else {
            return false;
        };
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => {
                self.status = number(status);
                self.child = None;
                return false;
            }
            Err(_) => return false,
        }
        let signals = SIGNALS.load(Ordering::Relaxed);
        let last = LAST.load(Ordering::Relaxed);
        if signals == 1 && last != libc::SIGINT && !PASSED.swap(true, Ordering::Relaxed) {
            // The terminal sends SIGINT to both.
            // SAFETY: sends a signal to a child that was not waited for.
            unsafe { libc::kill(child.id() as i32, last) };
        }
        if signals > 1 {
            eprintln!("upcall: the program goes on, and is not traced any more");
            self.status = 128 + last;
            self.child = None;
            return false;
        }
        true
    }

    /// Reads what a program notes that runs already. One that notes nothing is asked to.
    pub fn attach(&mut self, pid: u32, limit: Option<Duration>) -> Result<(), Refusal> {
        catch_signals();
        let end = limit.map(|limit| Instant::now() + limit);
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let is_over = || {
            end.is_some_and(|end| Instant::now() >= end)
                || SIGNALS.load(Ordering::Relaxed) != 0
                || !folder.exists()
        };
        let found = noted_by(pid)?;
        let is_asked = found.as_ref().is_none_or(Process::is_stopped);
        let process = if is_asked {
            let scratch = ask(pid, found, is_over)?;
            scratch.map(|(scratch, process)| {
                self.scratch = Some(scratch);
                process
            })
        } else {
            found
        };
        self.processes.extend(process);
        let mut pace = Pace::begin();
        while !is_over() && self.trouble.is_none() {
            sleep(pace.next(self.drain(false)));
        }
        for process in self.processes.iter().filter(|_| is_asked) {
            process.stop();
        }
        self.drain(true);
        self.ended_ns = Some(now());
        Ok(())
    }

    /// Reads what programs have left in a directory. Files that cannot be read, or are cut off, are named.
    pub fn read(&mut self, directory: &Path) -> Result<(), Refusal> {
        let nothing = |checked: String| Refusal {
            what: format!("{} has no events", directory.display()),
            checked,
            remedy: "name the directory that was in UPCALL_TRACE".into(),
            more: MORE,
        };
        for path in files(directory).map_err(|error| nothing(error.to_string()))? {
            match Process::open(&path, self.processes.len() as u32) {
                Ok(process) => self.processes.push(process),
                Err(error) => {
                    let why = match error.kind() {
                        io::ErrorKind::InvalidData => {
                            "it is no file of events of this version".into()
                        }
                        _ => error.to_string(),
                    };
                    eprintln!("upcall: {} is passed over: {why}", path.display());
                }
            }
        }
        self.drain(true);
        for process in &self.processes {
            let (there, made) = (process.nr_rings(), process.nr_rings_made());
            if there < made {
                eprintln!(
                    "upcall: the file of process {} is cut off: the events of {there} of {made} activations are there",
                    process.pid
                );
            }
        }
        let is_empty = self.spool.as_ref().is_none_or(|spool| spool.len() == 0);
        if is_empty && self.trouble.is_none() {
            return Err(nothing(
                "the files that programs make there which have UPCALL_TRACE".into(),
            ));
        }
        Ok(())
    }

    fn look(&mut self, directory: &Path) {
        for path in files(directory).unwrap_or_default() {
            if self.known.contains(&path) {
                continue;
            }
            match Process::open(&path, self.processes.len() as u32) {
                Ok(process) => self.processes.push(process),
                // It is being made.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
                Err(_) => {}
            }
            self.known.push(path);
        }
    }

    /// Returns how many events were new in the ring that had most.
    fn drain(&mut self, last: bool) -> u64 {
        let Some(spool) = self.spool.as_mut().filter(|_| self.trouble.is_none()) else {
            return 0;
        };
        let mut most = 0;
        let mut drain = || -> io::Result<()> {
            for process in &mut self.processes {
                most = process.drain(spool, last)?.max(most);
            }
            if last { spool.flush() } else { Ok(()) }
        };
        if let Err(error) = drain() {
            self.trouble = Some(error);
        }
        most
    }

    /// All that was read, in order, and how much that is; once.
    pub fn events(&mut self) -> io::Result<(Sorted, usize)> {
        let spool = self.spool.take().ok_or(io::ErrorKind::NotFound)?;
        let count = spool.len();
        Ok((spool.sorted()?, count))
    }

    /// Returns true if a program was started, and did not run before.
    pub fn is_of_a_start(&self) -> bool {
        self.is_of_a_start
    }

    /// Returns true if the program that was started goes on, for all that is known.
    pub fn is_waited_for(&self) -> bool {
        self.child.is_some()
    }

    /// Returns true if `upcall run` could not start the program, and has said why.
    pub fn is_of_no_start(&self) -> bool {
        self.is_of_a_start && self.child.is_none() && (EXIT_OURS..=127).contains(&self.status)
    }

    /// What is known of the processes.
    pub fn about(&self, trouble: Option<&io::Error>) -> Vec<About> {
        let lives = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
        let about = |process: &Process| About {
            pid: process.pid,
            name: process.name.clone(),
            began_ns: process.began_ns,
            ended_ns: self.ended_ns.filter(|_| lives(process.pid)),
            remark: trouble.map(ToString::to_string),
        };
        self.processes.iter().map(about).collect()
    }
}

/// The file of events that a process has open.
fn noted_by(pid: u32) -> Result<Option<Process>, Refusal> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries = fs::read_dir(&folder).map_err(|error| Refusal {
        what: format!("cannot look at process {pid}"),
        checked: format!("{}: {error}", folder.display()),
        remedy: "name a running process of yours".into(),
        more: MORE,
    })?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut ours = paths.filter(|path| fs::read_link(path).is_ok_and(|to| is_name(&to, pid)));
    Ok(ours.find_map(|path| Process::open(&path, 0).ok()))
}

/// Asks a process to note what happens, and waits until it does: one whose threads all wait does not look before one of
/// them goes on. `stopped`: it did so before. `None`: it was over first.
fn ask(
    pid: u32,
    mut stopped: Option<Process>,
    is_over: impl Fn() -> bool,
) -> Result<Option<(Scratch, Process)>, Refusal> {
    let refuse = |checked: String, remedy: &str| Refusal {
        what: format!("process {pid} cannot be asked for a timeline"),
        checked,
        remedy: remedy.into(),
        more: MORE,
    };
    let start_it = "start it by upcall trace -- PROGRAM";
    let found = Asked::find(pid as i32).map_err(|error| refuse(error.to_string(), start_it))?;
    let Some(asked) = found else {
        let checked = "it has no counters that you may write to: it is not under this version of Upcall, has had one \
                       thread only, runs under a filter (seccomp), or is another user's";
        return Err(refuse(checked.into(), start_it));
    };
    let scratch = Scratch::of(pid)?;
    if let Some(process) = &mut stopped {
        process.skip(now());
    }
    asked.ask(&scratch.path);
    for round in 0_u32.. {
        match asked.answer() {
            Answer::Noted => break,
            Answer::Refused(number) => {
                let error = io::Error::from_raw_os_error(number);
                let checked = format!("its file in {}: {error}", scratch.path.display());
                return Err(refuse(checked, start_it));
            }
            Answer::None if is_over() => {
                asked.take_back();
                return Ok(None);
            }
            Answer::None => {}
        }
        if round.is_multiple_of(TELL_EVERY) {
            tell(pid);
        }
        if round == PATIENCE {
            eprintln!(
                "upcall: process {pid} will answer when one of its threads goes on; all of them wait"
            );
        }
        sleep(EVERY);
    }
    let process = stopped.map_or_else(|| noted_by(pid), |process| Ok(Some(process)))?;
    let process = process.ok_or_else(|| {
        refuse(
            "it says that it has a file of events open, and has none".into(),
            start_it,
        )
    })?;
    Ok(Some((scratch, process)))
}

/// Has each kernel thread of a process look. One that has ended need not.
fn tell(pid: u32) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        if let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) {
            let _ = preempt::ask(pid as i32, tid);
        }
    }
}

/// Returns true if a path has the name of a file of events of this process.
fn is_name(path: &Path, pid: u32) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(&format!("{pid}.")))
}

fn now() -> u64 {
    upcall_linux::clock(libc::CLOCK_MONOTONIC)
}

/// As shells say it.
fn number(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores to atomics only.
        unsafe { libc::signal(signal, note_signal as *const () as libc::sighandler_t) };
    }
}
