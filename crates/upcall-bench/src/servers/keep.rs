//! A keeper and its server, seen from here.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::affinity::Processors;
use crate::child::{Failure, confine};
use crate::keeper::{Errand, TO_END};

/// How long a keeper may take to end, beside the time that its server has for that.
const TO_CLEAN_UP: Duration = Duration::from_secs(20);

/// A server that runs.
pub struct Kept {
    keeper: Child,
    /// The server's process: what starts it becomes it.
    pid: Option<u32>,
    /// What the keeper says; closed when it has ended.
    said: Receiver<String>,
    /// The keeper removes it; this does so if the keeper could not. Declared last: it goes after the keeper.
    _directory: TempDir,
}

impl Kept {
    /// Does the errand up to the start of the server. Each step of it has the time `timeout`.
    ///
    /// # Errors
    ///
    /// What failed, with what it said.
    pub fn start(
        workload_program: &Path,
        directory: TempDir,
        errand: &Errand,
        processors: &Processors,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        use std::os::unix::process::CommandExt;
        let failed = |error: std::io::Error| Failure::Failed(format!("the keeper: {error}"));
        let mut command = Command::new(workload_program);
        command
            .arg("keeper")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Not of the group that a terminal's Ctrl-C goes to.
            .process_group(0);
        confine(&mut command, processors);
        let mut keeper = command.spawn().map_err(failed)?;
        let (say, said) = channel();
        if let Some(output) = keeper.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                // Nobody listens any more if the server is being ended.
                lines
                    .take_while(|line| say.send(line.clone()).is_ok())
                    .last();
            });
        }
        let mut kept = Self {
            keeper,
            pid: None,
            said,
            _directory: directory,
        };
        let line = serde_json::to_string(errand).expect("texts and numbers") + "\n";
        if let Some(input) = &mut kept.keeper.stdin {
            input.write_all(line.as_bytes()).map_err(failed)?;
        }
        let steps = u32::try_from(errand.steps.len() + 1).unwrap_or(u32::MAX);
        kept.started(timeout * steps)?;
        Ok(kept)
    }

    fn started(&mut self, timeout: Duration) -> Result<(), Failure> {
        let failed = |why: String| Err(Failure::Failed(why));
        match self.said.recv_timeout(timeout) {
            Ok(line) if line.starts_with("started") => {
                self.pid = line
                    .split_whitespace()
                    .nth(1)
                    .and_then(|pid| pid.parse().ok());
                Ok(())
            }
            Ok(line) => failed(reason(&line)),
            Err(RecvTimeoutError::Timeout) => failed(format!("did not start within {timeout:?}")),
            Err(RecvTimeoutError::Disconnected) => failed("the keeper has ended".into()),
        }
    }

    /// The server's process.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Why the server does not run any more, if it does not.
    pub fn ended(&mut self) -> Option<String> {
        match self.said.try_recv() {
            Ok(line) => Some(reason(&line)),
            Err(std::sync::mpsc::TryRecvError::Empty) => None,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => Some("the keeper has ended".into()),
        }
    }
}

/// The reason in a line of the keeper, which has no line's end in it.
fn reason(line: &str) -> String {
    let reason = line.split_once(' ').map_or(line, |(_, reason)| reason);
    reason.replace('\u{b}', "\n    ")
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let until = Instant::now() + TO_END + TO_CLEAN_UP;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // The kernel kills the server with it.
                    let _ = self.keeper.kill();
                    break;
                }
            }
        }
        // Ended or killed: it cannot hang.
        let _ = self.keeper.wait();
    }
}
