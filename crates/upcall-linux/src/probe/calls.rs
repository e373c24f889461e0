//! The system calls without which no thread can be served. A container's filter may forbid any of them.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Finding;

/// One of the calls failed: its name, and how.
struct Failed(&'static str, std::io::Error);

fn result(name: &'static str, answer: libc::c_long) -> Result<libc::c_long, Failed> {
    if answer < 0 {
        return Err(Failed(name, super::os_error()));
    }
    Ok(answer)
}

fn descriptor(name: &'static str, answer: libc::c_long) -> Result<OwnedFd, Failed> {
    let number = result(name, answer)? as i32;
    // SAFETY: the call has just made the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes each call as the runtime does. What is made goes with the descriptors.
fn each() -> Result<(), Failed> {
    let none: *const libc::c_void = std::ptr::null();
    // SAFETY: the pointers are null where that is allowed, or name locals that live through the call.
    unsafe {
        let size = size_of::<u64>();
        let asked = libc::syscall(libc::SYS_rt_sigaction, libc::SIGUSR1, none, none, size);
        result("rt_sigaction", asked)?;
        let poller = libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC);
        let poller = descriptor("epoll_create1", poller)?;
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        let bell = descriptor("eventfd2", libc::syscall(libc::SYS_eventfd2, 0, flags))?;
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        let clock = libc::CLOCK_MONOTONIC;
        let timer = libc::syscall(libc::SYS_timerfd_create, clock, flags);
        let timer = descriptor("timerfd_create", timer)?;
        let never: libc::itimerspec = std::mem::zeroed();
        let set = libc::syscall(
            libc::SYS_timerfd_settime,
            timer.as_raw_fd(),
            0,
            &raw const never,
            none,
        );
        result("timerfd_settime", set)?;
        let copy = libc::syscall(libc::SYS_fcntl, bell.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0);
        descriptor("fcntl", copy)?;
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        let added = libc::syscall(
            libc::SYS_epoll_ctl,
            poller.as_raw_fd(),
            libc::EPOLL_CTL_ADD,
            bell.as_raw_fd(),
            &raw mut event,
        );
        result("epoll_ctl", added)?;
    }
    Ok(())
}

/// Tries the calls. One that fails for want of memory or descriptors is not forbidden.
#[must_use]
pub fn calls() -> Finding {
    const NAME: &str = "calls";
    match each() {
        Err(Failed(call, error))
            if matches!(
                error.raw_os_error(),
                Some(libc::EPERM | libc::EACCES | libc::ENOSYS)
            ) =>
        {
            Finding::fails(
                NAME,
                format!("{call}: {error}"),
                format!("allow {call} in the sandbox or container (its seccomp filter)"),
            )
        }
        Err(Failed(call, error)) => {
            Finding::works(NAME, format!("none is forbidden; now, {call}: {error}"))
        }
        Ok(()) => Finding::works(
            NAME,
            "epoll, eventfd, timerfd, fcntl and rt_sigaction are allowed",
        ),
    }
}
