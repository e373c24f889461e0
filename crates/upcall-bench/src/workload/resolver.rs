//! `resolver`: the helper process that plays a slow disk for the fault workloads.
//!
//! It takes the userfaultfd of the program under test over a socket, resolves each fault
//! `delay_us` after it happened, and ends when the socket closes.
//!
//! It is a process of its own, always native, and not a thread of the program under test: the
//! runtime would otherwise schedule the very thread that its blocked threads wait for, and each
//! runtime differently. A forked child would not do either, since a runtime may follow a fork.
//! For the same reason the delay is counted from the fault, not from the previous resolution.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::posix::{now_ns, write_byte};
use super::uffd::Resolver;
use super::{Failure, Figures, Params};

/// A control message that carries one descriptor, aligned as the kernel wants it.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [u8; 64],
}

pub fn send_descriptor(socket: RawFd, fd: RawFd) -> Result<(), Failure> {
    let mut byte = 1u8;
    let mut part = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut control = Control { bytes: [0; 64] };
    // SAFETY: the message points at live buffers; CMSG_SPACE of one descriptor is 24 bytes, less
    // than the 64 of `control`, so the header and its data lie inside.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        libc::sendmsg(socket, &raw const message, 0)
    };
    if sent == 1 {
        Ok(())
    } else {
        Err(Failure::errno("sending the userfaultfd to the resolver"))
    }
}

/// Receives a descriptor; none if the other side closed the socket first.
fn receive_descriptor(socket: RawFd) -> Result<Option<OwnedFd>, Failure> {
    let mut byte = 0u8;
    let mut part = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut control = MaybeUninit::<Control>::zeroed();
    // SAFETY: the message points at live buffers of the stated sizes; a header is read only if
    // the kernel wrote a whole one that carries descriptors.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Control>();
        match libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) {
            0 => return Ok(None),
            1 => {}
            _ => return Err(Failure::errno("receiving the userfaultfd")),
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(Failure::Failed("a message without a descriptor".into()));
        }
        let fd = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
        Ok(Some(OwnedFd::from_raw_fd(fd)))
    }
}

/// Serves faults until standard input, the socket, closes.
pub fn run(params: &Params) -> Result<Figures, Failure> {
    let delay = params.number("delay_us", 5000)? as u64 * 1000;
    // SAFETY: no pointers. Timers then expire within a microsecond instead of fifty.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let Some(descriptor) = receive_descriptor(0)? else {
        return Ok(Figures::default());
    };
    let resolver = Resolver::from_descriptor(descriptor);
    if !write_byte(&0) {
        return Err(Failure::errno("answering the program under test"));
    }
    let mut waiting: VecDeque<(u64, u64)> = VecDeque::new();
    loop {
        let timeout = waiting.front().map(|(due, _)| due.saturating_sub(now_ns()));
        match poll([resolver.fd(), 0], timeout)? {
            [_, true] => return Ok(Figures::default()),
            [false, _] => {}
            [true, _] => {
                while let Some(address) = resolver.next_fault() {
                    waiting.push_back((now_ns() + delay, address));
                }
            }
        }
        while let Some(&(due, address)) = waiting.front() {
            if due > now_ns() {
                break;
            }
            // A failure means that the program has died; its socket closes next.
            resolver.fill(address, true);
            waiting.pop_front();
        }
    }
}

/// Which of the two descriptors has something, waiting at most `timeout` nanoseconds.
fn poll(fds: [RawFd; 2], timeout: Option<u64>) -> Result<[bool; 2], Failure> {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    let time = timeout.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let time = time
        .as_ref()
        .map_or(std::ptr::null(), |time| time as *const _);
    // SAFETY: two descriptors, a timeout that outlives the call, no signal mask.
    let got = unsafe { libc::ppoll(polled.as_mut_ptr(), 2, time, std::ptr::null()) };
    if got < 0 {
        return Err(Failure::errno("ppoll"));
    }
    Ok(polled.map(|one| one.revents != 0))
}
