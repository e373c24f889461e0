//! `share`: threads that compute for a while, beside other programs; `cpu` is the processor time that the program got, in
//! milliseconds.
//!
//! Protocol with the harness: as for the pairs (`pair`), a copy waits for one byte on standard input if `gate=1`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::posix::{Thread, join_all, nanosleep, pass_gate, process_cpu_ns, spin};
use super::{Failure, Figures, Params};

/// Iterations between two looks at the end.
const PIECE: u64 = 10_000;

pub fn run(params: &Params) -> Result<Figures, Failure> {
    let threads = params.number("threads", 2)?;
    let duration_ms = params.number("duration_ms", 3000)? as u64;
    pass_gate(params)?;
    let over = Arc::new(AtomicBool::new(false));
    let before = process_cpu_ns();
    let mut running = Vec::new();
    for _ in 0..threads {
        let over = over.clone();
        running.push(Thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                spin(PIECE);
            }
        })?);
    }
    nanosleep(duration_ms * 1_000_000, false);
    over.store(true, Ordering::Relaxed);
    join_all(running)?;
    let mut figures = Figures::default();
    figures.push("cpu", (process_cpu_ns() - before) as f64 / 1e6);
    Ok(figures)
}
