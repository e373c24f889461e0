//! Asks a server if it answers.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long an answer may take before the server is asked anew: one that starts may take a connection and forget it.
const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(20);

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Address {
    Port(u16),
    Socket(String),
}

/// What a server is asked, and how its answer begins if it is ready.
#[derive(Clone, Debug)]
pub struct Probe {
    pub address: Address,
    pub ask: Vec<u8>,
    pub begins: &'static [u8],
}

impl Probe {
    /// Asks until the server is ready, or `until` the deadline, or while it `runs`; true if it is ready.
    pub fn wait(&self, until: Instant, mut runs: impl FnMut() -> bool) -> bool {
        loop {
            if self.once().unwrap_or(false) {
                return true;
            }
            if Instant::now() >= until || !runs() {
                return false;
            }
            std::thread::sleep(BETWEEN);
        }
    }

    fn once(&self) -> io::Result<bool> {
        match &self.address {
            Address::Port(port) => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
                stream.set_read_timeout(Some(PATIENCE))?;
                self.answers(stream)
            }
            Address::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                self.answers(stream)
            }
        }
    }

    fn answers(&self, mut stream: impl Read + Write) -> io::Result<bool> {
        stream.write_all(&self.ask)?;
        let mut answer = vec![0; self.begins.len().max(1)];
        stream.read_exact(&mut answer)?;
        Ok(answer.starts_with(self.begins))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_that_says_something_else_is_not_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let probe = Probe {
            address: Address::Port(listener.local_addr().unwrap().port()),
            ask: b"PING\r\n".to_vec(),
            begins: b"+PONG",
        };
        std::thread::spawn(move || {
            for answer in [&b"-LOADING"[..], b"+PONG\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut [0; 6]).unwrap();
                stream.write_all(answer).unwrap();
            }
        });
        assert!(!probe.once().unwrap());
        assert!(probe.once().unwrap());
        assert!(!probe.wait(Instant::now(), || true));
    }
}
