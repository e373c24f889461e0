//! `reactivity`: something happens outside of the program; how soon does the thread run that waits for it?
//!
//! What Danjean and Namyst 2003 are about, and did not measure. One thread waits for events. `threads=` others have
//! `load=` percent of one processor between them:
//!
//! | `load=` | the others |
//! |---|---|
//! | 0 | wait for a semaphore until all is over |
//! | between | get ready all at once every 100 ms, and each has its share of the work to do |
//! | 100 | are always ready |
//!
//! They only compute, and reach no scheduling point while they do. With `wait=epoll` the thread that waits does so in epoll_wait(2), as the
//! loop of a server does, and reads then.
//!
//! # Protocol with the process `events`
//!
//! Standard input is a socket to it, so that events come from a native process on another processor.
//!
//! 1. The waiting thread writes one byte, and reads.
//! 2. A random time later, 0.2 to 1 ms, `events` writes an event: its number, and when that was on the clock that all
//!    processes share.
//! 3. The thread looks at the clock as soon as it has read the event. The difference is a figure `ns`. Then it goes back
//!    to 1, so an event that comes late does not make the next ones late.
//!
//! All that ends after `samples=` events, or after `limit_ms=` milliseconds and one event: some runtimes let it wait for
//! seconds. The first events do not count, `warm_up=` of them or a tenth of that time. An event that is not the next one is a failure. The figure `load` is what the program used of one processor, in percent.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::posix::{nanosleep, now_ns, process_cpu_ns, spin};
use super::threads::{Semaphore, Threads};
use super::{Failure, Figures, Params};

/// How long the load computes before it looks whether all is over.
pub const CHUNK_NS: u64 = 50_000;
/// How often the threads of a load between 0 and 100 % get ready.
pub const PERIOD_NS: u64 = 100_000_000;
/// The length of an event.
pub const EVENT: usize = 16;

/// Turns of [`spin`] that take [`CHUNK_NS`] on a processor that does nothing else.
pub fn chunk() -> u64 {
    const TURNS: u64 = 200_000;
    let time = |_| {
        let begin = now_ns();
        spin(TURNS);
        (now_ns() - begin).max(1)
    };
    let best = (0..20).map(time).min().unwrap_or(1);
    TURNS * CHUNK_NS / best
}

/// What the computing threads have to do.
#[derive(Clone, Copy)]
pub struct Load {
    /// How many there are.
    pub threads: usize,
    /// In percent.
    pub load: usize,
    /// Turns of [`spin`] in a chunk.
    pub turns: u64,
    /// Chunks of each thread in a period.
    pub chunks: u64,
}

impl Load {
    /// The load that `params` ask for.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if there is no such load.
    pub fn of(params: &Params) -> Result<Self, Failure> {
        let threads = params.number("threads", 100)?.max(1);
        let load = params.number("load", 100)?;
        if load > 100 {
            return Err(Failure::Usage(format!("load={load}: 0 to 100 percent")));
        }
        let all = PERIOD_NS / CHUNK_NS * load as u64 / 100;
        Ok(Self {
            threads,
            load,
            turns: chunk(),
            chunks: (all / threads as u64).max(1),
        })
    }
}

/// Takes the figures of one run.
pub struct Taker {
    expected: u64,
    samples: u64,
    warm_up: u64,
    limit_ns: u64,
    /// When it began, and what the program had used of processors by then.
    begin: Option<[u64; 2]>,
    figures: Figures,
}

impl Taker {
    /// Takes as many as `params` ask for.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] for what is no number.
    pub fn new(params: &Params) -> Result<Self, Failure> {
        let warm_up = params.number("warm_up", 20)? as u64;
        Ok(Self {
            expected: 0,
            samples: params.number("samples", 1000)? as u64 + warm_up,
            warm_up,
            limit_ns: params.number("limit_ms", 1500)? as u64 * 1_000_000,
            begin: None,
            figures: Figures::default(),
        })
    }

    /// Returns true if there is one more to wait for.
    pub fn more(&mut self) -> bool {
        let [begin, _] = *self
            .begin
            .get_or_insert_with(|| [now_ns(), process_cpu_ns()]);
        let in_time = self.expected == 0 || now_ns() - begin < self.limit_ns;
        self.expected < self.samples && in_time
    }

    /// Takes an event that was read at `now`.
    ///
    /// # Errors
    ///
    /// [`Failure::Failed`] if it is not the next one, or not of the past.
    pub fn take(&mut self, event: [u8; EVENT], now: u64) -> Result<(), Failure> {
        let [number, written] = [0, 8].map(|at| {
            let word: [u8; 8] = event[at..at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(word)
        });
        if number != self.expected || written == 0 || written > now {
            let text = format!(
                "event {number}, written at {written}, was read at {now} in place of event {}",
                self.expected
            );
            return Err(Failure::Failed(text));
        }
        let [begin, _] = self.begin.unwrap_or([now, 0]);
        if number >= self.warm_up || now.saturating_sub(begin) > self.limit_ns / 10 {
            self.figures.push("ns", (now - written).max(1) as f64);
        }
        self.expected += 1;
        Ok(())
    }

    /// All figures.
    pub fn done(mut self) -> Figures {
        let [wall, cpu] = self.begin.unwrap_or_default();
        let (wall, cpu) = (now_ns() - wall, process_cpu_ns() - cpu);
        self.figures
            .push("load", cpu as f64 * 100.0 / wall.max(1) as f64);
        self.figures
    }
}

/// The failure of a call on the socket.
pub fn failed(error: io::Error) -> Failure {
    let remedy = "standard input is to be a socket to `upcall-workload events`";
    Failure::Failed(format!("waiting for an event: {error}; {remedy}"))
}

/// The socket on standard input.
pub fn connection() -> Result<OwnedFd, Failure> {
    io::stdin().as_fd().try_clone_to_owned().map_err(failed)
}

/// One of the computing threads.
fn compute(load: Load, stop: &AtomicBool) {
    let mut next = now_ns() + PERIOD_NS;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..load.chunks {
            spin(load.turns);
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
        if load.load < 100 {
            nanosleep(next.saturating_sub(now_ns()), false);
            next += PERIOD_NS;
        }
    }
}

/// An epoll instance that watches a descriptor.
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub(super) fn new(watched: BorrowedFd) -> io::Result<Self> {
        let mut wanted = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        // SAFETY: a new descriptor, which is owned from here on; the event is read.
        let (epoll, added) = unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if epoll < 0 {
                return Err(io::Error::last_os_error());
            }
            let (add, watched) = (libc::EPOLL_CTL_ADD, watched.as_raw_fd());
            let added = libc::epoll_ctl(epoll, add, watched, &raw mut wanted);
            (OwnedFd::from_raw_fd(epoll), added)
        };
        match added {
            0 => Ok(Watch(epoll)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for events.
    pub(super) fn wait(&self) -> io::Result<()> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        loop {
            // SAFETY: writes one event.
            let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, -1) };
            match io::Error::last_os_error() {
                _ if count >= 0 => return Ok(()),
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            }
        }
    }
}

