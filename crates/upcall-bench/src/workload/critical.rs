//! `critical_sections`: threads take a lock for which others spin, and some are preempted while they hold it.
//!
//! There are more threads than processors, and each computes between two turns of the lock for as long as it holds it. A time
//! slice that ends while the lock is held has all others spin for nothing until its holder runs again (Anderson et al. 1991,
//! section 3.3). With `marks=1` the holder is in a critical section of its package, if that has such. With `marks=2` it is in code that is one,
//! and makes no store. A figure `Mops/s` is how often
//! all threads together hold the lock in a microsecond. With `gate=1` there is one run, of which it reports `begin` and `end`: see `pair`.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::posix::{now_ns, pass_gate, spin, spin_here};
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
    #[inline(always)]
    fn hold(&self) -> bool {
        if self.is_held.swap(true, Ordering::Acquire) {
            return false;
        }
        spin_here(HELD);
        // SAFETY: the lock is the caller's.
        unsafe { *self.count.get() += 1 };
        self.is_held.store(false, Ordering::Release);
        true
    }

    /// The same in code that can be a critical section: all that it calls is inlined.
    #[unsafe(link_section = "critical_code")]
    #[inline(never)]
    fn hold_in_code(&self) -> bool {
        self.hold()
    }

    fn await_free(&self) {
        while self.is_held.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
}

// The linker makes these names of the section's.
unsafe extern "C" {
    #[link_name = "__start_critical_code"]
    static BEGIN: u8;
    #[link_name = "__stop_critical_code"]
    static END: u8;
}

pub fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let nr_threads = params.number("threads", THREADS)?.max(1);
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 20_000)?;
    let marks = params.number("marks", 0)?;
    if marks == 2 {
        T::critical_code(&raw const BEGIN..&raw const END)
            .map_err(|error| Failure::Failed(format!("critical code: {error}")))?;
    }
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
                    while !match marks {
                        1 => T::critical(|| counted.hold()),
                        2 => counted.hold_in_code(),
                        _ => counted.hold(),
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
