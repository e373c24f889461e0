//! `memcached_load`: load for a memcached server. Each connection has a thread and asks again as soon as it has its answer,
//! nine times of ten for a value, else to set one.
//!
//! The series are those of all loads of servers: `throughput` in answers a second, and `p95`, `p99` and `slowest` in
//! nanoseconds. Debian has no load generator for memcached's protocol.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::workload::{Failure, Figures, Params};

const VALUE: &str = "a value of some forty bytes, as they often are";
const KEYS: usize = 1000;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection with room for an answer.
struct Connection {
    server: TcpStream,
    answer: [u8; 512],
}

impl Connection {
    fn open(port: u16) -> io::Result<Self> {
        let server = TcpStream::connect(("127.0.0.1", port))?;
        server.set_nodelay(true)?;
        server.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            server,
            answer: [0; 512],
        })
    }

    /// Asks, and reads an answer that ends in `last`.
    fn ask(&mut self, request: &str, last: &[u8]) -> io::Result<()> {
        self.server.write_all(request.as_bytes())?;
        let mut length = 0;
        while !self.answer[..length].ends_with(last) {
            match self.server.read(&mut self.answer[length..])? {
                0 => {
                    let said = String::from_utf8_lossy(&self.answer[..length]).into_owned();
                    return Err(io::Error::other(format!("an answer of {said:?}")));
                }
                more => length += more,
            }
        }
        Ok(())
    }

    fn set(&mut self, key: usize) -> io::Result<()> {
        let length = VALUE.len();
        self.ask(
            &format!("set key{key} 0 0 {length}\r\n{VALUE}\r\n"),
            b"STORED\r\n",
        )
    }

    fn get(&mut self, key: usize) -> io::Result<()> {
        self.ask(&format!("get key{key}\r\n"), b"END\r\n")
    }
}

/// Loads the server until `end`. Returns how long each answer took, in nanoseconds.
fn load(mut connection: Connection, number: usize, end: Instant) -> io::Result<Histogram<u64>> {
    let mut took = histogram();
    let mut turn = number;
    loop {
        let before = Instant::now();
        if before >= end {
            return Ok(took);
        }
        turn += 1;
        let key = turn * 7 % KEYS;
        match turn % 10 {
            0 => connection.set(key)?,
            _ => connection.get(key)?,
        }
        took.saturating_record(before.elapsed().as_nanos() as u64);
    }
}

/// Of nanoseconds up to a quarter of an hour, to a thousandth.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1_000_000_000_000, 3).expect("bounds in order, and digits")
}

/// Loads the server at `port=`.
///
/// # Errors
///
/// There is no such server, or it does not answer.
pub fn run(params: &Params) -> Result<Figures, Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("memcached: {error}"));
    let port = params.number("port", 11211)?;
    let port = u16::try_from(port).map_err(|_| Failure::Usage(format!("port={port}")))?;
    let connections = params.number("connections", 2)?;
    let seconds = Duration::from_secs(params.number("seconds", 1)? as u64);
    let mut first = Connection::open(port).map_err(failed)?;
    for key in 0..KEYS {
        first.set(key).map_err(failed)?;
    }
    let opened: Result<Vec<_>, _> = (0..connections).map(|_| Connection::open(port)).collect();
    let opened = opened.map_err(failed)?;
    let began = Instant::now();
    let start = |(number, connection): (usize, Connection)| {
        thread::Builder::new().spawn(move || load(connection, number, began + seconds))
    };
    let threads: Result<Vec<_>, _> = opened.into_iter().enumerate().map(start).collect();
    let mut took = histogram();
    for thread in threads.map_err(failed)? {
        let one = thread
            .join()
            .map_err(|_| Failure::Failed("a connection's thread panicked".into()))?;
        took.add(one.map_err(failed)?)
            .map_err(|error| Failure::Failed(format!("adding up: {error}")))?;
    }
    let passed = began.elapsed().as_secs_f64();
    if took.is_empty() {
        return Err(Failure::Failed("no answer came in time".into()));
    }
    let mut figures = Figures::default();
    figures.push("throughput", took.len() as f64 / passed);
    figures.push("p95", took.value_at_quantile(0.95) as f64);
    figures.push("p99", took.value_at_quantile(0.99) as f64);
    figures.push("slowest", took.max() as f64);
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that answers what `answer` makes of a request.
    fn served(answer: fn(&str) -> &'static str) -> Result<Figures, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut buffer = [0; 512];
                    while let Ok(length @ 1..) = stream.read(&mut buffer) {
                        let request = String::from_utf8_lossy(&buffer[..length]);
                        let said = answer(&request);
                        if said.is_empty() || stream.write_all(said.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let words = [format!("port={port}"), "connections=2".into()];
        run(&Params::parse(words.into_iter()).unwrap())
    }

    #[test]
    fn answers_are_counted() {
        let figures = served(|request| match request.starts_with("set") {
            true => "STORED\r\n",
            false => "VALUE key 0 1\r\nx\r\nEND\r\n",
        });
        let figures = figures.unwrap();
        let of = |series| figures.series(series)[0];
        assert!(of("throughput") > 0.0);
        assert!(of("p95") <= of("p99") && of("p99") <= of("slowest"));
    }

    #[test]
    fn a_server_that_hangs_up_is_a_failure() {
        let Err(Failure::Failed(text)) = served(|_| "") else {
            panic!("not a failure");
        };
        assert!(text.contains("an answer of"), "{text}");
    }
}
