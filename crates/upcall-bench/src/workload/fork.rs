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
//! Namyst and Russell 2000). `computation`: the same with more computing than synchronising. A figure `ns` is the time of
//! the whole.
//!
//! `join_null`, `fib_join` and `sumtime_join`: the same by a package's function that runs two halves, for which it need not
//! make a thread (fork and join). The first runs two that return what they were given.

use std::hint::black_box;

use super::posix::{now_ns, spin};
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
    sumtime_by(params, |n| T::join(T::spawn(move || sum::<T, 0>(1, n))))
}

/// Turns of [`spin`] of each thread of `computation`: some hundred microseconds, which is more than any thread costs.
const WORK: u64 = 200_000;

pub(super) fn computation<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    sumtime_by(params, |n| T::join(T::spawn(move || sum::<T, WORK>(1, n))))
}

/// `sumtime`, by a function that adds up the numbers from 1 to such a number.
pub fn sumtime_by(params: &Params, sum: impl Fn(u64) -> u64) -> Result<Figures, Failure> {
    let samples = params.number("samples", 3)?;
    let n = params.number("n", 2000)? as u64;
    timed(samples, 1, || right(sum(black_box(n)), n * (n + 1) / 2))
}

fn sum<T: Threads, const WORK: u64>(first: u64, last: u64) -> u64 {
    if WORK > 0 {
        spin(WORK);
    }
    if first >= last {
        return first;
    }
    let middle = first.midpoint(last);
    let low = T::spawn(move || sum::<T, WORK>(first, middle));
    let high = T::spawn(move || sum::<T, WORK>(middle + 1, last));
    T::join(low) + T::join(high)
}

pub(super) fn null_join<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    null_join_by(params, |one, other| T::both(move || one, move || other))
}

/// `join_null`, by a function that gets its arguments back from two halves.
pub fn null_join_by(
    params: &Params,
    both: impl Fn(u64, u64) -> (u64, u64),
) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 500_000)?;
    timed(samples, operations, || {
        (0..operations as u64).try_for_each(|index| {
            let (one, other) = both(black_box(index), black_box(1));
            right(one + other, index + 1)
        })
    })
}

pub(super) fn fibonacci_join<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    fibonacci_by(params, fib_join::<T>)
}

fn fib_join<T: Threads>(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (one, other) = T::both(move || fib_join::<T>(n - 1), move || fib_join::<T>(n - 2));
    one + other
}

pub(super) fn sumtime_join<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    sumtime_by(params, |n| sum_join::<T>(1, n))
}

fn sum_join<T: Threads>(first: u64, last: u64) -> u64 {
    if first >= last {
        return first;
    }
    let middle = first.midpoint(last);
    let (low, high) = T::both(
        move || sum_join::<T>(first, middle),
        move || sum_join::<T>(middle + 1, last),
    );
    low + high
}
