//! Where the socket is: `upcall/upcalld.sock` in the user's run-time directory.
//!
//! 1. The directory `upcall` is the user's own and closed to all others. If it is not there, it is made so. That of root's
//!    daemon for all users is open to them, and nobody else may write it.
//! 2. The daemon holds a lock on `upcalld.lock` in it for as long as it lives. The kernel lets go of it however the
//!    daemon ends. Who has the lock may replace the socket, which can only be that of a dead daemon.
//! 3. A second daemon does not get the lock, and says whose it is. The lock file is never removed: two daemons could
//!    hold locks on two files of the name.
//! 4. A daemon that ends by SIGTERM removes its socket. One that is killed leaves it to the next. One that was given its socket by
//!    a service manager leaves it to that.
//!
//! Rejected: asking a daemon at the socket if it lives. One that is stopped does not answer, and two that start at once
//! would both replace the socket.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::trouble::{Exit, Trouble};

/// What others may not do in the directory of a daemon for its own user.
const OTHERS: u32 = 0o077;
/// What they may not do in that of a daemon for all.
const OTHER_WRITERS: u32 = 0o022;

/// Whom the daemon serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The programs of its own user.
    User,
    /// Those of all users.
    All,
}
/// Programs that may be about to register at once.
const BACKLOG: i32 = 64;

/// The socket, as long as this lives.
#[derive(Debug)]
pub struct Place {
    /// Programs connect to it.
    pub listener: OwnedFd,
    /// Its path.
    pub path: PathBuf,
    /// Whose programs may connect.
    pub scope: Scope,
    /// It was made here, and its name is removed at the end.
    is_own: bool,
    _lock: File,
}

impl Drop for Place {
    fn drop(&mut self) {
        // The lock is held still: it is ours.
        if self.is_own {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn unusable(what: String, evidence: impl std::fmt::Display, remedy: &str) -> Trouble {
    Trouble {
        exit: Exit::Place,
        what,
        evidence: evidence.to_string(),
        remedy: remedy.into(),
    }
}

/// Takes the place at this socket path.
///
/// # Errors
///
/// The directory is not the user's alone, another daemon has the place, or the socket cannot be made.
pub fn take(path: &Path, scope: Scope) -> Result<Place, Trouble> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    own_directory(directory, scope)?;
    let lock = lock(&directory.join("upcalld.lock"))?;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        unusable(
            format!("{what} {}", path.display()),
            error,
            "set XDG_RUNTIME_DIR to a directory of your own, with a short name, that programs use too",
        )
    };
    match fs::remove_file(path) {
        Ok(()) => {
            tracing::info!(path = %path.display(), "replaced the socket of a daemon that is gone")
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("cannot replace", &error)),
    }
    let address = SocketAddrUnix::new(path).map_err(|error| failed("cannot name", &error))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listen = || -> Result<OwnedFd, Errno> {
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Inherited by the sockets that it accepts: each message comes with its sender.
        sockopt::set_socket_passcred(&listener, true)?;
        rustix::net::bind(&listener, &address)?;
        if scope == Scope::All {
            rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?;
        }
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(listener)
    };
    let listener = listen().map_err(|error| failed("cannot listen at", &error))?;
    Ok(Place {
        listener,
        path: path.into(),
        scope,
        is_own: true,
        _lock: lock,
    })
}

/// Takes the place at a socket at which a service manager listens, with this path.
///
/// # Errors
///
/// As of [`take`], but the socket is there already.
pub fn take_over(listener: OwnedFd, path: &Path, scope: Scope) -> Result<Place, Trouble> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    own_directory(directory, scope)?;
    let lock = lock(&directory.join("upcalld.lock"))?;
    let ready = sockopt::set_socket_passcred(&listener, true)
        .and_then(|()| rustix::io::ioctl_fionbio(&listener, true));
    ready.map_err(|error| {
        unusable(
            format!("cannot use the socket {}", path.display()),
            error,
            "use the unit upcalld.socket as it is installed, or start upcalld without one",
        )
    })?;
    Ok(Place {
        listener,
        path: path.into(),
        scope,
        is_own: false,
        _lock: lock,
    })
}

/// Removes the socket of a daemon that is gone, and does this with its path meanwhile. A daemon that lives stays.
///
/// # Errors
///
/// As of [`take`].
pub fn clean<T>(
    path: &Path,
    scope: Scope,
    then: impl FnOnce(&Path) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    own_directory(directory, scope)?;
    let _lock = lock(&directory.join("upcalld.lock"))?;
    let done = then(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unusable(
            format!("cannot remove {}", path.display()),
            error,
            "remove it by hand",
        )),
        _ => Ok(done),
    }
}

fn own_directory(directory: &Path, scope: Scope) -> Result<(), Trouble> {
    let (mode, others, may, remedy) = match scope {
        Scope::User => (
            0o700,
            OTHERS,
            "enter",
            "make it a directory of your own that others cannot enter (chmod 700), or set XDG_RUNTIME_DIR",
        ),
        Scope::All => (
            0o755,
            OTHER_WRITERS,
            "write",
            "make it a directory of root's that others cannot write (chmod 755)",
        ),
    };
    let made = DirBuilder::new().mode(mode).create(directory);
    if let Err(error) = made
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(unusable(
            format!("cannot make the directory {}", directory.display()),
            error,
            "set XDG_RUNTIME_DIR to a directory of your own, that programs use too",
        ));
    }
    let found = fs::symlink_metadata(directory).map_err(|error| {
        unusable(
            format!("cannot look at {}", directory.display()),
            error,
            remedy,
        )
    })?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != own {
        let whose = format!("it belongs to user {}, who runs this is {own}", found.uid());
        return Err(unusable(
            format!("{} is not a directory of your own", directory.display()),
            whose,
            remedy,
        ));
    }
    let mode = found.permissions().mode();
    if mode & others != 0 {
        return Err(unusable(
            format!("others may {may} {}", directory.display()),
            format!("its mode is {:o}", mode & 0o7777),
            remedy,
        ));
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File, Trouble> {
    let failed = |error: &dyn std::fmt::Display| {
        unusable(
            format!("cannot use {}", path.display()),
            error,
            "remove it when no daemon runs",
        )
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
        .map_err(|error| failed(&error))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            return Err(Trouble {
                exit: Exit::Second,
                what: "another upcalld runs here".into(),
                evidence: format!("process {} holds {}", pid.trim(), path.display()),
                remedy: "end that one first, or leave it: one is enough".into(),
            });
        }
        Err(error) => return Err(failed(&error)),
    }
    let written = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(|error| failed(&error))?;
    Ok(file)
}
