//! `create_join`: create a thread that does nothing, and join it.
//!
//! The null fork of Anderson et al. 1991, Tables 1 and 4: the cost of `pthread_create`, of the
//! thread's first and last switch, and of `pthread_join`. One figure `ns` is the mean over
//! `operations` pairs, since a single pair is too short to time on its own.

use super::posix::{Thread, now_ns};
use super::{Failure, Figures, Params};

pub fn run(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 2000)?;
    let mut figures = Figures::default();
    for sample in 0..=samples {
        let begin = now_ns();
        for _ in 0..operations {
            Thread::spawn_null()?.join()?;
        }
        let each = (now_ns() - begin) as f64 / operations as f64;
        // The first one warms stacks and caches up.
        if sample > 0 {
            figures.push("ns", each);
        }
    }
    Ok(figures)
}
