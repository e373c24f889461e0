//! `blocked`: as many threads as there may be, all of which wait for one semaphore.
//!
//! A figure `ns` is the time in which one thread is made, runs for the first time and waits; `bytes`
//! is the resident memory that it takes then, all of its stack and its descriptors that is in use.
//! What the kernel holds for a thread is not in it. With a program of one thread for each client in
//! mind: von Behren et al. 2003 have 100,000.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::posix::now_ns;
use super::threads::{Semaphore, Threads};
use super::{Failure, Figures, Params};

/// Bytes of memory that there should be for each thread.
const ENOUGH: usize = 12 << 10;

pub(super) fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let count = number(params)?;
    let (gate, all) = (T::Semaphore::new(), T::Semaphore::new());
    let (gate, all) = (Arc::new(gate), Arc::new(all));
    let arrived = Arc::new(AtomicUsize::new(0));
    // What the first thread needs once is there before.
    T::join(T::spawn(|| ()));
    let mut threads = Vec::with_capacity(count);
    let before = resident_memory()?;
    let begin = now_ns();
    for _ in 0..count {
        let (gate, all, arrived) = (gate.clone(), all.clone(), arrived.clone());
        threads.push(T::spawn(move || {
            if arrived.fetch_add(1, Ordering::Relaxed) + 1 == count {
                all.post();
            }
            gate.wait();
        }));
    }
    all.wait();
    let time = now_ns() - begin;
    let bytes = resident_memory()?.saturating_sub(before);
    (0..count).for_each(|_| gate.post());
    threads.into_iter().for_each(T::join);
    let mut figures = Figures::default();
    figures.push("ns", time as f64 / count as f64);
    figures.push("bytes", bytes as f64 / count as f64);
    Ok(figures)
}

/// How many threads there are to be; declines where there is not the memory for them.
pub fn number(params: &Params) -> Result<usize, Failure> {
    let count = params.number("threads", 30_000)?;
    let available = available_memory()?;
    if available / ENOUGH < count {
        let mib = available >> 20;
        let why = format!("{count} threads may need 12 KiB each, and {mib} MiB are available");
        return Err(Failure::Skip(why));
    }
    Ok(count)
}

/// Bytes of this process that are in memory. The kernel counts them here; the sum that
/// /proc/self/statm has may be behind by some pages of each thread.
pub fn resident_memory() -> Result<usize, Failure> {
    bytes_of("/proc/self/smaps_rollup", "Rss:")
}

/// Bytes that can be had without swapping.
fn available_memory() -> Result<usize, Failure> {
    bytes_of("/proc/meminfo", "MemAvailable:")
}

/// The bytes that a file of /proc names in KiB.
fn bytes_of(path: &str, key: &str) -> Result<usize, Failure> {
    let failed = |why: &str| Failure::Failed(format!("{path}: {why}"));
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error.to_string()))?;
    let kib = text.lines().find_map(|line| {
        let words = line.strip_prefix(key)?.trim();
        words.strip_suffix(" kB")?.parse::<usize>().ok()
    });
    kib.map(|kib| kib << 10)
        .ok_or_else(|| failed(&format!("there is no {key}")))
}
