//! A web server with a thread for each connection.
//!
//! ```text
//! cargo run --release -p upcall --example http -- 127.0.0.1:8080
//! curl http://127.0.0.1:8080/
//! wrk -t1 -c64 -d10s http://127.0.0.1:8080/
//! ```
//!
//! `GET /` answers "Hello, world!", `POST /echo` what came.

mod connection;

use std::error::Error;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use connection::{Connection, Limits, Request, Response};
use upcall::net::{Deadlines, Shutdown, TcpListener, TcpStream};
use upcall::{thread, time};

const LIMITS: Limits = Limits {
    idle: Duration::from_secs(60),
    request: Duration::from_secs(10),
};
/// How long a connection that cannot be accepted for want of descriptors or memory waits.
const BREATH: Duration = Duration::from_millis(10);

/// A connection, with its deadline.
struct Client(TcpStream);

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

fn answer(request: &Request<'_>) -> Response {
    match (request.method, request.path) {
        ("GET" | "HEAD", "/") => (200, b"Hello, world!\n".to_vec()),
        ("POST", "/echo") => (200, request.body.to_vec()),
        (_, "/" | "/echo") => (405, b"not by this method\n".to_vec()),
        _ => (404, b"there is nothing here\n".to_vec()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8080");
    upcall::Runtime::start()?;
    let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
    println!("http://{}/", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                eprintln!("a connection is not accepted: {error}");
                time::sleep(BREATH);
                continue;
            }
        };
        stream.set_nodelay(true)?;
        let started = thread::Builder::new().spawn(move || {
            // An end that is no answer is the client's: nobody is left to tell.
            let _ = connection::serve(&mut Client(stream), LIMITS, answer);
        });
        if let Err(error) = started {
            eprintln!("a connection has no thread: {error}");
            time::sleep(BREATH);
        }
    }
    Ok(())
}
