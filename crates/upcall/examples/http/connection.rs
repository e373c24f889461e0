//! One connection of a small HTTP/1.1 server (RFC 9112): requests are read and answered one after the other.
//!
//! - Requests may come in pieces, or several at once (pipelining): answers go out together when no whole request
//!   is left to answer.
//! - A head has at most [`MAX_HEAD`] bytes and a body [`MAX_BODY`]; what is longer is answered with 431 and 413,
//!   what is no request with 400, a body without a known length with 501, and then the connection ends.
//! - There is no buffer before the first byte comes, and a small one between requests: many connections are idle.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::time::{Duration, SystemTime};

/// How long a request's head may be.
pub const MAX_HEAD: usize = 8 << 10;
/// How long its body may be.
pub const MAX_BODY: usize = 1 << 20;
const MAX_HEADERS: usize = 64;
/// What an idle connection has for what may come.
const SMALL: usize = 512;

/// A connection whose calls can be bounded in time.
pub trait Connection: Read + Write {
    /// All calls together, from now on until this is called again, may last for `time`.
    fn limit(&mut self, time: Duration);

    /// Waits until there is something to read, or the end.
    fn wait(&mut self) -> io::Result<()>;

    /// There is nothing more to say.
    fn end_writing(&mut self) -> io::Result<()>;
}

/// How long things may last.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Between two requests; without end if it is not said.
    pub idle: Option<Duration>,
    /// From the first byte of a request to its last.
    pub request: Option<Duration>,
}

/// A request.
#[derive(Debug)]
pub struct Request<'a> {
    /// GET and so on.
    pub method: &'a str,
    /// The target.
    pub path: &'a str,
    /// What came behind the head.
    pub body: &'a [u8],
}

