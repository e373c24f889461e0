//! `unblock_to_run`: a blocked thread can run again; how soon does it?
//!
//! A waiting thread blocks; an equal that keeps the one processor busy ends the wait and goes on
//! computing. A figure `ns` runs from the instant before the waking call to the waiter's first
//! instruction after its block. This is *unblocked* of Anderson et al. 1991, Table 2, and the
//! reactivity that Danjean and Namyst 2003 are about. A hand-back that queues like any other
//! kernel thread would cost a whole time slice.
//!
//! `equals=`: `points` (the equal reaches a scheduling point every fraction of a microsecond) or
//! `compute` (it only computes). `how=`:
//!
//! | | blocked in | ended by |
//! |---|---|---|
//! | `pipe` | a read, pollable | a write |
//! | `flock` | a file operation, not pollable | releasing the file's lock |
//! | `fault` | a page fault | `UFFDIO_WAKE`, the page being there already |
//!
//! `others=N`: so many more threads are ready all the time, and compute as the equal does. With them it is *restart of an
//! unblocked activation* (Danjean and Namyst 2003, Table 2), as a program sees it: whoever schedules finds the thread among
//! others.
//!
//! The equal wakes, not another process: a wake-up from another processor would add an interrupt
//! between processors, which is most of the figure on a virtual machine.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::posix::{self, Thread, now_ns, spin, yield_now};
use super::uffd::{Region, Resolver};
use super::{Failure, Figures, Params};

enum Way {
    Pipe {
        read: OwnedFd,
        write: OwnedFd,
    },
    /// Two files, taken in turn: the equal takes the next one before it releases the last one, so
    /// that the waiter finds it taken without ever having to wait for the equal's time slice.
    Flock {
        waiter: [File; 2],
        equal: [File; 2],
    },
    Fault {
        region: Region,
        resolver: Resolver,
        address: AtomicU64,
    },
}

fn flock(file: &File, operation: libc::c_int) -> bool {
    // SAFETY: an open file, no pointers.
    unsafe { libc::flock(file.as_raw_fd(), operation) == 0 }
}

