//! A child process for a probe that may be killed by what it tries.
//!
//! 1. `clone` starts the child without an exit signal. So the caller's SIGCHLD handler sees nothing, and a caller that
//!    ignores SIGCHLD does not reap the child before the probe does.
//! 2. The child restores the default dispositions of the signals that may kill it, sets itself a time limit with
//!    `alarm`, and runs the body.
//! 3. The child ends with `_exit`, with 0 or an errno. The parent waits with `__WALL`.
//!
//! Other threads may hold malloc's lock while the body runs, so the body allocates nothing.

use std::io;

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The body said that it works.
    Works,
    /// The body gave this errno.
    Errno(i32),
    /// This signal killed it.
    Signal(i32),
    /// The child could not be made, or not be waited for.
    NotRun(i32),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Works => write!(f, "works"),
            Self::Errno(errno) => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
            Self::Signal(libc::SIGALRM) => write!(f, "no answer within {LIMIT_S} s"),
            Self::Signal(libc::SIGILL) => write!(f, "killed by SIGILL (illegal instruction)"),
            Self::Signal(libc::SIGSYS) => write!(f, "killed by SIGSYS (a system-call filter)"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
            Self::NotRun(errno) => write!(
                f,
                "no child process for the probe: {}",
                io::Error::from_raw_os_error(*errno)
            ),
        }
    }
}

/// Seconds until a probe that hangs is ended.
const LIMIT_S: u32 = 10;

/// A running probe.
pub(super) struct Child {
    pid: libc::pid_t,
}

impl Child {
    /// Starts `body` in a child process.
    ///
    /// # Errors
    /// The errno of `clone`.
    pub(super) fn start(body: impl FnOnce() -> Result<(), i32>) -> Result<Self, i32> {
        // SAFETY: clone with no flags and no stack is a fork; the child runs on a copy of
        // this stack, makes system calls only and never returns from this function.
        let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
        match pid {
            -1 => Err(errno()),
            0 => {
                prepare();
                let status = match body() {
                    Ok(()) => 0,
                    Err(errno) => errno.clamp(1, 255),
                };
                // SAFETY: ends this process without running anything of the caller's.
                unsafe { libc::_exit(status) }
            }
            pid => Ok(Self {
                pid: libc::pid_t::try_from(pid).expect("a process id fits"),
            }),
        }
    }

    pub(super) fn wait(self) -> Ended {
        let mut status = 0;
        loop {
            // SAFETY: `status` is a valid int for the call's duration.
            let got = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
            if got == self.pid {
                break;
            }
            if errno() != libc::EINTR {
                return Ended::NotRun(errno());
            }
        }
        if libc::WIFSIGNALED(status) {
            return Ended::Signal(libc::WTERMSIG(status));
        }
        match libc::WEXITSTATUS(status) {
            0 => Ended::Works,
            errno => Ended::Errno(errno),
        }
    }
}

/// Runs `body` in a child process and waits for it.
pub(super) fn run(body: impl FnOnce() -> Result<(), i32>) -> Ended {
    match Child::start(body) {
        Ok(child) => child.wait(),
        Err(errno) => Ended::NotRun(errno),
    }
}

/// The calling thread's errno.
pub(super) fn errno() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// In the child: default dispositions, nothing blocked, no core file, a time limit.
fn prepare() {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain system calls on this process alone, with valid pointers to locals; the
    // dispositions are the defaults, so no code of the caller's runs in this child.
    unsafe {
        for signal in [
            libc::SIGALRM,
            libc::SIGILL,
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGSYS,
            libc::SIGTRAP,
            libc::SIGTERM,
        ] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::alarm(LIMIT_S);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_apart() {
        assert_eq!(run(|| Ok(())), Ended::Works);
        assert_eq!(run(|| Err(libc::ENOSYS)), Ended::Errno(libc::ENOSYS));
        let killed = run(|| {
            // SAFETY: the null page is never mapped; the child dies of it, as meant.
            unsafe { std::ptr::null_mut::<u8>().write_volatile(1) };
            Ok(())
        });
        assert_eq!(killed, Ended::Signal(libc::SIGSEGV));
    }
}
