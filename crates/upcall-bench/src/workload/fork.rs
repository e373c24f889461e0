//! Programs that make threads and wait for their results.
//!
//! `null_fork`: a thread that returns what it was given, made and joined. It is the null fork of
//! Anderson et al. 1991, Tables 1 and 4, as a program has it, with an argument and a result
//! (`create_join` is the bare pair of POSIX calls). `fork_batch`: a thousand of them are made, then
//! joined, so that there are many at a time. A figure `ns` is a mean for one thread.
//!
//! `fib`: Fibonacci's number `n` by the definition; each call above the two first numbers makes a
//! thread for one of its summands and computes the other itself. `sumtime`: the sum of the numbers from 1
//! to `n`, where each thread halves its range, makes a thread for each half and joins both (Danjean,
//! Namyst and Russell 2000). A figure `ns` is the time of the whole.

use std::hint::black_box;

use super::posix::now_ns;
use super::threads::Threads;
use super::{Failure, Figures, Params};

/// Threads of one batch of `fork_batch`.
pub const BATCH: usize = 1000;

/// Times `count` operations, `samples` times after one for warm-up.
pub fn timed(
    samples: usize,
    count: usize,
    mut operations: impl FnMut() -> Result<(), Failure>,
) -> Result<Figures, Failure> {
    let mut figures = Figures::default();
    for sample in 0..=samples {
        let begin = now_ns();
        operations()?;
        let each = (now_ns() - begin) as f64 / count as f64;
        if sample > 0 {
            figures.push("ns", each);
        }
    }
    Ok(figures)
}

/// Fails if the threads have lost anything.
pub fn right(found: u64, expected: u64) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    let text = format!("the threads' results come to {found} and not to {expected}");
    Err(Failure::Failed(text))
}

pub(super) fn null<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 5000)?;
    timed(samples, operations, || {
        (0..operations as u64).try_for_each(|index| {
            let given = black_box(index);
            right(T::join(T::spawn(move || given)), index)
        })
    })
}

pub(super) fn batch<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let batches = params.number("batches", 5)?;
    let mut threads = Vec::with_capacity(BATCH);
    timed(samples, batches * BATCH, || {
        for _ in 0..batches {
            for index in 0..BATCH as u64 {
                let given = black_box(index);
                threads.push(T::spawn(move || given));
            }
            let sum = threads.drain(..).map(T::join).sum();
            right(sum, (BATCH * (BATCH - 1) / 2) as u64)?;
        }
        Ok(())
    })
}

pub(super) fn fibonacci<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    fibonacci_by(params, fib::<T>)
}

/// `fib`, by a function that computes the number with such an index.
pub fn fibonacci_by(params: &Params, fib: impl Fn(u64) -> u64) -> Result<Figures, Failure> {
    let samples = params.number("samples", 1)?;
    let n = params.number("n", 30)? as u64;
    let (mut expected, mut next) = (0, 1);
    for _ in 0..n {
        (expected, next) = (next, expected + next);
    }
    timed(samples, 1, || right(fib(black_box(n)), expected))
}

fn fib<T: Threads>(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let one = T::spawn(move || fib::<T>(n - 1));
    let other = fib::<T>(n - 2);
    T::join(one) + other
}

pub(super) fn sumtime<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    sumtime_by(params, |n| T::join(T::spawn(move || sum::<T>(1, n))))
}

/// `sumtime`, by a function that adds up the numbers from 1 to such a number.
pub fn sumtime_by(params: &Params, sum: impl Fn(u64) -> u64) -> Result<Figures, Failure> {
    let samples = params.number("samples", 3)?;
    let n = params.number("n", 2000)? as u64;
    timed(samples, 1, || right(sum(black_box(n)), n * (n + 1) / 2))
}

fn sum<T: Threads>(first: u64, last: u64) -> u64 {
    if first >= last {
        return first;
    }
    let middle = first.midpoint(last);
    let low = T::spawn(move || sum::<T>(first, middle));
    let high = T::spawn(move || sum::<T>(middle + 1, last));
    T::join(low) + T::join(high)
}