fn memory_file() -> Result<File, Failure> {
    // SAFETY: a valid name.
    let fd = unsafe { libc::memfd_create(c"upcall-workload".as_ptr(), 0) };
    if fd < 0 {
        return Err(Failure::errno("memfd_create"));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A second open file description of a file; two descriptors of one would hold the one lock.
fn open_again(file: &File) -> Result<File, Failure> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_err(|_| Failure::errno("opening a memfd again"))
}

impl Way {
    fn new(how: &str, rounds: usize) -> Result<Self, Failure> {
        match how {
            "pipe" => {
                let (read, write) = posix::pipe()?;
                Ok(Self::Pipe { read, write })
            }
            "flock" => {
                let equal = [memory_file()?, memory_file()?];
                let waiter = [open_again(&equal[0])?, open_again(&equal[1])?];
                flock(&equal[0], libc::LOCK_EX);
                Ok(Self::Flock { waiter, equal })
            }
            "fault" => {
                let (region, resolver) = Region::new(rounds)?;
                Ok(Self::Fault {
                    region,
                    resolver,
                    address: AtomicU64::new(0),
                })
            }
            other => Err(Failure::Usage(format!("how={other} is not a way to block"))),
        }
    }

    /// The waiter: blocks until the equal calls `wake`.
    fn block(&self, round: usize) -> bool {
        match self {
            Self::Pipe { read, .. } => posix::read_byte(read),
            Self::Flock { waiter, .. } => flock(&waiter[round % 2], libc::LOCK_EX),
            Self::Fault { region, .. } => region.touch(round),
        }
    }

    /// The waiter, after each block, outside what is measured.
    fn release(&self, round: usize) {
        if let Self::Flock { waiter, .. } = self {
            flock(&waiter[round % 2], libc::LOCK_UN);
        }
    }

    /// The equal, once the waiter is about to block: true when it can be woken.
    fn ready(&self, round: usize) -> bool {
        match self {
            Self::Pipe { .. } => true,
            Self::Flock { equal, .. } => flock(&equal[(round + 1) % 2], libc::LOCK_EX),
            Self::Fault {
                resolver, address, ..
            } => {
                let Some(page) = resolver.next_fault() else {
                    return false;
                };
                resolver.fill(page, false);
                address.store(page, Ordering::Relaxed);
                true
            }
        }
    }

    fn wake(&self, round: usize) -> bool {
        match self {
            Self::Pipe { write, .. } => posix::write_byte(write),
            Self::Flock { equal, .. } => flock(&equal[round % 2], libc::LOCK_UN),
            Self::Fault {
                resolver, address, ..
            } => resolver.wake(address.load(Ordering::Relaxed)),
        }
    }
}

struct Shared {
    way: Way,
    /// Rounds that the waiter has begun and ended.
    begun: AtomicUsize,
    ended: AtomicUsize,
    woken_at: AtomicU64,
    after: Vec<AtomicU64>,
    compute_ns: u64,
    points: bool,
    /// The last round has ended.
    over: AtomicBool,
}

impl Shared {
    fn wait_all(&self) {
        for round in 0..self.after.len() {
            self.begun.store(round + 1, Ordering::Release);
            if !self.way.block(round) {
                return;
            }
            // Acquire: pairs with the Release before the wake-up.
            let since = self.woken_at.load(Ordering::Acquire);
            self.after[round].store(now_ns().saturating_sub(since).max(1), Ordering::Relaxed);
            self.way.release(round);
            self.ended.store(round + 1, Ordering::Release);
        }
    }

    /// One quantum of the equal's computing, with or without a scheduling point after it.
    fn quantum(&self) {
        spin(400);
        if self.points {
            yield_now();
        }
    }

    fn be_ready(&self) {
        while !self.over.load(Ordering::Relaxed) {
            self.quantum();
        }
    }

    fn keep_busy_and_wake(&self) {
        for round in 0..self.after.len() {
            while self.begun.load(Ordering::Acquire) <= round {
                self.quantum();
            }
            while !self.way.ready(round) {
                self.quantum();
            }
            // By now the waiter has blocked: it had the processor, and gave it up.
            let until = now_ns() + self.compute_ns;
            while now_ns() < until {
                self.quantum();
            }
            self.woken_at.store(now_ns(), Ordering::Release);
            if !self.way.wake(round) {
                return;
            }
            while self.ended.load(Ordering::Acquire) <= round {
                self.quantum();
            }
        }
    }
}

pub fn run(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 500)?;
    let warm_up = params.number("warm_up", 20)?;
    let rounds = samples + warm_up;
    let points = match params.text("equals").unwrap_or("points") {
        "points" => true,
        "compute" => false,
        other => return Err(Failure::Usage(format!("equals={other}: points or compute"))),
    };
    let others = params.number("others", 0)?;
    let shared = Arc::new(Shared {
        way: Way::new(params.text("how").unwrap_or("pipe"), rounds)?,
        begun: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        woken_at: AtomicU64::new(0),
        after: (0..rounds).map(|_| AtomicU64::new(0)).collect(),
        compute_ns: params.number("compute_us", 50)? as u64 * 1000,
        points,
        over: AtomicBool::new(false),
    });
    let ready = |_| {
        let shared = shared.clone();
        Thread::spawn(move || shared.be_ready())
    };
    let others = (0..others).map(ready).collect::<Result<Vec<_>, _>>()?;
    let (waiter, equal) = (shared.clone(), shared.clone());
    let waiter = Thread::spawn(move || waiter.wait_all())?;
    let equal = Thread::spawn(move || equal.keep_busy_and_wake())?;
    waiter.join()?;
    equal.join()?;
    shared.over.store(true, Ordering::Relaxed);
    others.into_iter().try_for_each(Thread::join)?;
    if shared.ended.load(Ordering::Relaxed) < rounds {
        return Err(Failure::Failed("a blocking or waking call failed".into()));
    }
    let mut figures = Figures::default();
    for after in &shared.after[warm_up..] {
        figures.push("ns", after.load(Ordering::Relaxed) as f64);
    }
    Ok(figures)
}
