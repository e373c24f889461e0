//! The service manager (sd_notify(3), sd_listen_fds(3)): it is told how the daemon is, and may have made the socket.
//!
//! Without one all of this does nothing.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::net::{AddressFamily, SocketType, sockopt};
use sd_notify::NotifyState;

use crate::trouble::{Exit, Trouble};

/// How the daemon is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It serves.
    Ready,
    /// It reads its configuration again.
    Reloading,
    /// It ends.
    Stopping,
}

/// Tells the service manager, with a line for whoever asks it.
pub fn tell(state: State, line: &str) {
    let status = NotifyState::Status(line);
    let told = match state {
        State::Ready => sd_notify::notify(&[NotifyState::Ready, status]),
        State::Reloading => NotifyState::monotonic_usec_now()
            .and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now, status])),
        State::Stopping => sd_notify::notify(&[NotifyState::Stopping, status]),
    };
    if let Err(error) = told {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

/// A socket that the service manager listens at, for this process, and its path; `None`: it has none.
///
/// # Errors
///
/// What it has passed is something else. Then its unit is wrong, and a socket of our own would not be the one that it means.
pub fn socket() -> Result<Option<(OwnedFd, PathBuf)>, Trouble> {
    let mut passed = sd_notify::listen_fds().map_err(|error| useless("cannot be taken", &error))?;
    let Some(first) = passed.next() else {
        return Ok(None);
    };
    if passed.next().is_some() {
        return Err(useless("is not alone", &"one socket was expected"));
    }
    // SAFETY: it is open, was passed to this process, which asks once, and is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(first) };
    match path_of(socket.as_fd()) {
        Ok(path) => Ok(Some((socket, path))),
        Err(evidence) => Err(useless("is of no use", &evidence)),
    }
}

/// The path at which a socket listens for programs.
fn path_of(socket: BorrowedFd<'_>) -> Result<PathBuf, String> {
    let of_kernel = |error: rustix::io::Errno| error.to_string();
    let domain = sockopt::socket_domain(socket).map_err(of_kernel)?;
    let kind = sockopt::socket_type(socket).map_err(of_kernel)?;
    if domain != AddressFamily::UNIX || kind != SocketType::SEQPACKET {
        return Err("it is not ListenSequentialPacket= with a path".into());
    }
    if !sockopt::socket_acceptconn(socket).map_err(of_kernel)? {
        return Err("it does not listen".into());
    }
    // Otherwise the kernel notes no sender of what has come before this.
    if !sockopt::socket_passcred(socket).map_err(of_kernel)? {
        return Err("PassCredentials=yes is missing".into());
    }
    let name = rustix::net::getsockname(socket).map_err(of_kernel)?;
    let name = rustix::net::SocketAddrUnix::try_from(name).map_err(of_kernel)?;
    let path = name.path_bytes().filter(|path| path.starts_with(b"/"));
    let path = path.ok_or("its name is not an absolute path")?;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
}

fn useless(how: &str, evidence: &dyn Display) -> Trouble {
    Trouble {
        exit: Exit::Place,
        what: format!("the socket of the service manager {how}"),
        evidence: evidence.to_string(),
        remedy: "use the unit upcalld.socket as it is installed, or start upcalld without one"
            .into(),
    }
}
