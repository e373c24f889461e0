//! A web server with a thread for each connection.
//!
//! ```text
//! cargo run --release -p upcall --example http -- 127.0.0.1:8080
//! curl http://127.0.0.1:8080/
//! wrk -t1 -c64 -d10s http://127.0.0.1:8080/
//! ```
//!
//! `GET /` answers "Hello, world!", `POST /echo` what came.

mod client;
mod connection;

use std::error::Error;
use std::time::Duration;

use client::Client;
use connection::{Connection, Limits, Request, Response};
use upcall::net::TcpListener;
use upcall::{thread, time};

const LIMITS: Limits = Limits {
    idle: Some(Duration::from_secs(60)),
    request: Some(Duration::from_secs(10)),
};
/// How long a connection that cannot be accepted for want of descriptors or memory waits.
const BREATH: Duration = Duration::from_millis(10);

fn answer(request: &Request<'_>) -> Response {
    match (request.method, request.path) {
        ("GET" | "HEAD", "/") => (200, b"Hello, world!\n".into()),
        ("POST", "/echo") => (200, request.body.to_vec().into()),
        (_, "/" | "/echo") => (405, b"not by this method\n".into()),
        _ => (404, b"there is nothing here\n".into()),
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