/// An answer: status, and the body, which is text.
pub type Response = (u16, Cow<'static, [u8]>);

/// What there is at the front of the buffer.
enum Front {
    /// A part of a request; how long it is in all, if that is known.
    Part(usize),
    /// A request of so many bytes.
    Whole(usize),
    /// It cannot be answered, but with this status.
    Bad(u16),
    /// The client waits for a word before it sends the body.
    Expects(usize),
}

#[derive(PartialEq, Eq)]
enum Next {
    Read,
    End,
}

/// Serves one connection to its end. An error is that of the connection.
pub fn serve(
    stream: &mut impl Connection,
    limits: Limits,
    answer: impl Fn(&Request<'_>) -> Response,
) -> io::Result<()> {
    let mut input: Vec<u8> = Vec::new();
    let mut output = Vec::new();
    let mut told_to_go_on = false;
    loop {
        if input.is_empty() {
            limit(stream, limits.idle);
        }
        let before = input.len();
        let count = match read_some(stream, &mut input) {
            // Nobody waits for an answer.
            Err(error) if error.kind() == io::ErrorKind::TimedOut && before == 0 => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                refuse(&mut output, 408);
                return part(stream, &output);
            }
            other => other?,
        };
        if count == 0 {
            return Ok(());
        }
        if before == 0 {
            limit(stream, limits.request);
        }
        let mut done = 0;
        let next = loop {
            match take(&input[done..], &answer, &mut output) {
                (Front::Whole(length), goes_on) => {
                    done += length;
                    told_to_go_on = false;
                    if !goes_on {
                        break Next::End;
                    }
                    if done == input.len() {
                        break Next::Read;
                    }
                }
                (Front::Bad(status), _) => {
                    refuse(&mut output, status);
                    return part(stream, &output);
                }
                (Front::Expects(length), _) => {
                    if !told_to_go_on {
                        output.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    told_to_go_on = true;
                    input.reserve(length.saturating_sub(input.len() - done));
                    break Next::Read;
                }
                (Front::Part(length), _) => {
                    input.reserve(length.saturating_sub(input.len() - done));
                    break Next::Read;
                }
            }
        };
        input.drain(..done);
        if !output.is_empty() {
            stream.write_all(&output)?;
        }
        if next == Next::End {
            return Ok(());
        }
        output.clear();
        if done > 0 && input.is_empty() {
            input.shrink_to(SMALL);
            output.shrink_to(SMALL);
        } else if done > 0 {
            // The next one has begun.
            limit(stream, limits.request);
        }
    }
}

fn limit(stream: &mut impl Connection, time: Option<Duration>) {
    if let Some(time) = time {
        stream.limit(time);
    }
}

/// How long a client that was refused may take to read that.
const PARTING: Duration = Duration::from_secs(1);

/// Says a last word. What the client still sends is read: a connection that is closed with unread bytes is reset,
/// and the last word may be lost.
fn part(stream: &mut impl Connection, word: &[u8]) -> io::Result<()> {
    stream.limit(PARTING);
    stream.write_all(word)?;
    stream.end_writing()?;
    let mut unread = [0; SMALL];
    while !matches!(stream.read(&mut unread), Ok(0) | Err(_)) {}
    Ok(())
}

/// Reads what there is room for, and makes room if there is none.
#[inline]
fn read_some(stream: &mut impl Connection, input: &mut Vec<u8>) -> io::Result<usize> {
    let before = input.len();
    if input.capacity() == 0 {
        // A connection that never says a word needs no buffer, and a thread that never allocates nothing of malloc(3).
        stream.wait()?;
    }
    if input.capacity() == before {
        input.reserve(before.max(SMALL));
    }
    input.resize(input.capacity(), 0);
    let result = stream.read(&mut input[before..]);
    input.truncate(before + *result.as_ref().unwrap_or(&0));
    result
}

/// Answers the request at the front, if it is whole; says also whether the connection goes on after it.
#[inline(never)]
fn take(
    bytes: &[u8],
    answer: &impl Fn(&Request<'_>) -> Response,
    output: &mut Vec<u8>,
) -> (Front, bool) {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(httparse::Status::Partial) if bytes.len() <= MAX_HEAD => return (Front::Part(0), true),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return (Front::Bad(431), false),
        Err(httparse::Error::Version) => return (Front::Bad(505), false),
        Err(_) => return (Front::Bad(400), false),
    };
    let (Some(method), Some(path), Some(version)) = (head.method, head.path, head.version) else {
        return (Front::Bad(400), false);
    };
    let mut body = None;
    let mut goes_on = version == 1;
    let (mut hosts, mut expects) = (0, false);
    for header in head.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        let value = header.value.trim_ascii();
        if is("content-length") {
            let number = std::str::from_utf8(value).ok().filter(|text| {
                !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
            });
            // A number that is too large for any is too large for us.
            let number = number.map(|text| text.parse().unwrap_or(usize::MAX));
            if number.is_none() || body.is_some_and(|known| number != Some(known)) {
                return (Front::Bad(400), false);
            }
            body = number;
        } else if is("transfer-encoding") {
            return (Front::Bad(501), false);
        } else if is("connection") {
            for word in value.split(|byte| *byte == b',') {
                let word = word.trim_ascii();
                if word.eq_ignore_ascii_case(b"close") {
                    goes_on = false;
                } else if word.eq_ignore_ascii_case(b"keep-alive") && version == 0 {
                    goes_on = true;
                }
            }
        } else if is("host") {
            hosts += 1;
        } else if is("expect") {
            expects = value.eq_ignore_ascii_case(b"100-continue");
        }
    }
    if hosts > 1 || hosts == 0 && version == 1 {
        return (Front::Bad(400), false);
    }
    let body = body.unwrap_or(0);
    if body > MAX_BODY {
        return (Front::Bad(413), false);
    }
    let all = length + body;
    if bytes.len() < all {
        let only_head = expects && bytes.len() == length;
        return match only_head {
            true => (Front::Expects(all), true),
            false => (Front::Part(all), true),
        };
    }
    let request = Request {
        method,
        path,
        body: &bytes[length..all],
    };
    let (status, text) = answer(&request);
    respond(output, status, &text, version, goes_on, method != "HEAD");
    (Front::Whole(all), goes_on)
}

fn refuse(output: &mut Vec<u8>, status: u16) {
    respond(output, status, reason(status).as_bytes(), 1, false, true);
}

fn respond(output: &mut Vec<u8>, status: u16, text: &[u8], version: u8, goes_on: bool, body: bool) {
    let connection = match (version, goes_on) {
        (0, true) => "Connection: keep-alive\r\n",
        (_, false) => "Connection: close\r\n",
        _ => "",
    };
    // A vector takes everything.
    let _ = write!(
        output,
        "HTTP/1.1 {status} {}\r\nDate: {}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\n{connection}\r\n",
        reason(status),
        httpdate::HttpDate::from(SystemTime::now()),
        text.len(),
    );
    if body {
        output.extend_from_slice(text);
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Unknown",
    }
}
