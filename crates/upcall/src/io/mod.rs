//! Pipes, and waiting for any descriptor.
//!
//! A thread that has to wait parks on the poller of the runtime; its virtual processor goes on with another one.
//! Without a runtime it waits in poll(2).
//!
//! Use std for everything else. Regular files ([`std::fs`]) block their activation. For a descriptor with calls of its
//! own (eventfd(2), inotify(7), a device), wait with [`wait`] and then make those calls.

mod pipe;
pub(crate) mod source;

use std::io;
use std::ops::BitOr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

pub use pipe::{PipeReader, PipeWriter, pipe};
pub(crate) use pipe::{read_vectored, write_vectored};
pub use source::Deadlines;

/// A set of events to wait for, or of events that have come. Errors and hang-ups are always reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest(i16);

impl Interest {
    /// Something to read or to accept, or the end.
    pub const READABLE: Self = Interest(libc::POLLIN | libc::POLLRDHUP);
    /// Room to write; of a socket, that its connect(2) is over.
    pub const WRITABLE: Self = Interest(libc::POLLOUT);
    /// Out-of-band data (POLLPRI of poll(2)).
    pub const PRIORITY: Self = Interest(libc::POLLPRI);
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Interest(self.0 | other.0)
    }
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready(i16);

impl Ready {
    /// Returns true if there is something to read or to accept, or the end. A call for that does not wait.
    pub fn is_readable(self) -> bool {
        self.0 & (libc::POLLIN | libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Returns true if there is room to write, or an error to report. A call for that does not wait.
    pub fn is_writable(self) -> bool {
        self.0 & (libc::POLLOUT | libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Returns true if there is out-of-band data (POLLPRI).
    pub fn is_priority(self) -> bool {
        self.0 & libc::POLLPRI != 0
    }

    /// Returns true if the other side has gone away, or has shut down writing.
    pub fn is_hung_up(self) -> bool {
        self.0 & (libc::POLLHUP | libc::POLLRDHUP) != 0
    }

    /// Returns true if there is an error to report; for a pipe's writing end: if no reader is left.
    pub fn is_error(self) -> bool {
        self.0 & libc::POLLERR != 0
    }
}

/// Waits until a descriptor of any kind is ready for one of `interest`, or has failed, but not beyond `deadline`
/// (poll(2)). Signal handlers run meanwhile and do not end the wait. A regular file is always ready.
///
/// # Errors
///
/// [`TimedOut`](io::ErrorKind::TimedOut) if the deadline passes first. What is ready already is reported even if the
/// deadline has passed. `EBADF` for a descriptor that is not open.
pub fn wait(
    descriptor: impl AsFd,
    interest: Interest,
    deadline: Option<Instant>,
) -> io::Result<Ready> {
    let mut file = [libc::pollfd {
        fd: descriptor.as_fd().as_raw_fd(),
        events: interest.0,
        revents: 0,
    }];
    loop {
        let now = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match source::poll(&mut file, now) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) if file[0].revents & libc::POLLNVAL != 0 => {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            Ok(_) => return Ok(Ready(file[0].revents)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// `Read`, for what is read through a shared reference.
macro_rules! read_by_reference {
    ($name:ident) => {
        impl std::io::Read for $name {
            #[inline]
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buffer)
            }

            fn read_vectored(
                &mut self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                (&*self).read_vectored(buffers)
            }
        }
    };
}
pub(crate) use read_by_reference;

/// `Write`, for what is written through a shared reference.
macro_rules! write_by_reference {
    ($name:ident) => {
        impl std::io::Write for $name {
            #[inline]
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                (&*self).write(bytes)
            }

            fn write_vectored(
                &mut self,
                buffers: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                (&*self).write_vectored(buffers)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}
pub(crate) use write_by_reference;
