//! Features of files: reading in which call a thread waits, reading a pipe without waiting, polling.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

use super::{Finding, os_error};

/// Reads the system call that another thread of this process waits in.
#[must_use]
pub(crate) fn proc_syscall() -> Finding {
    const NAME: &str = "proc-syscall";
    let remedy = "mount /proc with access to one's own threads, on a kernel built with \
                  CONFIG_HAVE_ARCH_TRACEHOOK (all x86-64 kernels of the distributions are)";
    match waits_in_read() {
        Ok(text) => Finding::works(
            NAME,
            format!("a thread that waits in a read is shown as \"{text}\""),
        ),
        Err(why) => Finding::fails(NAME, why, remedy),
    }
}

/// Starts a thread that reads an empty pipe and returns the start of its `syscall` file once
/// that says so.
fn waits_in_read() -> Result<String, String> {
    let (mut wait_end, mut release_end) =
        std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
    let (tell, told) = std::sync::mpsc::channel();
    let waiter = std::thread::Builder::new()
        .stack_size(64 * 1024)
        .spawn(move || {
            // SAFETY: asks for this thread's own number.
            let tid = unsafe { libc::syscall(libc::SYS_gettid) };
            let _ = tell.send(tid);
            let _ = wait_end.read(&mut [0]);
        })
        .map_err(|error| format!("no thread for the probe: {error}"))?;
    let shown = told
        .recv()
        .map_err(|error| error.to_string())
        .and_then(shows_read);
    // The waiter ends when its pipe has a byte, or has no writer any more.
    let _ = release_end.write_all(&[0]);
    drop(release_end);
    let _ = waiter.join();
    shown
}

fn shows_read(tid: i64) -> Result<String, String> {
    // Number of `read` on this architecture, followed by its arguments.
    let reading = format!("{} ", libc::SYS_read);
    let path = format!("/proc/self/task/{tid}/syscall");
    let mut last = String::new();
    // The thread needs a moment to get into its read; every yield is a chance for it.
    for _ in 0..100_000 {
        last.clear();
        File::open(&path)
            .and_then(|mut file| file.read_to_string(&mut last))
            .map_err(|error| format!("{path}: {error}"))?;
        if last.starts_with(&reading) {
            let words: Vec<&str> = last.split_whitespace().take(2).collect();
            return Ok(format!("{} ...", words.join(" ")));
        }
        std::thread::yield_now();
    }
    Err(format!(
        "{path} says \"{}\" of a thread that waits in a read",
        last.trim()
    ))
}

/// Reads an empty pipe with `RWF_NOWAIT` and expects EAGAIN.
#[must_use]
pub fn rwf_nowait_pipe() -> Finding {
    const NAME: &str = "rwf-nowait-pipe";
    let remedy = "Linux 6.4 or later";
    let (empty, _writer) = match std::io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return Finding::fails(NAME, format!("pipe: {error}"), "free descriptors"),
    };
    let mut byte = 0u8;
    let buffer = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // SAFETY: one valid buffer of one byte; the descriptor is open; offset -1 is "current".
    let got = unsafe {
        libc::preadv2(
            empty.as_raw_fd(),
            &raw const buffer,
            1,
            -1,
            libc::RWF_NOWAIT,
        )
    };
    let error = os_error();
    match (got, error.raw_os_error()) {
        (-1, Some(libc::EAGAIN)) => {
            Finding::works(NAME, "a read of an empty pipe gave EAGAIN and did not wait")
        }
        (-1, _) => Finding::fails(NAME, format!("preadv2 of an empty pipe: {error}"), remedy),
        (read, _) => Finding::fails(
            NAME,
            format!("preadv2 of an empty pipe read {read} bytes"),
            remedy,
        ),
    }
}
