//! `critical_sections`: threads take a lock for which others spin, and some are preempted while they hold it.
//!
//! There are more threads than processors, and each computes between two turns of the lock for as long as it holds it. A time
//! slice that ends while the lock is held has all others spin for nothing until its holder runs again (Anderson et al. 1991,
//! section 3.3). With `marks=1` the holder is in a critical section of its package, if that has such. A figure `Mops/s` is how often
//! all threads together hold the lock in a microsecond. With `gate=1` there is one run, of which it reports `begin` and `end`: see `pair`.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::posix::{now_ns, pass_gate, spin};
use super::threads::Threads;
use super::{Failure, Figures, Params};

const THREADS: usize = 4;
/// Turns of an empty loop: a microsecond or less.
const HELD: u64 = 2000;

/// A count behind a lock for which threads spin.
struct Counted {
    is_held: AtomicBool,
    count: UnsafeCell<usize>,
}

// SAFETY: the count is changed by the holder of the lock alone, and read when there is no thread but one.
unsafe impl Sync for Counted {}

impl Counted {
    /// Takes the lock, holds it for a while and counts, if it is free.
    fn hold(&self) -> bool {
        if self.is_held.swap(true, Ordering::Acquire) {
            return false;
        }
        spin(HELD);
        // SAFETY: the lock is the caller's.
        unsafe { *self.count.get() += 1 };
        self.is_held.store(false, Ordering::Release);
        true
    }

    fn await_free(&self) {
        while self.is_held.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
}

pub fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let nr_threads = params.number("threads", THREADS)?.max(1);
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 20_000)?;
    let marks = params.number("marks", 0)? != 0;
    let gated = pass_gate(params)?;
    let samples = if gated { 0 } else { samples };
    let mut figures = Figures::default();
    for sample in 0..=samples {
        let counted = Arc::new(Counted {
            is_held: AtomicBool::new(false),
            count: UnsafeCell::new(0),
        });
        let begin = now_ns();
        let work = |counted: Arc<Counted>| {
            move || {
                for _ in 0..operations {
                    // The section begins where the lock is taken: whoever spins is in none.
                    while !if marks {
                        T::critical(|| counted.hold())
                    } else {
                        counted.hold()
                    } {
                        counted.await_free();
                    }
                    spin(HELD);
                }
            }
        };
        let threads: Vec<_> = (0..nr_threads)
            .map(|_| T::spawn(work(counted.clone())))
            .collect();
        threads.into_iter().for_each(T::join);
        let end = now_ns();
        // SAFETY: there is no other thread any more.
        let count = unsafe { *counted.count.get() };
        if count != nr_threads * operations {
            let text = format!("the lock let two threads in: {count} were counted");
            return Err(Failure::Failed(text));
        }
        if sample > 0 {
            let time = (end - begin) as f64;
            figures.push("Mops/s", count as f64 * 1000.0 / time);
        }
        if gated {
            figures.push("begin", begin as f64);
            figures.push("end", end as f64);
        }
    }
    Ok(figures)
}
