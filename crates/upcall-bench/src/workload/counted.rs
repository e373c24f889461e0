//! `counted`: an operation whose instructions are counted from outside (`upcall bench --counts`).
//!
//! 1. `operation=NAME` is done `warm_up` times: what is made once is there, and the last time slice has seen nothing
//!    else.
//! 2. With `stop=1` the process stops itself. The counting process takes hold of it there, and lets only this kernel
//!    thread go on.
//! 3. A thread is made and joined, for what the stop has left behind. Then the operation is done `times` times, with a
//!    mark before and after each.
//!
//! A mark is an instruction that does nothing, with an operand that nothing else has. The figure `operations` says how
//! many were done and had the right result.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::flagged::Flagged;
use super::fork::right;
use super::reactivity::Watch;
use super::threads::{Mutex, Semaphore, Threads};
use super::{Failure, Figures, Params};

/// The displacement of a mark's operand: a word.
pub const MARK: u32 = u32::from_le_bytes(*b"mark");

pub(super) fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let count = Count {
        warm_up: params.number("warm_up", 10)?,
        times: params.number("times", 10)?,
        batch: params.number("batch", BATCH)?,
        stop: params.number("stop", 0)? != 0,
        on_one: params.text("workers") == Some("1"),
    };
    let operations = match params.text("operation") {
        Some("null_fork") => count.null_fork::<T>(),
        Some("fork_batch") => count.fork_batch::<T>(),
        Some("join_null") => count.null_join::<T>(),
        Some("yield") => count.yields::<T>(),
        Some("semaphore") => count.semaphore::<T>(),
        Some("signal_wait") => count.signal_wait::<T>(),
        Some("mutex") => count.mutex::<T>(),
        Some("critical") => Ok(count.critical::<T>()),
        Some("flagged_fork") => count.null_fork::<Flagged<T>>(),
        Some("flagged_wait") => count.signal_wait::<Flagged<T>>(),
        Some("socket") => count.socket::<T>(),
        Some("events") => count.events::<T>(),
        other => Err(Failure::Usage(format!("operation={other:?} is not known"))),
    }?;
    let mut figures = Figures::default();
    figures.push("operations", operations as f64);
    Ok(figures)
}

/// Threads of a batch: more than there are free shells in a virtual processor's own list, with all the ways between
/// the lists. As `fork_batch`, which times a thousand of them.
pub const BATCH: usize = 128;

struct Count {
    warm_up: usize,
    times: usize,
    /// How many threads one operation of `fork_batch` is.
    batch: usize,
    stop: bool,
    /// The program was told to run all threads on one processor. That of POSIX threads is told nothing.
    on_one: bool,
}

impl Count {
    /// Steps 1 to 3. Says how often the operation was done.
    #[inline(always)]
    fn between_marks<T: Threads>(&self, mut operation: impl FnMut()) -> usize {
        // An unmodified program is under the runtime from its first thread on.
        T::join(T::spawn(|| ()));
        for _ in 0..self.warm_up {
            operation();
        }
        if self.stop {
            stop();
        }
        T::join(T::spawn(|| ()));
        mark();
        for _ in 0..self.times {
            operation();
            mark();
        }
        self.warm_up + self.times
    }

    fn null_fork<T: Threads>(&self) -> Result<usize, Failure> {
        let mut sum = 0;
        let done = self.between_marks::<T>(|| {
            let given = black_box(1u64);
            sum += T::join(T::spawn(move || given));
        });
        right(sum, done as u64)?;
        Ok(done)
    }

    fn fork_batch<T: Threads>(&self) -> Result<usize, Failure> {
        let mut sum = 0;
        let mut threads = Vec::with_capacity(self.batch);
        let done = self.between_marks::<T>(|| {
            for _ in 0..self.batch {
                let given = black_box(1u64);
                threads.push(T::spawn(move || given));
            }
            sum += threads.drain(..).map(T::join).sum::<u64>();
        });
        right(sum, (done * self.batch) as u64)?;
        Ok(done)
    }

    fn null_join<T: Threads>(&self) -> Result<usize, Failure> {
        let mut sum = 0;
        let done = self.between_marks::<T>(|| {
            let given = black_box(1u64);
            let (one, other) = T::both(move || given, move || given);
            sum += one + other;
        });
        right(sum, 2 * done as u64)?;
        Ok(done)
    }

    /// Into a section, and out of it.
    fn critical<T: Threads>(&self) -> usize {
        self.between_marks::<T>(|| T::critical(|| black_box(())))
    }

