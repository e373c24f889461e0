//! One program under test, from its start to its figures.
//!
//! Every program gets its processors, a process group of its own and a deadline; when the deadline
//! passes, that group is killed by its number. Its standard error is kept and its end quoted if it
//! fails. The deadline is a poll on the program's pipes and then on its pidfd: no signal, no
//! thread that waits, and a program that closes its output but does not end is caught as well.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::affinity::Processors;
use crate::workload::SKIP;

/// What a program reported: its figures by series.
pub type Figures = BTreeMap<String, Vec<f64>>;

/// Why a program gave no figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The machine cannot run it; this is the program's reason.
    Skipped(String),
    /// It failed, hung, or said something that is no report.
    Failed(String),
}

/// A program that runs.
pub struct Running {
    child: Child,
    deadline: Instant,
    timeout: Duration,
}

/// Starts `command` on `processors`, to end within `timeout`.
pub fn start(
    command: Command,
    stdin: Stdio,
    processors: &Processors,
    timeout: Duration,
) -> Result<Running, Failure> {
    start_with([stdin, Stdio::piped()], command, processors, timeout)
}

/// The same with other standard input and output.
pub fn start_with(
    [stdin, stdout]: [Stdio; 2],
    mut command: Command,
    processors: &Processors,
    timeout: Duration,
) -> Result<Running, Failure> {
    command
        .stdin(stdin)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .process_group(0);
    confine(&mut command, processors);
    let child = command.spawn().map_err(|error| {
        Failure::Failed(format!(
            "{}: {error}",
            command.get_program().to_string_lossy()
        ))
    })?;
    Ok(Running {
        child,
        deadline: Instant::now() + timeout,
        timeout,
    })
}

/// Lets the program that `command` starts run on `processors` only.
pub fn confine(command: &mut Command, processors: &Processors) {
    let set = processors.set();
    // SAFETY: between fork and exec this makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(
            move || match libc::sched_setaffinity(0, size_of_val(&set), &set) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
}

impl Running {
    /// Waits for the program's end and reads its report.
    pub fn finish(self) -> Result<Figures, Failure> {
        let (status, [stdout, stderr]) = self.end()?;
        report(status, &stdout, &stderr)
    }

    /// Waits for the end of a program that makes no report. Returns what it said on standard output.
    pub fn output(self) -> Result<String, Failure> {
        let (status, [stdout, stderr]) = self.end()?;
        match status.success() {
            true => Ok(stdout),
            false => Err(Failure::Failed(with_tail(&status.to_string(), &stderr))),
        }
    }

    /// Sends SIGINT to the program.
    pub fn interrupt(&self) {
        // SAFETY: no pointers; the child has not been waited for, so its number is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) };
    }

    /// Waits for the program's end. Returns what it said on standard output and standard error.
    fn end(mut self) -> Result<(ExitStatus, [String; 2]), Failure> {
        let mut said = [Vec::new(), Vec::new()];
        let in_time = self.read_output(&mut said) && self.wait_for_end();
        let [stdout, stderr] = said.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if !in_time {
            let what = format!("did not end within {:?}", self.timeout);
            // Dropping kills what is left.
            return Err(Failure::Failed(with_tail(&what, &stderr)));
        }
        let status = self.child.wait();
        let status = status.map_err(|error| Failure::Failed(format!("wait: {error}")))?;
        Ok((status, [stdout, stderr]))
    }

    /// Reads both pipes to their end; false if the deadline came first.
    fn read_output(&mut self, said: &mut [Vec<u8>; 2]) -> bool {
        let stdout = self
            .child
            .stdout
            .take()
            .map(|pipe| File::from(OwnedFd::from(pipe)));
        let stderr = self
            .child
            .stderr
            .take()
            .map(|pipe| File::from(OwnedFd::from(pipe)));
        let mut pipes = [stdout, stderr];
        let mut buffer = [0u8; 16384];
        while pipes.iter().any(Option::is_some) {
            let fds = pipes
                .each_ref()
                .map(|pipe| pipe.as_ref().map_or(-1, |p| p.as_raw_fd()));
            let Some(ready) = poll(fds, self.deadline) else {
                return false;
            };
            for ((pipe, ready), said) in pipes.iter_mut().zip(ready).zip(said.iter_mut()) {
                let Some(file) = pipe.as_mut().filter(|_| ready) else {
                    continue;
                };
                match file.read(&mut buffer) {
                    Ok(0) | Err(_) => *pipe = None,
                    Ok(length) => said.extend_from_slice(&buffer[..length]),
                }
            }
        }
        true
    }

