//! `blockers_syscall`, `blockers_fault`: what computing threads lose to threads that block.
//!
//! `computing` threads compute, one for each processor, while `blockers` threads block all the
//! time for 5 ms each, in `nanosleep` or on page faults that a helper process resolves. The figure
//! `work` is units of computing a second, `blocks` how often the others blocked a second. The
//! harness runs the same program without blockers beside it: what is missing is what was lost.
//! Figure 3 of Anderson et al. 1991 (computing against a growing share of blocking I/O) and the
//! Computation test of Danjean et al. 2000.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::posix::{Thread, join_all, nanosleep, now_ns, spin, yield_now};
use super::uffd::Region;
use super::{Failure, Figures, Params};

/// Iterations of one unit of computing, some tens of microseconds, and of its scheduling point.
const UNIT: u64 = 100_000;

/// A counter on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicUsize);

struct Shared {
    stop: AtomicBool,
    work: Vec<Counter>,
    blocks: Counter,
    region: Option<Region>,
    next_page: AtomicUsize,
    block_ns: u64,
}

impl Shared {
    fn compute(&self, me: usize) {
        while !self.stop.load(Ordering::Relaxed) {
            spin(UNIT);
            self.work[me].0.fetch_add(1, Ordering::Relaxed);
            yield_now();
        }
    }

    fn block(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            match &self.region {
                None => nanosleep(self.block_ns, false),
                Some(region) => {
                    if !region.touch(self.next_page.fetch_add(1, Ordering::Relaxed)) {
                        return;
                    }
                }
            }
            self.blocks.0.fetch_add(1, Ordering::Relaxed);
            yield_now();
        }
    }

    fn read(&self) -> (u64, usize, usize) {
        let work = self
            .work
            .iter()
            .map(|one| one.0.load(Ordering::Relaxed))
            .sum();
        (now_ns(), work, self.blocks.0.load(Ordering::Relaxed))
    }
}

/// How many times longer than asked for it is measured, at most, until a thread has blocked.
const LONGEST: usize = 20;

pub fn run(params: &Params) -> Result<Figures, Failure> {
    let blockers = params.number("blockers", 8)?;
    let computing = params.number("computing", 2)?;
    let block_ns = params.number("block_us", 5000)? as u64 * 1000;
    let warm_up = params.number("warm_up_ms", 30)? as u64 * 1_000_000;
    let duration = params.number("duration_ms", 150)? as u64 * 1_000_000;
    let region = match params.text("how").unwrap_or("nanosleep") {
        "nanosleep" => None,
        // The region is there without blockers too, so that both runs differ in nothing else.
        // Twice the pages that can be touched if every fault takes the 5 ms that it should.
        "uffd" => {
            let pages = 2 * (1 + blockers) * ((warm_up + duration) / 5_000_000 + 4) as usize;
            Some(Region::resolved_elsewhere(pages)?)
        }
        other => return Err(Failure::Usage(format!("how={other} is not a way to block"))),
    };
    let shared = Arc::new(Shared {
        stop: AtomicBool::new(false),
        work: (0..computing).map(|_| Counter::default()).collect(),
        blocks: Counter::default(),
        region,
        next_page: AtomicUsize::new(0),
        block_ns,
    });
    let mut threads = Vec::new();
    for me in 0..computing {
        let shared = shared.clone();
        threads.push(Thread::spawn(move || shared.compute(me))?);
    }
    for _ in 0..blockers {
        let shared = shared.clone();
        threads.push(Thread::spawn(move || shared.block())?);
    }
    nanosleep(warm_up, false);
    let (begin, work_before, blocks_before) = shared.read();
    nanosleep(duration, false);
    let (mut end, mut work, mut blocks) = shared.read();
    // Among other programs the process that resolves faults may not have run yet: no figure without a block.
    for _ in 0..LONGEST {
        if blockers == 0 || blocks > blocks_before {
            break;
        }
        nanosleep(duration, false);
        (end, work, blocks) = shared.read();
    }
    shared.stop.store(true, Ordering::Relaxed);
    join_all(threads)?;
    let seconds = (end - begin) as f64 / 1e9;
    let mut figures = Figures::default();
    figures.push("work", (work - work_before) as f64 / seconds);
    figures.push("blocks", (blocks - blocks_before) as f64 / seconds);
    Ok(figures)
}