    /// One operation is two switches on one processor: there, and back. On more, the two may run at once: then a yield
    /// finds no thread to switch to, and how often each comes round says nothing of the other.
    fn yields<T: Threads>(&self) -> Result<usize, Failure> {
        let over = Arc::new(AtomicBool::new(false));
        let other = T::spawn({
            let over = over.clone();
            move || {
                let mut yields = 0;
                while !over.load(Ordering::Relaxed) {
                    yields += 1;
                    T::yield_now();
                }
                yields
            }
        });
        let done = self.between_marks::<T>(T::yield_now);
        over.store(true, Ordering::Relaxed);
        let others = T::join(other);
        // It was not there yet, or a time slice has ended, in some of them.
        if self.on_one && others < done / 2 {
            let text = format!("one yielded {done} times, and the other ran {others} times");
            return Err(Failure::Failed(text));
        }
        Ok(done)
    }

    fn semaphore<T: Threads>(&self) -> Result<usize, Failure> {
        let pair = Arc::new([T::Semaphore::new(), T::Semaphore::new()]);
        let over = Arc::new(AtomicBool::new(false));
        let other = T::spawn({
            let (pair, over) = (pair.clone(), over.clone());
            move || {
                let mut trips = 0;
                loop {
                    pair[1].wait();
                    if over.load(Ordering::Relaxed) {
                        return trips;
                    }
                    trips += 1;
                    pair[0].post();
                }
            }
        });
        let done = self.between_marks::<T>(|| {
            pair[1].post();
            pair[0].wait();
        });
        over.store(true, Ordering::Relaxed);
        pair[1].post();
        right(T::join(other), done as u64)?;
        Ok(done)
    }

    fn signal_wait<T: Threads>(&self) -> Result<usize, Failure> {
        /// Whose turn it is, or that there are no more.
        const OVER: usize = 2;
        struct Exchange<M: Mutex<usize>> {
            turn: M,
            conditions: [M::Condition; 2],
        }
        let exchange = Arc::new(Exchange {
            turn: T::Mutex::new(0),
            conditions: [(); 2].map(|()| T::Mutex::<usize>::condition()),
        });
        let other = T::spawn({
            let exchange = exchange.clone();
            move || {
                let Exchange { turn, conditions } = &*exchange;
                let mut trips = 0;
                let mut whose = turn.lock();
                loop {
                    while *whose == 0 {
                        whose = turn.wait(&conditions[1], whose);
                    }
                    if *whose == OVER {
                        return trips;
                    }
                    trips += 1;
                    *whose = 0;
                    T::Mutex::<usize>::signal(&conditions[0]);
                }
            }
        });
        let Exchange { turn, conditions } = &*exchange;
        let done = self.between_marks::<T>(|| {
            let mut whose = turn.lock();
            *whose = 1;
            T::Mutex::<usize>::signal(&conditions[1]);
            while *whose != 0 {
                whose = turn.wait(&conditions[0], whose);
            }
        });
        *turn.lock() = OVER;
        T::Mutex::<usize>::signal(&conditions[1]);
        right(T::join(other), done as u64)?;
        Ok(done)
    }

    /// A byte into a socket that never waits, and out of it.
    fn socket<T: Threads>(&self) -> Result<usize, Failure> {
        let [mut one, mut other] = <[UnixStream; 2]>::from(UnixStream::pair().map_err(failed)?);
        one.set_nonblocking(true).map_err(failed)?;
        other.set_nonblocking(true).map_err(failed)?;
        let mut moved = 0;
        let done = self.between_marks::<T>(|| {
            let mut byte = [0];
            let sent = one.write(&[1]).unwrap_or(0);
            moved += sent.min(other.read(&mut byte).unwrap_or(0));
        });
        right(moved as u64, done as u64)?;
        Ok(done)
    }

    /// A wait for events, of which one is there.
    fn events<T: Threads>(&self) -> Result<usize, Failure> {
        let (mut one, other) = UnixStream::pair().map_err(failed)?;
        one.write_all(&[1]).map_err(failed)?;
        let watch = Watch::new(other.as_fd()).map_err(failed)?;
        let mut found = 0;
        let done = self.between_marks::<T>(|| found += u64::from(watch.wait().is_ok()));
        right(found, done as u64)?;
        Ok(done)
    }

    fn mutex<T: Threads>(&self) -> Result<usize, Failure> {
        let mutex = T::Mutex::new(0);
        let done = self.between_marks::<T>(|| *mutex.lock() += 1);
        right(*mutex.lock(), done as u64)?;
        Ok(done)
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::Failed(error.to_string())
}

#[inline(always)]
fn mark() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: does nothing; the operand is not read. No `nomem`: nothing moves across.
    unsafe {
        core::arch::asm!("nop dword ptr [rax + {mark}]", mark = const MARK, options(nostack, preserves_flags));
    }
}

/// Stops the process, by a signal to the calling thread, which the runtime sends to its kernel thread: it is taken on the
/// way out of this system call. One to the process may reach another kernel thread, and this one goes on until that one
/// has taken it.
fn stop() {
    // SAFETY: no pointers. The counting process lets this one go on.
    unsafe {
        let this = libc::syscall(libc::SYS_gettid);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), this, libc::SIGSTOP);
    }
}
