//! A connection over the crate's sockets.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use upcall::net::{Deadlines, Shutdown, TcpStream};

use super::Connection;

/// A connection, with its deadline.
pub struct Client(pub TcpStream);

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection for Client {
    fn limit(&mut self, time: Duration) {
        self.0.set_deadline(Some(Instant::now() + time));
    }

    fn wait(&mut self) -> io::Result<()> {
        self.0.peek(&mut [0]).map(drop)
    }

    fn end_writing(&mut self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }
}
