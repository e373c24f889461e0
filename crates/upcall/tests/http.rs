//! What the example of a web server answers.

mod modes;

#[path = "../examples/http/connection.rs"]
mod connection;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use connection::{Connection, Limits, MAX_BODY, MAX_HEAD, Response};
use upcall::net::{Deadlines, Shutdown, UnixStream};

struct Client(UnixStream);

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Connection for Client {
    fn limit(&mut self, time: Duration) {
        self.0.set_deadline(Some(Instant::now() + time));
    }

    fn wait(&mut self) -> std::io::Result<()> {
        self.0.peek(&mut [0]).map(drop)
    }

    fn end_writing(&mut self) -> std::io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }
}

const LIMITS: Limits = Limits {
    idle: Some(Duration::from_secs(60)),
    request: Some(Duration::from_secs(60)),
};

/// A connection to a server.
fn connect(limits: Limits) -> UnixStream {
    let (here, there) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        connection::serve(&mut Client(there), limits, |request| -> Response {
            let text = format!("{} {} ", request.method, request.path);
            (200, [text.as_bytes(), request.body].concat().into())
        })
    });
    here
}

/// Everything that the server says to these pieces.
fn conversation(pieces: &[&[u8]]) -> String {
    let mut here = connect(LIMITS);
    for piece in pieces {
        // A server that has refused already does not read on.
        if here.write_all(piece).is_err() {
            break;
        }
        if pieces.len() > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let _ = here.shutdown(Shutdown::Write);
    let mut said = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = here.read(&mut part).unwrap();
        if count == 0 {
            break;
        }
        said.extend_from_slice(&part[..count]);
    }
    String::from_utf8(said).unwrap()
}

/// The statuses and bodies of the answers.
fn answers(mut said: &str) -> Vec<(u16, String)> {
    let mut found = Vec::new();
    while let Some((head, rest)) = said.split_once("\r\n\r\n") {
        let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3]
            .parse()
            .unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |length| length.parse().unwrap());
        assert!(status == 100 || head.contains("\r\nDate: "), "{head}");
        found.push((status, rest[..length].to_owned()));
        said = &rest[length..];
    }
    assert_eq!(said, "");
    found
}

fn statuses(request: &str) -> Vec<u16> {
    answers(&conversation(&[request.as_bytes()]))
        .into_iter()
        .map(|(status, _)| status)
        .collect()
}

fn requests_are_answered_in_order() {
    let said = conversation(&[b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"]);
    assert_eq!(answers(&said), [(200, "GET /a ".to_owned())]);
    // Several at once, the last one with a body.
    let together: &[u8] = b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n\
        POST /3 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody";
    let expected = ["GET /1 ", "GET /2 ", "POST /3 body"].map(|text| (200, text.to_owned()));
    assert_eq!(answers(&conversation(&[together])), expected);
    // In pieces, wherever they are cut.
    for at in (1..together.len()).step_by(7) {
        let (one, other) = together.split_at(at);
        assert_eq!(answers(&conversation(&[one, other])), expected, "{at}");
    }
    let many = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500);
    assert_eq!(statuses(&many), [200; 500]);
}

fn a_connection_goes_on_as_both_say() {
    let twice = |head: &str| format!("{head}\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    for (head, count) in [
        ("GET / HTTP/1.1\r\nHost: x", 2),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: Close", 1),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: a, close", 1),
        ("GET / HTTP/1.0", 1),
        ("GET / HTTP/1.0\r\nConnection: keep-alive", 2),
    ] {
        assert_eq!(statuses(&twice(head)).len(), count, "{head}");
    }
    // HEAD says how long it would be, and no more.
    let said = conversation(&[b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"]);
    assert!(said.contains("Content-Length: 7\r\n") && said.ends_with("\r\n\r\n"));
}

fn what_is_no_request_is_refused() {
    let long = "x".repeat(MAX_HEAD);
    let large = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        MAX_BODY + 1
    );
    let many = "A: b\r\n".repeat(65);
    for (request, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (
            "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n".to_owned(),
            400,
        ),
        ("GET / HTTP/2.0\r\nHost: x\r\n\r\n".to_owned(), 505),
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431),
        (large, 413),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n"
                .to_owned(),
            413,
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n".to_owned(),
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
                .to_owned(),
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            501,
        ),
    ] {
        assert_eq!(
            statuses(&request),
            [status],
            "{}",
            &request[..40.min(request.len())]
        );
    }
}

fn bodies_may_be_as_long_as_the_limit() {
    let mut request =
        format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_BODY}\r\n\r\n").into_bytes();
    request.resize(request.len() + MAX_BODY, b'b');
    let mut here = connect(LIMITS);
    let mut writes = here.try_clone().unwrap();
    let writer = std::thread::spawn(move || writes.write_all(&request));
    let mut head = [0; 12];
    here.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    writer.join().unwrap().unwrap();
}

fn a_client_that_asks_is_told_to_go_on() {
    let mut here = connect(LIMITS);
    here.write_all(
        b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
    )
    .unwrap();
    let mut word = [0; 25];
    here.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"HTTP/1.1 100 Continue\r\n\r\n");
    here.write_all(b"ok").unwrap();
    here.shutdown(Shutdown::Write).unwrap();
    let mut said = String::new();
    here.read_to_string(&mut said).unwrap();
    assert_eq!(answers(&said), [(200, "POST / ok".to_owned())]);
}

/// However busily it sends.
fn a_request_that_does_not_end_is_timed_out() {
    let mut here = connect(Limits {
        idle: Some(Duration::from_secs(60)),
        request: Some(Duration::from_millis(30)),
    });
    let mut writes = here.try_clone().unwrap();
    std::thread::spawn(move || {
        let begun = writes.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nA: ");
        while begun.is_ok() && writes.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let mut status = [0; 12];
    here.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 408");
}

fn an_idle_connection_ends_without_a_word() {
    let mut here = connect(Limits {
        idle: Some(Duration::from_millis(10)),
        request: Some(Duration::from_secs(60)),
    });
    let mut said = String::new();
    here.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

fn main() {
    modes::main(cases! {
        requests_are_answered_in_order
        a_connection_goes_on_as_both_say
        what_is_no_request_is_refused
        bodies_may_be_as_long_as_the_limit
        a_client_that_asks_is_told_to_go_on
        a_request_that_does_not_end_is_timed_out
        an_idle_connection_ends_without_a_word
    });
}
