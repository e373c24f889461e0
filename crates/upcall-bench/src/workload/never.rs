//! `never_blocks`: a program that only computes, so that a runtime's upkeep shows.
//!
//! Each of `threads` threads does `slices` equal slices of work and never enters the kernel of its
//! own accord. `wall` is the time of one slice; `cpu` is the CPU time of the whole process per
//! slice, whichever kernel thread used it: a runtime whose helpers take half the processor
//! doubles it. Anderson et al. 1991 §5.1 weigh the same: what the kernel's support costs a program
//! that has no use for it.
//!
//! A fixed amount of work was chosen over counting work in a fixed time: the minimum of many short
//! slices then excludes what other processes of a noisy machine took.

use std::sync::{Arc, Mutex as StdMutex};

use super::posix::{Thread, join_all, now_ns, process_cpu_ns, spin};
use super::{Failure, Figures, Params};

pub fn run(params: &Params) -> Result<Figures, Failure> {
    let slices = params.number("slices", 20)?;
    let threads = params.number("threads", 1)?;
    let iterations = params.number("iterations", 40_000_000)? as u64;
    spin(iterations);
    let walls = Arc::new(StdMutex::new(Vec::new()));
    let cpu = process_cpu_ns();
    let mut running = Vec::new();
    for _ in 0..threads {
        let walls = walls.clone();
        running.push(Thread::spawn(move || {
            let mut mine = Vec::with_capacity(slices);
            for _ in 0..slices {
                let begin = now_ns();
                spin(iterations);
                mine.push((now_ns() - begin) as f64);
            }
            if let Ok(mut all) = walls.lock() {
                all.append(&mut mine);
            }
        })?);
    }
    join_all(running)?;
    let cpu = process_cpu_ns() - cpu;
    let mut figures = Figures::default();
    for wall in walls
        .lock()
        .map(|mut all| std::mem::take(&mut *all))
        .unwrap_or_default()
    {
        figures.push("wall", wall);
    }
    figures.push("cpu", cpu as f64 / (slices * threads).max(1) as f64);
    Ok(figures)
}
