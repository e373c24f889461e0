//! A running program, its collected output, and the hang guard.
//!
//! A run ends when the process has exited *and* its output pipes are closed: a child that was
//! left behind and still holds a pipe counts as a hang too.
//!
//! Rejected: `timeout(1)` in front of the program. It changes the process tree and kills without
//! having looked.

use crate::diagnosis;
use crate::program::Outcome;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a run may take before it counts as hung: `UPCALL_TEST_GUARD` seconds, 120 unless set.
pub fn limit() -> Duration {
    let seconds = std::env::var("UPCALL_TEST_GUARD").ok().map_or(120, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("UPCALL_TEST_GUARD={text}: want whole seconds"))
    });
    Duration::from_secs(seconds)
}

/// A started process. Dropping it kills what is left of its process tree.
#[derive(Debug)]
pub struct Running {
    child: Child,
    line: OsString,
    outputs: Option<Receiver<(Stream, Vec<u8>)>>,
    open_streams: usize,
    finished: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stream {
    Out,
    Err,
}

impl Running {
    /// Takes over a child whose pipes nobody reads yet, and feeds it `input`.
    pub(crate) fn new(mut child: Child, line: OsString, input: Vec<u8>) -> Self {
        if let Some(mut stdin) = child.stdin.take() {
            // A program may well end before it has read everything: not the writer's business.
            thread::spawn(move || stdin.write_all(&input));
        }
        let (sender, outputs) = channel();
        let mut open_streams = 0;
        let mut collect = |stream: Stream, mut pipe: Box<dyn Read + Send>| {
            let sender = sender.clone();
            open_streams += 1;
            thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).expect("a pipe can be read");
                // The receiver is gone once the run was given up.
                sender.send((stream, bytes)).ok();
            });
        };
        if let Some(pipe) = child.stdout.take() {
            collect(Stream::Out, Box::new(pipe));
        }
        if let Some(pipe) = child.stderr.take() {
            collect(Stream::Err, Box::new(pipe));
        }
        Running {
            child,
            line,
            outputs: Some(outputs),
            open_streams,
            finished: false,
        }
    }

    /// The process id.
    pub fn pid(&self) -> libc::pid_t {
        self.child.id() as libc::pid_t
    }

    /// Sends a signal to the process (and to it alone).
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: the child has not been waited for, so the id is still its own.
        let result = unsafe { libc::kill(self.pid(), signal) };
        assert_eq!(result, 0, "kill({}, {signal}) failed", self.pid());
    }

    /// The exit status if the process has ended already.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("a child can be waited for");
        // Waited for, its id may be another's by now.
        self.finished |= status.is_some();
        status
    }

    /// Ends a run that does not do what it should while it lives, with the state it is in.
    ///
    /// # Panics
    ///
    /// Always.
    pub fn give_up(self, why: &str) -> ! {
        let report = diagnosis::describe(self.pid());
        panic!("`{}`: {why}\n{report}", self.line.display());
    }

    /// Waits for the end of the process and of its output.
    ///
    /// # Panics
    ///
    /// When that takes longer than [`limit`], with the diagnosis of the hang.
    pub fn finish(mut self) -> Outcome {
        let deadline = Instant::now() + limit();
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let outputs = self.outputs.take().expect("a run is finished once");
        let mut hung_on = None;
        for _ in 0..self.open_streams {
            match outputs.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((Stream::Out, bytes)) => stdout = bytes,
                Ok((Stream::Err, bytes)) => stderr = bytes,
                Err(RecvTimeoutError::Timeout) => {
                    let ended = ends_by(self.pid(), deadline);
                    hung_on = Some(if ended {
                        "its output is still open"
                    } else {
                        "it runs"
                    });
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => panic!("a reader of output died"),
            }
        }
        if hung_on.is_none() && !ends_by(self.pid(), deadline) {
            hung_on = Some("it runs");
        }
        if let Some(why) = hung_on {
            let report = diagnosis::describe(self.pid());
            let line = self.line.display();
            let limit = limit().as_secs();
            diagnosis::kill_tree(self.pid());
            // Killed, the readers see the end: what was printed until now is evidence.
            while let Ok((stream, bytes)) = outputs.recv_timeout(Duration::from_secs(5)) {
                match stream {
                    Stream::Out => stdout = bytes,
                    Stream::Err => stderr = bytes,
                }
            }
            panic!(
                "`{line}` hung: after {limit} s {why}\n--- stdout\n{}\n--- stderr\n{}\n{report}",
                String::from_utf8_lossy(&stdout),
                String::from_utf8_lossy(&stderr),
            );
        }
        let status = self.child.wait().expect("a child can be waited for");
        self.finished = true;
        Outcome {
            stdout,
            stderr,
            status,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.finished {
            diagnosis::kill_tree(self.pid());
            self.child.wait().ok();
        }
    }
}

/// Waits until the process is a zombie or the deadline has passed, without reaping it.
fn ends_by(pid: libc::pid_t, deadline: Instant) -> bool {
    // SAFETY: a system call on plain values; the descriptor is closed below.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as libc::c_int;
    assert!(
        fd >= 0,
        "pidfd_open({pid}): {}",
        std::io::Error::last_os_error()
    );
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let ended = loop {
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_millis();
        // SAFETY: `poll` is one valid pollfd.
        match unsafe { libc::poll(&mut poll, 1, left as libc::c_int) } {
            0 => break false,
            1 => break true,
            _ => continue,
        }
    };
    // SAFETY: the descriptor was opened above and nobody else has it.
    unsafe { libc::close(fd) };
    ended
}
