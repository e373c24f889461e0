//! `pair_spin`, `pair_ticket`, `pair_barrier`: fixed work by two threads that spin. `spin_barrier` and `spin_ring`: more of them
//! than processors.
//!
//! The harness runs one copy alone and then two copies at once on the same two processors.
//! A lock holder (or a late arrival at the barrier) that is not running makes its partner burn a
//! whole time slice: Table 5 of Anderson et al. 1991, multiprogramming of degree two.
//!
//! Protocol with the harness: a copy waits for one byte on standard input if `gate=1`, then does
//! its work and reports `begin` and `end` on the monotonic clock, which all processes share.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use super::posix::{Thread, join_all, now_ns, pass_gate, spin};
use super::{Failure, Figures, Params};

/// Iterations outside and inside the critical section, and of one phase between barriers.
const OUTSIDE: u64 = 400;
const INSIDE: u64 = 100;
const PHASE: u64 = 40_000;

trait Program: Send + Sync + 'static {
    fn round(&self);
}

/// `pthread_spin_lock`, laid out as glibc has it: an `int`, at an address of its own.
struct SpinLock(Box<AtomicI32>);

impl Program for SpinLock {
    fn round(&self) {
        // SAFETY: `pthread_spin_init` ran on this word before the threads were made, and the
        // word lives as long as they do.
        unsafe { libc::pthread_spin_lock(self.0.as_ptr()) };
        spin(INSIDE);
        // SAFETY: this thread holds the lock.
        unsafe { libc::pthread_spin_unlock(self.0.as_ptr()) };
        spin(OUTSIDE);
    }
}

/// A fair lock: the thread that came first is served first, running or not.
#[derive(Default)]
struct TicketLock {
    next: AtomicUsize,
    serving: AtomicUsize,
}

impl Program for TicketLock {
    fn round(&self) {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // Acquire: pairs with the Release below.
        while self.serving.load(Ordering::Acquire) != ticket {
            spin_loop();
        }
        spin(INSIDE);
        self.serving.store(ticket + 1, Ordering::Release);
        spin(OUTSIDE);
    }
}

struct SpinBarrier {
    parties: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
}

impl SpinBarrier {
    fn of(parties: usize) -> Self {
        SpinBarrier {
            parties,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
        }
    }
}

impl Program for SpinBarrier {
    fn round(&self) {
        spin(PHASE);
        let generation = self.generation.load(Ordering::Relaxed);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.parties {
            self.arrived.store(0, Ordering::Relaxed);
            // Release: pairs with the Acquire below, and publishes the reset count.
            self.generation.store(generation + 1, Ordering::Release);
        } else {
            while self.generation.load(Ordering::Acquire) == generation {
                spin_loop();
            }
        }
    }
}

fn both(program: impl Program, params: &Params, rounds: usize) -> Result<Figures, Failure> {
    let rounds = params.number("operations", rounds)?;
    pass_gate(params)?;
    let program = Arc::new(program);
    let begin = now_ns();
    let mut threads = Vec::new();
    for _ in 0..2 {
        let program = program.clone();
        threads.push(Thread::spawn(move || {
            (0..rounds).for_each(|_| program.round())
        })?);
    }
    join_all(threads)?;
    let mut figures = Figures::default();
    figures.push("begin", begin as f64);
    figures.push("end", now_ns() as f64);
    Ok(figures)
}

/// Two threads share a `pthread_spin_lock`.
pub fn spin_lock(params: &Params) -> Result<Figures, Failure> {
    let lock = SpinLock(Box::new(AtomicI32::new(0)));
    // SAFETY: the word is the lock's own; 0 is PTHREAD_PROCESS_PRIVATE.
    unsafe { libc::pthread_spin_init(lock.0.as_ptr(), libc::PTHREAD_PROCESS_PRIVATE) };
    both(lock, params, 250_000)
}

/// Two threads share a ticket lock.
pub fn ticket(params: &Params) -> Result<Figures, Failure> {
    both(TicketLock::default(), params, 250_000)
}

/// Two threads meet at a spinning barrier.
pub fn barrier(params: &Params) -> Result<Figures, Failure> {
    both(SpinBarrier::of(2), params, 5000)
}

/// So many threads meet at a spinning barrier, on fewer processors: who waits gives its processor away at the end of its time
/// slice only. One figure `ns` is a round.
pub fn crowded_barrier(params: &Params) -> Result<Figures, Failure> {
    let rounds = params.number("samples", 200)?;
    let parties = params.number("threads", 2)?.max(1);
    let barrier = Arc::new(SpinBarrier::of(parties));
    let mut threads = Vec::new();
    for _ in 1..parties {
        let barrier = Arc::clone(&barrier);
        threads.push(Thread::spawn(move || {
            (0..=rounds).for_each(|_| barrier.round())
        })?);
    }
    // The first round waits for the threads.
    barrier.round();
    let mut figures = Figures::default();
    for _ in 0..rounds {
        let begin = now_ns();
        barrier.round();
        figures.push("ns", (now_ns() - begin) as f64);
    }
    join_all(threads)?;
    Ok(figures)
}

/// A ring between one thread that puts numbers in and one that takes them out.
#[derive(Default)]
#[repr(align(128))]
struct Ring {
    put: AtomicUsize,
    taken: AtomicUsize,
}

impl Ring {
    const PLACES: usize = 3;

    fn put(&self, number: usize) {
        // Acquire: the place is free.
        while number - self.taken.load(Ordering::Acquire) == Self::PLACES {
            spin_loop();
        }
        self.put.store(number + 1, Ordering::Release);
    }

    fn take(&self, number: usize) {
        // Acquire: pairs with the Release above.
        while self.put.load(Ordering::Acquire) == number {
            spin_loop();
        }
        self.taken.store(number + 1, Ordering::Release);
    }
}

/// So many pairs of threads, each with a ring for which both spin. A pair whose threads do not run at the same time gets on by
/// three numbers a time slice. One figure `ns` is all that all pairs do.
pub fn rings(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 1)?;
    let pairs = params.number("pairs", 2)?.max(1);
    let numbers = params.number("operations", 50_000)?;
    let mut figures = Figures::default();
    for _ in 0..samples {
        let mut threads = Vec::new();
        let begin = now_ns();
        for _ in 0..pairs {
            let ring = Arc::new(Ring::default());
            let other = Arc::clone(&ring);
            threads.push(Thread::spawn(move || {
                (0..numbers).for_each(|number| ring.put(number))
            })?);
            threads.push(Thread::spawn(move || {
                (0..numbers).for_each(|number| other.take(number))
            })?);
        }
        join_all(threads)?;
        figures.push("ns", (now_ns() - begin) as f64);
    }
    Ok(figures)
}
