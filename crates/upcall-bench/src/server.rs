//! `http` and `idle_connections`: a web server with a thread for each connection, whose code is that of the example of the
//! crate upcall.

#[path = "../../upcall/examples/http/connection.rs"]
mod connection;

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

pub use connection::Connection;
use connection::{Limits, Request, Response};

use crate::workload::{Body, Failure, Figures, Params, load, threads::no_thread};

/// Sockets and threads.
pub trait Server: 'static {
    /// A socket that accepts.
    type Listener: Send + 'static;
    /// A connection.
    type Stream: Connection + Send + 'static;

    /// Listens on the loopback interface, at any port.
    fn listen() -> io::Result<(Self::Listener, SocketAddr)>;

    /// Waits for a connection.
    fn accept(listener: &Self::Listener) -> io::Result<Self::Stream>;

    /// Starts a thread that is not joined.
    fn start(body: impl FnOnce() + Send + 'static) -> io::Result<()>;
}

/// The programs of servers.
pub fn programs<S: Server>() -> Vec<(&'static str, Body)> {
    vec![
        ("http", http::<S>),
        ("idle_client", load::idle_client),
        ("idle_connections", idle::<S>),
    ]
}

/// None, as in the peers' programs: no connection of a measurement may end early.
const LIMITS: Limits = Limits {
    idle: None,
    request: None,
};

fn answer(request: &Request<'_>) -> Response {
    match (request.method, request.path) {
        ("GET", "/") if request.body.is_empty() => (200, b"Hello, world!\n".into()),
        _ => (404, Cow::Borrowed(&[])),
    }
}

/// Starts a server with a thread for each connection.
fn serve<S: Server>() -> Result<SocketAddr, Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("the server: {error}"));
    let (listener, address) = S::listen().map_err(failed)?;
    let accepts = move || {
        loop {
            let started = S::accept(&listener).and_then(|mut stream| {
                S::start(move || {
                    // An error is the client's end.
                    let _ = connection::serve(&mut stream, LIMITS, answer);
                })
            });
            if let Err(error) = started {
                no_thread(&error);
            }
        }
    };
    S::start(accepts).map_err(failed)?;
    Ok(address)
}

fn http<S: Server>(params: &Params) -> Result<Figures, Failure> {
    load::http(params, serve::<S>()?)
}

fn idle<S: Server>(params: &Params) -> Result<Figures, Failure> {
    load::allow_descriptors(params)?;
    load::idle(params, serve::<S>()?)
}

/// Kernel threads, or those of the runtime of `upcall run`, and the sockets of std.
pub struct Std;

/// A connection of std.
pub struct StdStream(std::net::TcpStream);

impl Read for StdStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for StdStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection for StdStream {
    /// A limit for each read would cost a system call for each, and is not what is asked for.
    fn limit(&mut self, _time: Duration) {}

    fn wait(&mut self) -> io::Result<()> {
        self.0.peek(&mut [0]).map(drop)
    }

    fn end_writing(&mut self) -> io::Result<()> {
        self.0.shutdown(std::net::Shutdown::Write)
    }
}

impl Server for Std {
    type Listener = std::net::TcpListener;
    type Stream = StdStream;

    fn listen() -> io::Result<(Self::Listener, SocketAddr)> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn accept(listener: &Self::Listener) -> io::Result<StdStream> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(StdStream(stream))
    }

    fn start(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        std::thread::Builder::new().spawn(body).map(drop)
    }
}
