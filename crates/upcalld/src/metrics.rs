//! What the daemon counts, for Prometheus: served over HTTP at a socket of its own, in the text format OpenMetrics.
//!
//! 1. The socket is where the configuration says. Only the daemon's user may connect.
//! 2. A request is read, as far as it goes at once; the answer is written at once; the connection is closed. No descriptor is waited
//!    for but in [`Exporter::epoll`], which the daemon's loop watches. So nothing is woken where nobody asks.
//! 3. [`MOST`] connections at once. A further one takes the place of the oldest.

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::Timespec;

use crate::trouble::{Exit, Trouble};

/// Connections at once.
const MOST: usize = 16;
/// Of a request, in bytes.
const LONGEST: usize = 4096;
const LISTENER: u64 = u64::MAX;

/// Why a program was refused.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub struct Refusal {
    /// In a word.
    pub reason: &'static str,
}

/// What is counted.
#[derive(Default)]
pub struct Counts {
    /// Programs that have turns or shares.
    pub programs: Gauge,
    /// Of these, those that wait for a processor.
    pub waiting: Gauge,
    /// Programs that are observed: each has a page.
    pub observed: Gauge,
    /// Connections.
    pub connections: Gauge,
    /// Processors that are divided.
    pub processors: Gauge,
    /// 1: the scheduler has all kernel threads.
    pub scheduler: Gauge,
    /// How often it has ended by itself.
    pub scheduler_ends: Counter,
    /// How often it has run one that had given way, since nobody else of its space could run there.
    pub upcalls: Counter,
    /// How often it has run one at once that woke.
    pub at_once: Counter,
    /// How often it has run one that had given way for long.
    pub overdue: Counter,
    /// How often it was decided who has which processor.
    pub divisions: Counter,
    /// Processors that a program was given.
    pub moves: Counter,
    /// Programs that joined.
    pub joined: Counter,
    /// Programs that were not served.
    pub refused: Family<Refusal, Counter>,
}

