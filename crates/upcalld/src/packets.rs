//! The packets of the socket, with who has sent them.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// Who has sent a packet, as the kernel says. Numbers of processes are 0 for one that has none here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// Its process.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
}

/// What a look at a socket finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// A packet: how long it is, cut off at the end of the room, and its sender.
    Packet(usize, Option<Sender>),
    /// Nothing now.
    Nothing,
    /// The other end is closed.
    Closed,
}

/// Room for one message with credentials, and for no descriptor: the kernel drops those that somebody sends.
#[repr(C, align(8))]
struct Control([u8; 32]);

/// Takes the next packet.
pub fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> Received {
    let mut control = Control([0; 32]);
    let mut part = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    // SAFETY: all-zero is a valid msghdr; its pointers lead to memory of the sizes given, which the kernel fills in;
    // the macros walk what it has filled in, and a `ucred` is read where one of that size is.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        let length = libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags);
        if length < 0 {
            return match std::io::Error::last_os_error().kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => {
                    Received::Nothing
                }
                _ => Received::Closed,
            };
        }
        let mut sender = None;
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        if !message.is_null()
            && (*message).cmsg_level == libc::SOL_SOCKET
            && (*message).cmsg_type == libc::SCM_CREDENTIALS
            && (*message).cmsg_len as usize
                == libc::CMSG_LEN(size_of::<libc::ucred>() as u32) as usize
        {
            let found: libc::ucred = libc::CMSG_DATA(message)
                .cast::<libc::ucred>()
                .read_unaligned();
            sender = Some(Sender {
                pid: found.pid,
                uid: found.uid,
            });
        }
        // A packet without bytes looks like the end, and is answered as that.
        match length {
            0 => Received::Closed,
            length => Received::Packet(length as usize, sender),
        }
    }
}

/// Sends a packet with these descriptors. Never waits: who does not read its answers loses them.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map(drop)
}

/// The process at the other end of a connection, when it connected, and its user.
pub fn peer(socket: BorrowedFd<'_>) -> Result<Sender, Errno> {
    let mut found = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    option(socket, libc::SO_PEERCRED, &mut found)?;
    Ok(Sender {
        pid: found.pid,
        uid: found.uid,
    })
}

/// A descriptor that becomes readable when that process ends, whoever has copies of its socket.
///
/// # Errors
///
/// The kernel's; `ESRCH` when the process is gone.
pub fn process_of(socket: BorrowedFd<'_>, pid: i32) -> Result<OwnedFd, Errno> {
    let mut descriptor = -1i32;
    // Linux 6.5: that very process, even if its number is another's by now.
    if option(socket, libc::SO_PEERPIDFD, &mut descriptor).is_ok() && descriptor >= 0 {
        // SAFETY: a new descriptor, which nobody else owns.
        return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    let pid = rustix::process::Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
}

fn option<T>(socket: BorrowedFd<'_>, name: i32, value: &mut T) -> Result<(), Errno> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `T` is an integer or a structure of integers, which the kernel fills in up to its length.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            std::ptr::from_mut(value).cast(),
            &raw mut length,
        )
    };
    match answer {
        0 if length as usize == size_of::<T>() => Ok(()),
        0 => Err(Errno::INVAL),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
