//! Where the system's daemon is, and the user's, and how a program reaches them.

use core::sync::atomic::{AtomicPtr, Ordering};
use std::boxed::Box;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Socket, Whose};
use crate::sys::procfs::may_be_filtered;
use crate::sys::{self, descriptors, error};

const NAME: &str = "upcall/upcalld.sock";
/// Where the system's daemon has its socket.
pub const SYSTEM_SOCKET: &str = "/run/upcall/upcalld.sock";
/// Names another place for it, for tests. The daemon there must be root's, too.
const VARIABLE: &str = "UPCALL_OBSERVER";
const ROOT: u32 = 0;

/// The addresses of the system's daemon and of the user's; null: there can be none.
static ADDRESSES: [AtomicPtr<libc::sockaddr_un>; 2] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; 2];

/// Where the socket of the system's daemon is.
pub fn system_socket() -> PathBuf {
    let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
    named.map_or_else(|| PathBuf::from(SYSTEM_SOCKET), PathBuf::from)
}

/// Returns where the daemon's socket is: in `XDG_RUNTIME_DIR`, or in `/run/user/UID` where that is not set. `None`: there
/// is no such place.
pub fn socket() -> Option<PathBuf> {
    let directory = runtime_directory();
    (directory.is_absolute() && directory.is_dir()).then(|| directory.join(NAME))
}

fn runtime_directory() -> PathBuf {
    let named = std::env::var_os("XDG_RUNTIME_DIR").filter(|name| !name.is_empty());
    let directory = named.unwrap_or_else(|| {
        // SAFETY: asks only.
        let user = unsafe { libc::geteuid() };
        OsString::from(std::format!("/run/user/{user}"))
    });
    PathBuf::from(directory)
}

/// Notes where the daemons' sockets would be. Called at start, before the program changes its environment.
pub fn note() {
    // Not looked at yet: most processes never ask a daemon.
    let directory = runtime_directory();
    let of_user = directory.is_absolute().then(|| directory.join(NAME));
    let places = [Some(system_socket()), of_user];
    for (place, path) in ADDRESSES.iter().zip(places) {
        if let Some(address) = path.and_then(|path| address(&path)) {
            place.store(Box::into_raw(Box::new(address)), Ordering::Release);
        }
    }
}

/// The address of a socket; `None`: the path is too long for one.
pub(super) fn address(path: &Path) -> Option<libc::sockaddr_un> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // One byte stays zero.
    if bytes.len() >= address.sun_path.len() {
        return None;
    }
    for (place, &byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = byte as libc::c_char;
    }
    Some(address)
}

/// Connects to a daemon, without waiting. It is root's or this user's, as was asked for, or there is none.
pub(crate) fn connect(whose: Whose) -> Option<Socket> {
    let address = ADDRESSES[whose as usize].load(Ordering::Acquire);
    // SAFETY: null, or leaked by `note`.
    let address = unsafe { address.as_ref() }?;
    let user = match whose {
        Whose::System => ROOT,
        // SAFETY: asks only.
        Whose::User => unsafe { sys!(libc::SYS_geteuid) as u32 },
    };
    connect_to(address, user)
}

/// Connects to a daemon of this user at this address, without waiting.
fn connect_to(address: &libc::sockaddr_un, user: u32) -> Option<Socket> {
    let opening = descriptors::opening();
    // Where nothing has the name, nothing else is tried.
    // SAFETY: the path ends with a zero; closes what it opened.
    unsafe {
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        let there = sys!(
            sys::SYS_openat,
            libc::AT_FDCWD,
            address.sun_path.as_ptr(),
            flags
        );
        if error(there).is_some() {
            return None;
        }
        sys!(sys::SYS_close, there);
    }
    if may_be_filtered() {
        return None;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a new socket; reads the address.
    let socket = unsafe { sys!(libc::SYS_socket, libc::AF_UNIX, kind, 0) };
    let socket = Socket(descriptors::keep(socket).ok()?);
    drop(opening);
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: reads the address; fills in the credentials; asks.
    let is_own = unsafe {
        let size = size_of::<libc::sockaddr_un>();
        let place = core::ptr::from_ref(address);
        sys!(libc::SYS_connect, socket.0, place, size) == 0
            && sys!(
                libc::SYS_getsockopt,
                socket.0,
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                &raw mut peer,
                &raw mut length
            ) == 0
            && peer.uid == user
    };
    is_own.then_some(socket)
}
