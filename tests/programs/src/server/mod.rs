//! Servers under load: started, waited for, driven by many connections, ended by a signal.
//!
//! Rejected: a load generator program. It would be compared too, and could not check every value.

pub mod memcached;
pub mod redis;

use crate::case::{Case, repeats, verbatim};
use crate::guard::{Running, limit};
use crate::program::{Outcome, Program};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

/// One connection, for line-based protocols with counted blocks.
pub struct Connection {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects; every read is bounded by the hang guard's [`limit`].
    ///
    /// # Errors
    ///
    /// When nobody listens there.
    pub fn open(address: &Address) -> io::Result<Self> {
        let (reader, writer): (Box<dyn Read + Send>, Box<dyn Write + Send>) = match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(limit()))?;
                (Box::new(stream.try_clone()?), Box::new(stream))
            }
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(limit()))?;
                stream.set_nodelay(true)?;
                (Box::new(stream.try_clone()?), Box::new(stream))
            }
        };
        Ok(Connection {
            reader: BufReader::new(reader),
            writer,
        })
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// When the server went away.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    /// Receives a line that must be this one (without its end).
    ///
    /// # Errors
    ///
    /// When another line or none comes.
    pub fn expect(&mut self, expected: &str) -> io::Result<()> {
        let line = self.line()?;
        if line == expected {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the answer is `{line}`, not `{expected}`"
        )))
    }

    /// Receives a line, without its end.
    ///
    /// # Errors
    ///
    /// When none comes.
    pub fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the connection ended"));
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Receives a block that must be these bytes, and the line end behind it.
    ///
    /// # Errors
    ///
    /// When other bytes or too few come.
    pub fn expect_block(&mut self, expected: &[u8]) -> io::Result<()> {
        let mut block = vec![0; expected.len() + 2];
        self.reader.read_exact(&mut block)?;
        if &block[..expected.len()] == expected && block.ends_with(b"\r\n") {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "another value of {} bytes came",
            expected.len()
        )))
    }
}

/// A value that only this connection and turn would store.
pub fn value(connection: usize, turn: usize) -> Vec<u8> {
    let seed = connection * 1_000_003 + turn * 7919;
    (0..seed % 3000 + 1)
        .map(|at| (seed + at * at) as u8)
        .collect()
}

/// How a server is started, driven and ended.
pub struct Service<'a> {
    /// The server.
    pub program: Program,
    /// Where it listens; asked until there is an answer.
    pub address: &'a dyn Fn(&Path) -> Option<Address>,
    /// What each of the connections does; it is told its number.
    pub talk: &'a (dyn Fn(Connection, usize) -> io::Result<()> + Sync),
    /// How many connections, each driven by a thread of the test.
    pub connections: usize,
    /// What one last connection checks.
    pub after: &'a dyn Fn(Connection) -> io::Result<()>,
}

impl fmt::Debug for Service<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// Runs the service natively and launched, each under load until SIGTERM, and compares.
///
/// # Panics
///
/// When an answer is wrong or the endings differ.
pub fn parity(case: &Case, service: &Service<'_>) {
    let start = |dir: &Path| service.program.start(dir, None);
    let native = drive(service, &case.fresh("native"), start, |_, _| ());
    assert!(
        native.status.success(),
        "the native server: {}\n{}",
        native.ending(),
        native.talk()
    );
    for turn in 1..=repeats() {
        let dir = case.fresh("launched");
        let start = |dir: &Path| service.program.start(dir, Some(case.launcher()));
        let launched = drive(service, &dir, start, |_, _| ());
        case.compare(turn, &native, &launched, verbatim);
    }
}

/// Runs the service under load until SIGTERM. `beside` is called when the load begins, with the process id and a
/// flag. It must return when the flag is true: then the load is over.
///
/// # Panics
///
/// When the server does not come to listen, or an answer is wrong.
pub fn drive(
    service: &Service<'_>,
    dir: &Path,
    start: impl FnOnce(&Path) -> Running,
    beside: impl FnOnce(libc::pid_t, &AtomicBool) + Send,
) -> Outcome {
    let mut running = start(dir);
    let Some(address) = listening(service, dir, &mut running) else {
        running.give_up("nobody listens within the hang guard's limit");
    };
    let (talk, pid, over) = (service.talk, running.pid(), AtomicBool::new(false));
    let results: Vec<io::Result<()>> = thread::scope(|scope| {
        let (address, over) = (&address, &over);
        scope.spawn(move || beside(pid, over));
        let threads: Vec<_> = (0..service.connections)
            .map(|number| scope.spawn(move || talk(Connection::open(address)?, number)))
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Ordering::Relaxed);
        results
            .into_iter()
            .map(|result| result.expect("no client panics"))
            .collect()
    });
    for (number, result) in results.into_iter().enumerate() {
        if let Err(error) = result {
            running.give_up(&format!("connection {number}: {error}"));
        }
    }
    if let Err(error) = Connection::open(&address).and_then(service.after) {
        running.give_up(&format!("after the load: {error}"));
    }
    running.signal(libc::SIGTERM);
    running.finish()
}

/// Connects again and again until the server listens. A server does not announce that.
fn listening(service: &Service<'_>, dir: &Path, running: &mut Running) -> Option<Address> {
    let deadline = Instant::now() + limit();
    while Instant::now() < deadline {
        if let Some(address) = (service.address)(dir)
            && Connection::open(&address).is_ok()
        {
            return Some(address);
        }
        if let Some(status) = running.ended() {
            panic!("the server ended before it listened: {status}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    None
}
