//! Asks the daemon which address spaces it has: for the command, not for the runtime.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::vec::Vec;

use upcall_abi::{
    ANSWER_SCHEDULES, ASK_LIST, ASK_OBSERVE, Answer, Message, Row, STATUS_OK, VERSION,
};

use super::place::{address, socket, system_socket};

/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no list.
#[derive(Debug)]
pub enum Trouble {
    /// There is no directory for the daemon's socket, or its name is too long.
    NoPlace,
    /// Nobody answers at this socket.
    NoDaemon(PathBuf, std::io::Error),
    /// The daemon has this version of the interface.
    Version(u32),
    /// It answers nonsense, or not in time.
    Silent(PathBuf),
}

impl Trouble {
    /// What was found.
    pub fn evidence(&self) -> String {
        match self {
            Trouble::NoPlace => {
                "XDG_RUNTIME_DIR and /run/user name no directory for its socket".into()
            }
            Trouble::NoDaemon(path, error) => format!("{}: {error}", path.display()),
            Trouble::Version(version) => {
                format!("its version is {version}, this command's is {VERSION}")
            }
            Trouble::Silent(path) => {
                format!("{} was connected to, and does not answer", path.display())
            }
        }
    }

    /// What would change it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Trouble::NoPlace => "set XDG_RUNTIME_DIR to a directory of your own, with a short name",
            Trouble::NoDaemon(..) => {
                "start upcalld as root, or upcalld --user; without them programs take turns by themselves"
            }
            Trouble::Version(_) => "use the daemon and the command of one installation",
            Trouble::Silent(_) => "see if the daemon is stopped, and start it again",
        }
    }
}

/// Returns the address spaces of the system's daemon, as far as it shows them to this user, and of the user's.
///
/// # Errors
///
/// [`Trouble`] with both: that of the one that is there.
pub fn spaces() -> Result<Vec<Row>, Trouble> {
    let is_there = |trouble: &Trouble| !matches!(trouble, Trouble::NoPlace | Trouble::NoDaemon(..));
    let own = socket().ok_or(Trouble::NoPlace).and_then(spaces_at);
    match (spaces_at(system_socket()), own) {
        (Ok(mut rows), own) => {
            rows.extend(own.unwrap_or_default());
            Ok(rows)
        }
        (Err(trouble), Err(own)) if is_there(&trouble) && !is_there(&own) => Err(trouble),
        (Err(_), own) => own,
    }
}

/// The same of the daemon at this socket.
///
/// # Errors
///
/// [`Trouble`].
pub fn spaces_at(path: PathBuf) -> Result<Vec<Row>, Trouble> {
    let (daemon, answer) = ask(&path, ASK_LIST)?;
    let silent = || Trouble::Silent(path.clone());
    if answer.status != STATUS_OK {
        return Err(silent());
    }
    let mut room = [0u8; 128];
    (0..answer.count)
        .map(|_| {
            receive(&daemon, &mut room)
                .and_then(Row::read)
                .ok_or_else(silent)
        })
        .collect()
}

/// Returns true if the daemon at this socket observes this process, when it is asked to.
///
/// # Errors
///
/// [`Trouble`].
pub fn observes_at(path: PathBuf) -> Result<bool, Trouble> {
    // The kernel drops the descriptor that comes with the answer: there is no room for it.
    let (_, answer) = ask(&path, ASK_OBSERVE)?;
    Ok(answer.status == STATUS_OK)
}

/// Returns true if the scheduler of the daemon at this socket has all kernel threads at this moment.
///
/// # Errors
///
/// [`Trouble`].
pub fn schedules_at(path: PathBuf) -> Result<bool, Trouble> {
    let (_, answer) = ask(&path, ASK_OBSERVE)?;
    Ok(answer.flags & ANSWER_SCHEDULES != 0)
}

/// Connects to the daemon at this socket and asks for this.
fn ask(path: &Path, what: u32) -> Result<(OwnedFd, Answer), Trouble> {
    let daemon = connect(path)?;
    let message = Message::new(what).bytes();
    // SAFETY: reads the message.
    let sent = unsafe {
        let flags = libc::MSG_NOSIGNAL;
        libc::send(
            daemon.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            flags,
        )
    };
    let silent = || Trouble::Silent(path.to_path_buf());
    if sent != message.len() as isize {
        return Err(silent());
    }
    let mut room = [0u8; 128];
    let answer = receive(&daemon, &mut room)
        .and_then(Answer::read)
        .ok_or_else(silent)?;
    match answer.version == VERSION {
        true => Ok((daemon, answer)),
        false => Err(Trouble::Version(answer.version)),
    }
}

fn connect(path: &Path) -> Result<OwnedFd, Trouble> {
    let address = address(path).ok_or(Trouble::NoPlace)?;
    let failed = || Trouble::NoDaemon(path.to_path_buf(), std::io::Error::last_os_error());
    let patience = libc::timeval {
        tv_sec: PATIENCE.as_secs() as libc::time_t,
        tv_usec: 0,
    };
    // SAFETY: a new socket, which nobody else owns; reads the time and the address.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        let daemon = libc::socket(libc::AF_UNIX, kind, 0);
        if daemon < 0 {
            return Err(failed());
        }
        let daemon = OwnedFd::from_raw_fd(daemon);
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            libc::setsockopt(
                daemon.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const patience).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            );
        }
        let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        if libc::connect(daemon.as_raw_fd(), (&raw const address).cast(), size) != 0 {
            return Err(failed());
        }
        Ok(daemon)
    }
}

/// The next packet; `None`: there is none in time.
fn receive<'a>(daemon: &OwnedFd, room: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: writes at most the size given.
    let length = unsafe { libc::recv(daemon.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
    room.get(..usize::try_from(length).ok()?)
}