impl Counts {
    /// All of it, as text.
    pub fn text(&self) -> String {
        let mut registry = Registry::with_prefix("upcalld");
        let gauges = [
            (
                "programs",
                "Programs that have turns or shares",
                &self.programs,
            ),
            (
                "waiting",
                "Programs that wait for a processor",
                &self.waiting,
            ),
            (
                "observed",
                "Pages of programs that are observed",
                &self.observed,
            ),
            (
                "connections",
                "Connections of programs and commands",
                &self.connections,
            ),
            ("processors", "Processors of the machine", &self.processors),
            (
                "scheduler",
                "1 if the scheduler has all kernel threads",
                &self.scheduler,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        let counters = [
            (
                "divisions",
                "Decisions who has which processor",
                &self.divisions,
            ),
            ("moves", "Processors that a program was given", &self.moves),
            ("joined", "Programs that were served", &self.joined),
            (
                "scheduler_ends",
                "Schedulers that have ended by themselves",
                &self.scheduler_ends,
            ),
            (
                "scheduler_upcalls",
                "Standbys that were run because nobody else of their space could run there",
                &self.upcalls,
            ),
            (
                "scheduler_at_once",
                "Kernel threads of spaces that were run at once when they woke",
                &self.at_once,
            ),
            (
                "scheduler_overdue",
                "Standbys that were run because they had waited for long",
                &self.overdue,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let help = "Connections and questions that were refused";
        registry.register("refused", help, self.refused.clone());
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }

    /// A program is refused.
    pub fn refuse(&self, reason: &'static str) {
        self.refused.get_or_create(&Refusal { reason }).inc();
    }
}

/// Serves what is counted, as long as this lives.
pub struct Exporter {
    listener: UnixListener,
    /// Where it is.
    pub path: PathBuf,
    epoll: OwnedFd,
    /// The oldest first.
    asking: VecDeque<Asking>,
}

/// Who asks.
struct Asking {
    socket: UnixStream,
    request: Vec<u8>,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Exporter {
    /// Listens at this path.
    ///
    /// # Errors
    ///
    /// Somebody else serves there, or it cannot be made.
    pub fn new(path: &Path) -> Result<Self, Trouble> {
        let unusable = |evidence: &dyn std::fmt::Display| Trouble {
            exit: Exit::Place,
            what: format!("cannot serve metrics at {}", path.display()),
            evidence: evidence.to_string(),
            remedy:
                "name another path in the configuration (metrics), in a directory that is there"
                    .into(),
        };
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(unusable(&"there is a file that is no socket"));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(unusable(&"somebody else serves there"));
            }
            Ok(_) => fs::remove_file(path).map_err(|error| unusable(&error))?,
            Err(_) => {}
        }
        let listen = || -> Result<(OwnedFd, OwnedFd), Errno> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
            let listener = rustix::net::socket_with(family, kind, flags, None)?;
            rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
            // Nobody can connect before it listens.
            rustix::fs::chmod(path, Mode::from_raw_mode(0o600))?;
            rustix::net::listen(&listener, MOST as i32)?;
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            let about = EventData::new_u64(LISTENER);
            epoll::add(&epoll, &listener, about, EventFlags::IN)?;
            Ok((listener, epoll))
        };
        let (listener, epoll) = listen().map_err(|error| unusable(&error))?;
        Ok(Exporter {
            listener: listener.into(),
            path: path.into(),
            epoll,
            asking: VecDeque::new(),
        })
    }

    /// What becomes readable when [`Exporter::serve`] has something to do.
    pub fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Takes connections, and answers those that have asked. Never waits.
    ///
    /// # Errors
    ///
    /// The kernel gives no descriptor for a connection. To be called again would find the same.
    pub fn serve(&mut self, counts: &Counts) -> std::io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(MOST + 1);
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, room, Some(&Timespec::default())) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => self.accept()?,
                number => self.answer(number as i32, counts),
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> std::io::Result<()> {
        let socket = match self.listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) => {
                return match error.kind() {
                    ErrorKind::WouldBlock
                    | ErrorKind::Interrupted
                    | ErrorKind::ConnectionAborted => Ok(()),
                    _ => Err(error),
                };
            }
        };
        socket.set_nonblocking(true)?;
        let about = EventData::new_u64(socket.as_raw_fd() as u64);
        epoll::add(&self.epoll, &socket, about, EventFlags::IN)?;
        if self.asking.len() == MOST {
            self.asking.pop_front();
        }
        self.asking.push_back(Asking {
            socket,
            request: Vec::new(),
        });
        Ok(())
    }

    fn answer(&mut self, number: i32, counts: &Counts) {
        let found = |one: &Asking| one.socket.as_raw_fd() == number;
        let Some(at) = self.asking.iter().position(found) else {
            return;
        };
        if !self.asking[at].has_asked() {
            return;
        }
        if let Some(mut asking) = self.asking.remove(at) {
            let (status, body) = match asking.request.starts_with(b"GET ") {
                true => ("200 OK", counts.text()),
                false => ("405 Method Not Allowed", String::new()),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\n\
                 Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // It fits a socket's buffer, whether it is read or not. Who is gone needs no answer.
            let _ = asking.socket.write_all((head + &body).as_bytes());
        }
    }
}

impl Asking {
    /// Reads on. Returns true if the request is whole, or there will be no more of it.
    fn has_asked(&mut self) -> bool {
        let mut room = [0; 1024];
        loop {
            match self.socket.read(&mut room) {
                Ok(0) => return true,
                Ok(length) => self.request.extend(&room[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
            let ends = |end: &[u8]| self.request.windows(end.len()).any(|part| part == end);
            if ends(b"\r\n\r\n") || ends(b"\n\n") || self.request.len() > LONGEST {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_of_the_format() {
        let counts = Counts::default();
        counts.programs.set(3);
        counts.refuse("full");
        let text = counts.text();
        for line in [
            "# TYPE upcalld_programs gauge",
            "upcalld_programs 3",
            "# TYPE upcalld_moves counter",
            "upcalld_moves_total 0",
            "upcalld_refused_total{reason=\"full\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
