//! What streams of bytes have, TCP's and Unix's: recv(2) and send(2), which do not wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::io::source::{self, Direction, Source};

#[inline]
pub(super) fn receive<T: AsFd>(
    source: &Source<T>,
    buffer: &mut [u8],
    flags: i32,
) -> io::Result<usize> {
    source.until_done(Direction::In, |socket| receive_now(socket, buffer, flags))
}

/// `glues`: the socket keeps no boundaries, so a read that gets less than there is room for has got all.
#[inline]
pub(super) fn read<T: AsFd>(
    source: &Source<T>,
    buffer: &mut [u8],
    glues: bool,
) -> io::Result<usize> {
    let room = buffer.len();
    source.until_read(
        |socket| receive_now(socket, buffer, 0),
        |&count| glues && 0 < count && count < room,
    )
}

#[inline]
fn receive_now(socket: &impl AsFd, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
    let flags = (flags | libc::MSG_DONTWAIT) as usize;
    let words = [buffer.as_mut_ptr() as usize, buffer.len(), flags, 0, 0];
    // SAFETY: writes into the buffer only.
    unsafe { source::call(libc::SYS_recvfrom, socket.as_fd().as_raw_fd(), words) }
}

#[inline]
pub(super) fn send<T: AsFd>(source: &Source<T>, bytes: &[u8]) -> io::Result<usize> {
    source.until_done(Direction::Out, |socket| {
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
        let words = [bytes.as_ptr() as usize, bytes.len(), flags, 0, 0];
        // SAFETY: reads the bytes.
        unsafe { source::call(libc::SYS_sendto, socket.as_fd().as_raw_fd(), words) }
    })
}

/// What all streams have; `glues` as for [`read`].
macro_rules! stream {
    ($name:ident, $address:ty, glues: $glues:expr) => {
        impl $name {
            /// Reads without taking anything away (MSG_PEEK). Waits as reading does.
            ///
            /// # Errors
            ///
            /// Those of recv(2); `TimedOut` when the deadline has passed.
            pub fn peek(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                super::stream::receive(&self.0, buffer, libc::MSG_PEEK)
            }

            /// Returns the other side's address.
            ///
            /// # Errors
            ///
            /// Those of getpeername(2).
            pub fn peer_addr(&self) -> std::io::Result<$address> {
                self.0.get().peer_addr()
            }

            /// Ends reading, writing or both, also for threads that wait. See shutdown(2).
            ///
            /// # Errors
            ///
            /// Those of shutdown(2).
            pub fn shutdown(&self, how: std::net::Shutdown) -> std::io::Result<()> {
                self.0.get().shutdown(how)
            }
        }

        /// Reading waits for data or the end. See recv(2).
        impl std::io::Read for &$name {
            #[inline]
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                super::stream::read(&self.0, buffer, $glues)
            }

            fn read_vectored(
                &mut self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                crate::io::read_vectored(&self.0, buffers)
            }
        }

        /// Writing waits for room. There is no SIGPIPE but for several buffers at a time. See send(2).
        impl std::io::Write for &$name {
            #[inline]
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                super::stream::send(&self.0, bytes)
            }

            fn write_vectored(
                &mut self,
                buffers: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                crate::io::write_vectored(&self.0, buffers)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        crate::io::read_by_reference!($name);
        crate::io::write_by_reference!($name);
    };
}
pub(super) use stream;