fn wait_all(
    mut stream: impl Read + Write,
    watch: Option<Watch>,
    mut taker: Taker,
) -> Result<Figures, Failure> {
    while taker.more() {
        let mut event = [0; EVENT];
        stream.write_all(&[1]).map_err(failed)?;
        if let Some(watch) = &watch {
            watch.wait().map_err(failed)?;
        }
        stream.read_exact(&mut event).map_err(failed)?;
        taker.take(event, now_ns())?;
    }
    Ok(taker.done())
}

/// The workload; see the head of this file.
pub fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let load = Load::of(params)?;
    let taker = Taker::new(params)?;
    let watch = match params.text("wait") {
        None => None,
        Some("epoll") => Some(Watch::new(io::stdin().as_fd()).map_err(failed)?),
        Some(other) => return Err(Failure::Usage(format!("wait={other}: epoll, or nothing"))),
    };
    let stream = T::stream(connection()?).map_err(failed)?;
    let stop = Arc::new(AtomicBool::new(false));
    let started = Arc::new(T::Semaphore::new());
    let gate = Arc::new(T::Semaphore::new());
    let computing: Vec<_> = (0..load.threads)
        .map(|_| {
            let (stop, started, gate) = (stop.clone(), started.clone(), gate.clone());
            T::spawn(move || {
                started.post();
                gate.wait();
                compute(load, &stop);
            })
        })
        .collect();
    (0..load.threads).for_each(|_| started.wait());
    let open = || (0..load.threads).for_each(|_| gate.post());
    if load.load > 0 {
        open();
    }
    let figures = T::join(T::spawn(move || wait_all(stream, watch, taker)));
    stop.store(true, Ordering::Relaxed);
    if load.load == 0 {
        open();
    }
    computing.into_iter().for_each(T::join);
    figures
}

/// The process that writes events to the socket on standard input, until the program under test has closed its end.
pub fn events(_: &Params) -> Result<Figures, Failure> {
    // SAFETY: no pointers. Timers then expire within a microsecond instead of fifty.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let mut stream = UnixStream::from(connection()?);
    // Any odd number: Marsaglia's xorshift.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0_u64.. {
        let Ok(1) = stream.read(&mut [0]) else {
            break;
        };
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        nanosleep(200_000 + random % 800_000, false);
        let mut event = [0; EVENT];
        event[..8].copy_from_slice(&number.to_le_bytes());
        event[8..].copy_from_slice(&now_ns().to_le_bytes());
        if stream.write_all(&event).is_err() {
            break;
        }
    }
    Ok(Figures::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, written: u64) -> [u8; EVENT] {
        let mut event = [0; EVENT];
        event[..8].copy_from_slice(&number.to_le_bytes());
        event[8..].copy_from_slice(&written.to_le_bytes());
        event
    }

    #[test]
    fn only_the_next_event_is_taken_and_only_of_the_past() {
        let words = ["samples=1", "warm_up=1"].map(str::to_owned).into_iter();
        let params = Params::parse(words).unwrap();
        let mut taker = Taker::new(&params).unwrap();
        assert!(taker.more());
        for (number, written) in [(1, 5), (0, 8), (0, 0)] {
            assert!(taker.take(event(number, written), 7).is_err());
        }
        taker.take(event(0, 5), 7).unwrap();
        assert!(taker.more());
        taker.take(event(1, 4), 7).unwrap();
        assert!(!taker.more());
        assert_eq!(taker.done().series("ns"), [3.0]);
    }

    #[test]
    fn the_time_ends_it_but_not_before_the_first_event() {
        let words = ["samples=9", "warm_up=0", "limit_ms=0"].map(str::to_owned);
        let mut taker = Taker::new(&Params::parse(words.into_iter()).unwrap()).unwrap();
        assert!(taker.more());
        taker.take(event(0, 5), 7).unwrap();
        assert!(!taker.more());
    }

    #[test]
    fn the_work_of_a_period_is_shared() {
        let load = |words: [&str; 2]| {
            let params = Params::parse(words.map(str::to_owned).into_iter()).unwrap();
            Load::of(&params)
        };
        assert_eq!(load(["threads=10", "load=50"]).unwrap().chunks, 100);
        assert_eq!(load(["threads=1", "load=100"]).unwrap().chunks, 2000);
        assert!(matches!(
            load(["threads=1", "load=101"]),
            Err(Failure::Usage(_))
        ));
    }
}
