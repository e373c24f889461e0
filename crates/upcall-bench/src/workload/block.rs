//! `block_to_compute`, `fault_to_compute`: a thread blocks; how soon does a ready thread compute?
//!
//! One thread blocks again and again, in a system call or on a page fault; `computing` threads are
//! always ready and reach a scheduling point (`sched_yield`) every fraction of a microsecond. A
//! figure `ns` runs from the instant before the block to the first instant at which a computing
//! thread notices. This is the promise of Anderson et al. 1991 §3.1 (Table 2, *blocked*) and the
//! upcall cost of §5.2; a runtime without kernel support shows the whole block instead.
//!
//! `how=`: `nanosleep` (libc's function), `nanosleep_raw` (through `syscall(2)`), `pipe` (a read;
//! the computing thread writes the byte `hold_us` later), `uffd` (a fault that a helper process
//! resolves 5 ms later), `file` (a cold page of the file `path=`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::cold::ColdFile;
use super::posix::{self, Thread, join_all, now_ns, spin, yield_now};
use super::uffd::Region;
use super::{Failure, Figures, Params};

enum Way {
    Sleep { ns: u64, raw: bool },
    Pipe { read: std::os::fd::OwnedFd },
    Fault(Region),
    File(ColdFile),
}

impl Way {
    /// Blocks; false if the thread was not really stopped.
    fn block(&self, index: usize) -> bool {
        match self {
            Self::Sleep { ns, raw } => {
                posix::nanosleep(*ns, *raw);
                true
            }
            Self::Pipe { read } => posix::read_byte(read),
            Self::Fault(region) => region.touch(index),
            Self::File(file) => file.touch(index),
        }
    }
}

struct Shared {
    /// When the blocking thread was about to block, or 0 once that has been noticed.
    blocked_at: AtomicU64,
    round: AtomicUsize,
    noticed_after: Vec<AtomicU64>,
    stop: AtomicBool,
    /// The end of the pipe that wakes the blocked thread, and how long to let it wait.
    waker: Option<(std::os::fd::OwnedFd, u64)>,
}

impl Shared {
    fn compute(&self) {
        let mut wake_at = None;
        while !self.stop.load(Ordering::Relaxed) {
            let since = self.blocked_at.load(Ordering::Relaxed);
            if since != 0 {
                let now = now_ns();
                let round = self.round.load(Ordering::Relaxed);
                // One computing thread alone may claim the sample.
                if self.blocked_at.swap(0, Ordering::AcqRel) == since {
                    self.noticed_after[round].store(now - since, Ordering::Relaxed);
                    wake_at = self.waker.as_ref().map(|(_, hold)| now + hold);
                }
            }
            for _ in 0..20 {
                if self.blocked_at.load(Ordering::Relaxed) != 0 {
                    break;
                }
                spin(20);
            }
            if let (Some(due), Some((end, _))) = (wake_at, &self.waker)
                && now_ns() >= due
            {
                wake_at = None;
                posix::write_byte(end);
            }
            yield_now();
        }
    }
}

pub fn run(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 40)?;
    let warm_up = params.number("warm_up", 4)?;
    let computing = params.number("computing", 1)?;
    let block = params.number("block_us", 5000)? as u64 * 1000;
    let hold = params.number("hold_us", 200)? as u64 * 1000;
    let rounds = samples + warm_up;
    let mut waker = None;
    let way = match params.text("how").unwrap_or("nanosleep") {
        "nanosleep" => Way::Sleep {
            ns: block,
            raw: false,
        },
        "nanosleep_raw" => Way::Sleep {
            ns: block,
            raw: true,
        },
        "pipe" => {
            let (read, write) = posix::pipe()?;
            waker = Some((write, hold));
            Way::Pipe { read }
        }
        "uffd" => Way::Fault(Region::resolved_elsewhere(rounds)?),
        "file" => match params.text("path") {
            Some(path) => Way::File(ColdFile::open(Path::new(path), rounds)?),
            None => return Err(Failure::Usage("how=file needs path=".into())),
        },
        other => return Err(Failure::Usage(format!("how={other} is not a way to block"))),
    };
    let shared = Arc::new(Shared {
        blocked_at: AtomicU64::new(0),
        round: AtomicUsize::new(0),
        noticed_after: (0..rounds).map(|_| AtomicU64::new(0)).collect(),
        stop: AtomicBool::new(false),
        waker,
    });
    let mut threads = Vec::new();
    for _ in 0..computing {
        let shared = shared.clone();
        threads.push(Thread::spawn(move || shared.compute())?);
    }
    let blocked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (result, seen) = (blocked.clone(), shared.clone());
    Thread::spawn(move || {
        let rounds = block_all(&way, &seen, rounds);
        if let Ok(mut result) = result.lock() {
            *result = rounds;
        }
    })?
    .join()?;
    shared.stop.store(true, Ordering::Relaxed);
    join_all(threads)?;
    let blocked = blocked
        .lock()
        .map(|mut rounds| std::mem::take(&mut *rounds));
    let mut figures = Figures::default();
    for round in blocked
        .unwrap_or_default()
        .into_iter()
        .filter(|round| *round >= warm_up)
    {
        figures.push(
            "ns",
            shared.noticed_after[round].load(Ordering::Relaxed) as f64,
        );
    }
    if figures.series("ns").is_empty() {
        let why = "no touch was a major fault: this file system keeps its pages in memory";
        return Err(Failure::Skip(why.into()));
    }
    Ok(figures)
}

/// Blocks `rounds` times; returns the rounds in which the thread was really stopped.
fn block_all(way: &Way, shared: &Shared, rounds: usize) -> Vec<usize> {
    let mut stopped = Vec::with_capacity(rounds);
    for round in 0..rounds {
        shared.round.store(round, Ordering::Relaxed);
        // Release: publishes the round; pairs with the swap in `compute`.
        shared.blocked_at.store(now_ns(), Ordering::Release);
        let blocked = way.block(round);
        if blocked {
            stopped.push(round);
        }
        while shared.blocked_at.load(Ordering::Acquire) != 0 {
            yield_now();
        }
    }
    stopped
}
