//! TCP.

use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::stream::stream;
use super::{listener, socket};
use crate::io::source::{self, Direction, Source};

/// A connection. See tcp(7).
pub struct TcpStream(Source<net::TcpStream>);

socket!(TcpStream, net::TcpStream, SocketAddr);
stream!(TcpStream, SocketAddr, glues: true);

impl TcpStream {
    /// Connects to the first of the addresses that answers. Each attempt may take as long as the kernel tries (about
    /// two minutes). [`TcpStream::connect_timeout`] sets a shorter time. See connect(2).
    ///
    /// # Errors
    ///
    /// Of the last address: `ConnectionRefused`, `TimedOut`, `EMFILE` and others; those of the look-up of a name.
    pub fn connect(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        let mut last = None;
        for address in addresses.to_socket_addrs()? {
            match Self::connect_timeout(&address, Duration::MAX) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "there is no address to try")
        }))
    }

    /// Connects within that time.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect`]; `InvalidInput` if the time is zero.
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        // Waits in poll(2), on a non-blocking socket.
        Self::from_std(net::TcpStream::connect_timeout(address, timeout)?)
    }

    /// Returns true if small pieces are sent at once (TCP_NODELAY).
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.get().nodelay()
    }

    /// Sets [`TcpStream::nodelay`].
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get().set_nodelay(nodelay)
    }

    /// Returns how many routers packets may pass (IP_TTL).
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets [`TcpStream::ttl`].
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_ttl(ttl)
    }
}

/// A socket that accepts connections. See listen(2).
pub struct TcpListener(Source<net::TcpListener>);

socket!(TcpListener, net::TcpListener, SocketAddr);
listener!(TcpListener, TcpStream, Incoming);

impl TcpListener {
    /// Listens at the first of the addresses that is free, with SO_REUSEADDR and room for 128 connections that are not
    /// accepted yet, as std does.
    ///
    /// # Errors
    ///
    /// Of the last address: `AddrInUse` and others; those of the look-up of a name.
    pub fn bind(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        Self::from_std(net::TcpListener::bind(addresses)?)
    }

    /// Waits for a connection. See accept(2).
    ///
    /// # Errors
    ///
    /// `TimedOut` when the read deadline has passed. `EMFILE`, `ENFILE`: too many descriptors; the connection keeps
    /// waiting, so the next attempt fails in the same way until descriptors are free.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let flags = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as usize;
        let (socket, address) = self.0.until_done(Direction::In, |listener| {
            // SAFETY: the kernel writes an address of the length that it says.
            unsafe {
                socket2::SockAddr::try_init(|place, length| {
                    let words = [place as usize, length as usize, flags, 0, 0];
                    let listener = listener.as_fd().as_raw_fd();
                    source::call(libc::SYS_accept4, listener, words)
                })
            }
        })?;
        // SAFETY: new, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(socket as i32) };
        let address = address
            .as_socket()
            .ok_or_else(|| io::Error::other("a connection of TCP without an address of IP"))?;
        Ok((TcpStream(Source::new(socket.into())), address))
    }
}
