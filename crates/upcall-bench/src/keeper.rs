//! `keeper`: the process that keeps a server for the harness, and ends it however the harness ends.
//!
//! 1. The first line of its standard input is an [`Errand`], as JSON. After that nothing comes: the end of the file is the
//!    harness's wish to end the server, or its death, by Ctrl-C or otherwise.
//! 2. It runs the errand's steps, one after the other, then the server. It says `started` and its process when that runs, and `failed`
//!    with the reason if a step fails or the server ends unasked.
//! 3. At the end it asks the server to end, kills it if it does not, kills what the server has left, and removes the
//!    directory.
//!
//! It is a subreaper, so what the server starts becomes its child at the latest when the server is gone. If it is killed
//! itself, the kernel kills the server.
//!
//! Handlers of signals in the harness were not taken: SIGKILL has none, and every program that the harness starts would
//! have to undo them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::workload::{Failure, Figures, Params};

/// How long a server may take to end before it is killed.
pub const TO_END: Duration = Duration::from_secs(10);
/// How much of the log is quoted, in bytes.
const QUOTED: u64 = 1000;

/// What a keeper has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// Removed at the end. All programs run in `data` in it, and `log` in it has what they say.
    pub directory: String,
    /// The user and the group as which all programs run, if these are not the caller's.
    pub user: Option<(u32, u32)>,
    /// Commands that end, before the server starts.
    pub steps: Vec<Vec<String>>,
    /// The command of the server.
    pub server: Vec<String>,
    /// The signal that asks the server to end.
    pub stop: i32,
}

/// Keeps the server of the errand on standard input.
///
/// # Errors
///
/// There is no errand, or the directory cannot be removed.
pub fn run(_params: &Params) -> Result<Figures, Failure> {
    let mut line = String::new();
    let failed = |error: io::Error| Failure::Failed(format!("the errand: {error}"));
    io::stdin().lock().read_line(&mut line).map_err(failed)?;
    let errand: Errand = serde_json::from_str(&line)
        .map_err(|error| Failure::Usage(format!("standard input is no errand: {error}")))?;
    // SAFETY: no pointers.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } != 0 {
        return Err(Failure::errno("prctl(PR_SET_CHILD_SUBREAPER)"));
    }
    if let Err(why) = keep(&errand) {
        let log = quoted(&errand.directory);
        say("failed", &format!("{why}{log}"));
    }
    end_all();
    match std::fs::remove_dir_all(&errand.directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::Failed(format!(
            "removing {}: {error}",
            errand.directory
        ))),
        _ => Ok(Figures::default()),
    }
}

/// Runs the steps and the server until the harness has enough.
fn keep(errand: &Errand) -> Result<(), String> {
    for step in &errand.steps {
        let mut program = start(errand, step)?;
        let ended = ended(&mut program, None)?;
        match ended {
            None => return Ok(()),
            Some(status) if status.success() => {}
            Some(status) => return Err(format!("{}: {status}", step[0])),
        }
    }
    let mut server = start(errand, &errand.server)?;
    say("started", &server.id().to_string());
    if let Some(status) = ended(&mut server, None)? {
        return Err(format!("{} has ended: {status}", name(&errand.server)));
    }
    // SAFETY: no pointers; the server has not been waited for, so its number is still its own.
    unsafe { libc::kill(server.id() as libc::pid_t, errand.stop) };
    ended(&mut server, Some(Instant::now() + TO_END)).map(drop)
}

/// The program that a command is about: what stands behind `--`, if that is there.
fn name(command: &[String]) -> String {
    let after = command.iter().position(|word| word == "--");
    let at = after.map_or(0, |at| at + 1);
    command.get(at).cloned().unwrap_or_default()
}

fn start(errand: &Errand, words: &[String]) -> Result<Child, String> {
    let directory = Path::new(&errand.directory);
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(directory.join("log"))
        .map_err(|error| format!("{}/log: {error}", errand.directory))?;
    let other = log
        .try_clone()
        .map_err(|error| format!("duplicating a descriptor: {error}"))?;
    let (first, rest) = words.split_first().ok_or("there is no command")?;
    let mut command = Command::new(first);
    command
        .args(rest)
        .current_dir(directory.join("data"))
        .env("TMPDIR", directory.join("data"))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(other)
        .process_group(0);
    if let Some((user, group)) = errand.user {
        command.uid(user).gid(group);
    }
    // SAFETY: between fork and exec this makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
    command.spawn().map_err(|error| match errand.user {
        Some((user, _)) => format!("{first}, as the user with the number {user}: {error}"),
        None => format!("{first}: {error}"),
    })
}

/// Waits for the end of `program`; none if standard input ended first, or, if there is one, at the deadline.
fn ended(program: &mut Child, deadline: Option<Instant>) -> Result<Option<ExitStatus>, String> {
    // SAFETY: no pointers; the child has not been waited for, so its number is still its own.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, program.id(), 0) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(format!("pidfd_open, which Linux 5.3 brought: {error}"));
    }
    // SAFETY: a new descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    let input = if deadline.is_some() {
        -1
    } else {
        io::stdin().as_raw_fd()
    };
    loop {
        let mut polled = [fd.as_raw_fd(), input].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = left.map_or(-1, |left| left.as_millis() as i32 + 1);
        // SAFETY: two structures, for the duration of the call.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, wait) };
        if polled[0].revents != 0 {
            let status = program.wait();
            return status.map(Some).map_err(|error| format!("wait: {error}"));
        }
        if polled[1].revents != 0 || left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
    }
}

/// Kills and reaps all children: the program that has not ended, and what has become a child because its parent is gone.
fn end_all() {
    // SAFETY: asks only.
    let this = unsafe { libc::getpid() };
    loop {
        // A kernel without this file has no such list: then the kernel kills the first child at this process's end.
        let path = format!("/proc/{this}/task/{this}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        let mut any = false;
        for child in children.split_whitespace() {
            if let Ok(child) = child.parse::<libc::pid_t>() {
                any = true;
                // SAFETY: no pointers; a child that has not been waited for keeps its number.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
        }
        // SAFETY: the status is not asked for. Each child has been killed, so the wait ends.
        if !any || unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } < 0 {
            return;
        }
    }
}

/// Says a word and its reason on a line of standard output. If nobody listens, the harness is gone.
fn say(word: &str, reason: &str) {
    let reason = reason.trim_end().replace('\n', "\u{b}");
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{word} {reason}").and_then(|()| out.flush());
}

/// The end of the log.
fn quoted(directory: &str) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut log = File::open(Path::new(directory).join("log"))?;
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(QUOTED)))?;
        let mut end = Vec::new();
        log.read_to_end(&mut end)?;
        Ok(end)
    };
    match read() {
        Ok(end) if !end.is_empty() => format!("; it said:\n{}", String::from_utf8_lossy(&end)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_named_and_not_what_starts_it() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            name(&words("/bin/upcall run -p 2 -- /sbin/nginx -c conf")),
            "/sbin/nginx"
        );
        assert_eq!(name(&words("/sbin/nginx -c conf")), "/sbin/nginx");
    }
}
