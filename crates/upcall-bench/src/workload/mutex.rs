//! `mutex_64`: 64 threads take one mutex again and again and hold it for a moment.
//!
//! Between two critical sections a thread computes for about as long as one takes, so that the mutex
//! is wanted nearly always. A figure `Mops/s` is how many critical sections all threads together
//! pass in a microsecond, their creation and their end included.

use std::sync::Arc;

use super::posix::{now_ns, spin};
use super::threads::{Mutex, Threads};
use super::{Failure, Figures, Params};

const THREADS: usize = 64;

pub fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 10_000)?;
    let mut figures = Figures::default();
    let mut threads = Vec::with_capacity(THREADS);
    for sample in 0..=samples {
        let mutex = Arc::new(T::Mutex::new(0));
        let begin = now_ns();
        for _ in 0..THREADS {
            let mutex = mutex.clone();
            threads.push(T::spawn(move || {
                for _ in 0..operations {
                    *mutex.lock() += 1;
                    spin(20);
                }
            }));
        }
        threads.drain(..).for_each(T::join);
        let time = now_ns() - begin;
        let count = *mutex.lock();
        if count != THREADS * operations {
            let text = format!("the mutex let two threads in: {count} were counted");
            return Err(Failure::Failed(text));
        }
        if sample > 0 {
            figures.push("Mops/s", count as f64 * 1000.0 / time as f64);
        }
    }
    Ok(figures)
}
