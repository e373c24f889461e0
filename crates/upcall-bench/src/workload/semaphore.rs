//! `semaphore`: a round trip between two threads over two semaphores.
//!
//! Each thread posts the other's semaphore and waits on its own, so a round trip is two posts,
//! two waits and two switches: Signal-Wait of Anderson et al. 1991, Tables 1 and 4, in both
//! directions, without a mutex. One figure `ns` is the mean over `operations` round trips.

use std::sync::Arc;

use super::posix::now_ns;
use super::threads::{Semaphore, Threads};
use super::{Failure, Figures, Params};

pub fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 10_000)?;
    let mut figures = Figures::default();
    for sample in 0..=samples {
        let pair = Arc::new([T::Semaphore::new(), T::Semaphore::new()]);
        let (first, second) = (pair.clone(), pair);
        let begin = now_ns();
        let first = T::spawn(move || {
            for _ in 0..operations {
                first[1].post();
                first[0].wait();
            }
        });
        let second = T::spawn(move || {
            for _ in 0..operations {
                second[1].wait();
                second[0].post();
            }
        });
        T::join(first);
        T::join(second);
        let each = (now_ns() - begin) as f64 / operations as f64;
        if sample > 0 {
            figures.push("ns", each);
        }
    }
    Ok(figures)
}
