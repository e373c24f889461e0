//! UDP.

use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};

use super::socket;
use super::stream::{receive, send};
use crate::io::source::{Direction, Source};

/// A socket for datagrams. See udp(7).
pub struct UdpSocket(Source<net::UdpSocket>);

socket!(UdpSocket, net::UdpSocket, SocketAddr);

impl UdpSocket {
    /// Makes a socket at the first of the addresses that is free.
    ///
    /// # Errors
    ///
    /// Of the last address: `AddrInUse` and others; those of the look-up of a name.
    pub fn bind(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        Self::from_std(net::UdpSocket::bind(addresses)?)
    }

    /// Connects to an address: [`UdpSocket::send`] then sends to it, and only datagrams from it are received. Does not
    /// wait.
    ///
    /// # Errors
    ///
    /// Those of connect(2).
    pub fn connect(&self, addresses: impl ToSocketAddrs) -> io::Result<()> {
        self.0.get().connect(addresses)
    }

    /// Waits for a datagram. Returns how many bytes of it there was room for, and the sender's address. See
    /// recvfrom(2).
    ///
    /// # Errors
    ///
    /// `TimedOut` when the read deadline has passed; `ConnectionRefused` if an earlier datagram found no receiver.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let call = |socket: &net::UdpSocket| socket.recv_from(buffer);
        self.0.until_done(Direction::In, call)
    }

    /// As [`UdpSocket::recv_from`], and leaves the datagram there.
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv_from`].
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let call = |socket: &net::UdpSocket| socket.peek_from(buffer);
        self.0.until_done(Direction::In, call)
    }

    /// Sends a datagram to the first of the addresses. Waits for room. See sendto(2).
    ///
    /// # Errors
    ///
    /// `TimedOut` when the write deadline has passed; `EMSGSIZE` if the datagram is too large.
    pub fn send_to(&self, bytes: &[u8], addresses: impl ToSocketAddrs) -> io::Result<usize> {
        let Some(address) = addresses.to_socket_addrs()?.next() else {
            let what = "there is no address to send to";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        let call = |socket: &net::UdpSocket| socket.send_to(bytes, address);
        self.0.until_done(Direction::Out, call)
    }

    /// As [`UdpSocket::recv_from`], for datagrams from the address to which the socket is connected.
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv_from`].
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(&self.0, buffer, 0)
    }

    /// As [`UdpSocket::send_to`], to the address to which the socket is connected.
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::send_to`].
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        send(&self.0, bytes)
    }

    /// Returns the address to which it is connected.
    ///
    /// # Errors
    ///
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }
}
