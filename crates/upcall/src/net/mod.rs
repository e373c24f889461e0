//! TCP, UDP and Unix sockets with the shape of [`std::net`] and [`std::os::unix::net`], with deadlines.
//!
//! A thread that has to wait parks on the runtime's poller. Without a runtime it waits in poll(2). In place of std's
//! time limits each socket has [`Deadlines`]. Any thread may move them at any time, and can so end another thread's
//! wait. A signal handler runs meanwhile and does not end the wait. Any number of threads use a socket through shared
//! references. A socket cannot be closed while a thread waits for it; `shutdown` tells the other side.
//!
//! The sockets are in non-blocking mode. Use std for everything else. std looks names up by getaddrinfo(3), which
//! waits for the network as any call does.

mod stream;
mod tcp;
mod udp;
mod unix;

pub use crate::io::Deadlines;
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    ToSocketAddrs,
};
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixIncoming, UnixListener, UnixStream};

/// What all sockets have.
macro_rules! socket {
    ($name:ident, $std:ty, $address:ty) => {
        impl $name {
            /// Takes a socket of std's and makes it non-blocking. All processes that share it are affected.
            ///
            /// # Errors
            ///
            /// Those of ioctl(2).
            pub fn from_std(socket: $std) -> std::io::Result<Self> {
                socket.set_nonblocking(true)?;
                Ok($name(crate::io::source::Source::new(socket)))
            }

            /// Gives the socket away as one of std's, in blocking mode.
            ///
            /// # Errors
            ///
            /// Those of ioctl(2).
            pub fn into_std(self) -> std::io::Result<$std> {
                let socket = self.0.into_inner();
                socket.set_nonblocking(false)?;
                Ok(socket)
            }

            /// Returns the same socket by another descriptor (dup(2)). It has its own deadlines, which are none at
            /// first.
            ///
            /// # Errors
            ///
            /// `EMFILE`: too many descriptors.
            pub fn try_clone(&self) -> std::io::Result<Self> {
                let other = self.0.get().try_clone()?;
                Ok($name(crate::io::source::Source::new(other)))
            }

            /// Returns the address of this side.
            ///
            /// # Errors
            ///
            /// Those of getsockname(2).
            pub fn local_addr(&self) -> std::io::Result<$address> {
                self.0.get().local_addr()
            }

            /// Returns the error that the socket has to report, and clears it (SO_ERROR).
            ///
            /// # Errors
            ///
            /// Those of getsockopt(2).
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.0.get().take_error()
            }
        }

        impl crate::io::Deadlines for $name {
            fn set_read_deadline(&self, deadline: Option<std::time::Instant>) {
                self.0.set_deadlines(&[Direction::In], deadline);
            }

            fn set_write_deadline(&self, deadline: Option<std::time::Instant>) {
                self.0.set_deadlines(&[Direction::Out], deadline);
            }

            fn set_deadline(&self, deadline: Option<std::time::Instant>) {
                self.0
                    .set_deadlines(&[Direction::In, Direction::Out], deadline);
            }
        }

        impl std::os::fd::AsFd for $name {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.get().as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $name {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.0.number()
            }
        }

        impl From<$name> for std::os::fd::OwnedFd {
            /// It stays non-blocking.
            fn from(socket: $name) -> Self {
                socket.0.into_inner().into()
            }
        }

        impl TryFrom<std::os::fd::OwnedFd> for $name {
            type Error = std::io::Error;

            /// As `from_std`. The kind of the descriptor is not checked.
            fn try_from(descriptor: std::os::fd::OwnedFd) -> std::io::Result<Self> {
                Self::from_std(descriptor.into())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.0.get(), f)
            }
        }
    };
}
use socket;

/// What all sockets have that accept connections.
macro_rules! listener {
    ($name:ident, $stream:ident, $incoming:ident) => {
        impl $name {
            /// Returns an iterator over all connections, one after the other.
            pub fn incoming(&self) -> $incoming<'_> {
                $incoming(self)
            }
        }

        /// The iterator of a listener's `incoming`. It never ends.
        #[derive(Debug)]
        pub struct $incoming<'a>(&'a $name);

        impl Iterator for $incoming<'_> {
            type Item = std::io::Result<$stream>;

            fn next(&mut self) -> Option<Self::Item> {
                Some(self.0.accept().map(|(stream, _)| stream))
            }
        }
    };
}
use listener;
