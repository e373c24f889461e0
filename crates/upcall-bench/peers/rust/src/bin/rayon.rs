//! Fork-join by `rayon::join`, whose halves are run without a stack of their own.

use std::process::ExitCode;

use upcall_peers::workload::{Failure, Figures, Params, fork, with_programs};

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (one, other) = rayon::join(|| fib(n - 1), || fib(n - 2));
    one + other
}

/// The sum of the numbers from `first` to `last`.
fn sum(first: u64, last: u64) -> u64 {
    if first >= last {
        return first;
    }
    let middle = first.midpoint(last);
    let (low, high) = rayon::join(|| sum(first, middle), || sum(middle + 1, last));
    low + high
}

fn fibonacci(params: &Params) -> Result<Figures, Failure> {
    fork::fibonacci_by(params, fib)
}

fn sumtime(params: &Params) -> Result<Figures, Failure> {
    fork::sumtime_by(params, |n| sum(1, n))
}

fn null_join(params: &Params) -> Result<Figures, Failure> {
    fork::null_join_by(params, |one, other| rayon::join(move || one, move || other))
}

fn main() -> ExitCode {
    let programs = vec![
        ("fib", fibonacci as _),
        ("fib_join", fibonacci as _),
        ("join_null", null_join as _),
        ("sumtime", sumtime as _),
        ("sumtime_join", sumtime as _),
    ];
    with_programs(programs, std::env::args().skip(1), |workers, job| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        let failed = |error| Failure::Failed(format!("starting rayon: {error}"));
        pool.map_err(failed)?.install(job)
    })
}
