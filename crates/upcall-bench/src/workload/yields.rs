//! `yield`: one switch between two threads that only give way (`sched_yield`).
//!
//! The cost of a switch with nothing else to do, the part that Anderson et al. 1991 leave inside
//! Signal-Wait (Tables 1 and 4). One figure `ns` is the mean over all yields of both threads.

use super::posix::now_ns;
use super::threads::Threads;
use super::{Failure, Figures, Params};

pub fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 50_000)?;
    let mut figures = Figures::default();
    for sample in 0..=samples {
        let begin = now_ns();
        let mut threads = Vec::new();
        for _ in 0..2 {
            threads.push(T::spawn(move || {
                (0..operations).for_each(|_| T::yield_now())
            }));
        }
        threads.into_iter().for_each(T::join);
        let each = (now_ns() - begin) as f64 / (2 * operations) as f64;
        if sample > 0 {
            figures.push("ns", each);
        }
    }
    Ok(figures)
}
