//! Unix sockets.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

use super::stream::{receive, send, stream};
use super::{listener, socket};
use crate::io::source::{Direction, Source};

/// A connection on this machine. See unix(7).
pub struct UnixStream(Source<net::UnixStream>);

socket!(UnixStream, net::UnixStream, SocketAddr);
stream!(UnixStream, SocketAddr, glues: false);

impl UnixStream {
    /// Connects to a listener in the file system. If the listener's queue is full, this blocks an activation until
    /// there is room, because the kernel does not tell when. See connect(2).
    ///
    /// # Errors
    ///
    /// `NotFound`, `ConnectionRefused` (there is no listener any more), `PermissionDenied` and others.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(net::UnixStream::connect(path)?)
    }

    /// Makes two sockets that are connected with each other. See socketpair(2).
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`: too many descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = net::UnixStream::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
    }
}

/// A Unix socket that accepts connections. Its file stays when it is closed.
pub struct UnixListener(Source<net::UnixListener>);

socket!(UnixListener, net::UnixListener, SocketAddr);
listener!(UnixListener, UnixStream, UnixIncoming);

impl UnixListener {
    /// Listens at a free place of the file system.
    ///
    /// # Errors
    ///
    /// `AddrInUse`: there is a file. Others of bind(2).
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(net::UnixListener::bind(path)?)
    }

    /// Waits for a connection. See accept(2).
    ///
    /// # Errors
    ///
    /// As those of [`TcpListener::accept`](super::TcpListener::accept).
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let call = |listener: &net::UnixListener| listener.accept();
        let (stream, address) = self.0.until_done(Direction::In, call)?;
        Ok((UnixStream::from_std(stream)?, address))
    }
}

/// A Unix socket for datagrams.
pub struct UnixDatagram(Source<net::UnixDatagram>);

socket!(UnixDatagram, net::UnixDatagram, SocketAddr);

impl UnixDatagram {
    /// Makes a socket at a free place of the file system.
    ///
    /// # Errors
    ///
    /// `AddrInUse`: there is a file. Others of bind(2).
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::bind(path)?)
    }

    /// Makes a socket without a name.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`: too many descriptors.
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::unbound()?)
    }

    /// Makes two sockets that are connected with each other. See socketpair(2).
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`: too many descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = net::UnixDatagram::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
    }

    /// Connects to a socket: [`UnixDatagram::send`] then sends to it, and only datagrams from it are received.
    ///
    /// # Errors
    ///
    /// `NotFound`, `ConnectionRefused` and others.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.get().connect(path)
    }

    /// Waits for a datagram. Returns how many bytes of it there was room for, and the sender's address. See
    /// recvfrom(2).
    ///
    /// # Errors
    ///
    /// `TimedOut` when the read deadline has passed.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let call = |socket: &net::UnixDatagram| socket.recv_from(buffer);
        self.0.until_done(Direction::In, call)
    }

    /// As [`UnixDatagram::recv_from`], without the sender.
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::recv_from`].
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(&self.0, buffer, 0)
    }

    /// Sends a datagram to the socket to which this one is connected. Waits for room in the receiver's queue. See
    /// send(2).
    ///
    /// # Errors
    ///
    /// `TimedOut` when the write deadline has passed; `NotConnected`; `EMSGSIZE` if the datagram is too large.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        send(&self.0, bytes)
    }

    /// Sends a datagram to a socket in the file system if there is room in its queue now. It cannot wait: the kernel
    /// does not tell when there is room, unless the two are connected.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: there is no room; `NotFound`, `ConnectionRefused` and others.
    pub fn try_send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.0.get().send_to(bytes, path)
    }

    /// Ends receiving, sending or both, also for threads that wait. See shutdown(2).
    ///
    /// # Errors
    ///
    /// Those of shutdown(2).
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.get().shutdown(how)
    }
}