    /// Waits until the program has ended; false if the deadline came first.
    fn wait_for_end(&self) -> bool {
        // SAFETY: no pointers; the child has not been waited for, so its number is still its own.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.child.id(), 0) };
        if fd < 0 {
            // Before Linux 5.3: a program that closes its output and hangs is then waited for.
            return true;
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        poll([fd.as_raw_fd(), -1], self.deadline).is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // SAFETY: no pointers. The child is not reaped, so the group is still its own.
            unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
            // Killed: it cannot hang. An error would mean that it is gone already.
            let _ = self.child.wait();
        }
    }
}

/// Which of two descriptors (-1: none) have something to say; none at the deadline.
fn poll(fds: [RawFd; 2], deadline: Instant) -> Option<[bool; 2]> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut polled = fds.map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let wait = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
        // SAFETY: two structures, for the duration of the call.
        let got = unsafe { libc::poll(polled.as_mut_ptr(), 2, wait) };
        if got > 0 {
            return Some(polled.map(|one| one.revents != 0));
        }
        if left.is_zero() {
            return None;
        }
    }
}

fn report(status: ExitStatus, stdout: &str, stderr: &str) -> Result<Figures, Failure> {
    if status.code() == Some(i32::from(SKIP)) {
        return Err(Failure::Skipped(stderr.trim().to_owned()));
    }
    if !status.success() {
        return Err(Failure::Failed(with_tail(&status.to_string(), stderr)));
    }
    parse(stdout).map_err(|what| Failure::Failed(with_tail(&what, stderr)))
}

fn parse(stdout: &str) -> Result<Figures, String> {
    let mut figures = Figures::new();
    let mut lines = stdout.lines();
    for line in lines.by_ref() {
        if line == "done" {
            break;
        }
        let number = line.split_once(' ').and_then(|(series, value)| {
            let value = value.parse::<f64>().ok().filter(|value| value.is_finite());
            value.map(|value| (series, value))
        });
        let (series, value) = number.ok_or_else(|| format!("is no figure: {line:?}"))?;
        figures.entry(series.to_owned()).or_default().push(value);
    }
    match (stdout.lines().last(), lines.next()) {
        (Some("done"), None) => Ok(figures),
        _ => Err("ended without its last line, `done`".into()),
    }
}

/// `what`, with the last lines of what the program said.
fn with_tail(what: &str, stderr: &str) -> String {
    let lines: Vec<_> = stderr.lines().collect();
    let tail = lines[lines.len().saturating_sub(5)..].join("\n    ");
    if tail.is_empty() {
        what.to_owned()
    } else {
        format!("{what}; it said:\n    {tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, timeout: Duration) -> Result<Figures, Failure> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let processors = Processors::allowed().unwrap();
        start(command, Stdio::null(), &processors, timeout)?.finish()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn figures_are_read_by_series() {
        let figures = run("echo ns 1.5; echo cpu 2; echo ns 3; echo done", LONG).unwrap();
        assert_eq!(figures["ns"], [1.5, 3.0]);
        assert_eq!(figures["cpu"], [2.0]);
    }

    #[test]
    fn a_truncated_report_is_a_failure() {
        for script in [
            "echo ns 1",
            "echo ns x; echo done",
            "echo done; echo ns 1",
            "true",
        ] {
            assert!(
                matches!(run(script, LONG), Err(Failure::Failed(_))),
                "{script}"
            );
        }
    }

    #[test]
    fn status_and_words_of_a_failed_program_are_kept() {
        let Err(Failure::Failed(text)) = run("echo why >&2; exit 3", LONG) else {
            panic!("not a failure");
        };
        assert!(text.contains('3') && text.contains("why"), "{text}");
        let Err(Failure::Failed(text)) = run("kill -SEGV $$", LONG) else {
            panic!("not a failure");
        };
        assert!(text.contains("11"), "{text}");
    }

    #[test]
    fn a_program_may_decline() {
        let declined = run("echo no disk >&2; exit 77", LONG);
        assert_eq!(declined, Err(Failure::Skipped("no disk".into())));
    }

    #[test]
    fn a_hanging_program_is_killed_even_if_it_closed_its_output() {
        for script in ["sleep 1000", "exec >&- 2>&-; sleep 1000"] {
            let Err(Failure::Failed(text)) = run(script, Duration::from_millis(50)) else {
                panic!("not a failure");
            };
            assert!(text.contains("did not end within 50ms"), "{text}");
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        let processors = Processors::allowed().unwrap();
        let command = Command::new("/no/such/program");
        let Err(Failure::Failed(text)) = start(command, Stdio::null(), &processors, LONG).map(drop)
        else {
            panic!("not a failure");
        };
        assert!(text.contains("/no/such/program"), "{text}");
    }
}
