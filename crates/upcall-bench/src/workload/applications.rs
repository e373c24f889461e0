//! `gauss`, `parallel_sort`: the two applications with which Marsh, LeBlanc, Scott and Markatos 1991 compare threads of the
//! kernel with those of the user. Their threads are many and short.
//!
//! `gauss`: a system of `n` linear equations is solved by elimination. For each pivot, a thread subtracts it from `grain`
//! rows, and all are joined. `parallel_sort`: `n` numbers are sorted by merging. Each thread makes one for one of its
//! halves, down to `grain` numbers. What threads work on is handed to them and comes back with the join. A figure `ns`
//! is the time of the whole, and a wrong answer is a failure.

use std::sync::Arc;

use super::fork::timed;
use super::threads::Threads;
use super::{Failure, Figures, Params};

/// Numbers that are the same in each run: Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A system whose solution is all ones. The right side is the last number of each row. No row needs to be exchanged, since
/// the diagonal has the largest number.
fn equations(n: usize) -> Vec<Vec<f64>> {
    let mut random = Random(1991);
    let row = |at: usize| {
        let mut row: Vec<f64> = (0..n)
            .map(|_| (random.next() % 1000) as f64 / 1000.0)
            .collect();
        row[at] += n as f64;
        row.push(row.iter().sum());
        row
    };
    (0..n).map(row).collect()
}

/// Takes the pivot's unknown, that in column `at`, out of `rows`.
fn subtract(pivot: &[f64], at: usize, rows: &mut [Vec<f64>]) {
    for row in rows {
        let times = row[at] / pivot[at];
        for (one, other) in row[at..].iter_mut().zip(&pivot[at..]) {
            *one -= times * other;
        }
    }
}

fn solve<T: Threads>(mut rows: Vec<Vec<f64>>, grain: usize) -> Vec<f64> {
    let n = rows.len();
    let mut done: Vec<Arc<Vec<f64>>> = Vec::with_capacity(n);
    // The last row is the pivot of the first unknown: a vector gives its last element away.
    for column in 0..n {
        let pivot = Arc::new(rows.pop().unwrap_or_default());
        let mut threads = Vec::new();
        while !rows.is_empty() {
            let mut some = rows.split_off(rows.len().saturating_sub(grain));
            let pivot = pivot.clone();
            threads.push(T::spawn(move || {
                subtract(&pivot, column, &mut some);
                some
            }));
        }
        while let Some(thread) = threads.pop() {
            rows.append(&mut T::join(thread));
        }
        done.push(pivot);
    }
    let mut solution = vec![0.0; n];
    for (at, row) in done.iter().enumerate().rev() {
        let known: f64 = (at + 1..n).map(|other| row[other] * solution[other]).sum();
        solution[at] = (row[n] - known) / row[at];
    }
    solution
}

pub fn gauss<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 3)?;
    let n = params.number("n", 256)?;
    let grain = params.number("grain", 8)?.max(1);
    let mut rows = equations(n);
    // The solver takes the last row first.
    rows.reverse();
    timed(samples, 1, || {
        let rows = rows.clone();
        let solution = T::join(T::spawn(move || solve::<T>(rows, grain)));
        match solution.iter().find(|one| (*one - 1.0).abs() > 1e-9) {
            None => Ok(()),
            Some(one) => Err(Failure::Failed(format!(
                "an unknown that is 1 came to {one}"
            ))),
        }
    })
}

fn merge(one: &[u64], other: &[u64]) -> Vec<u64> {
    let mut all = Vec::with_capacity(one.len() + other.len());
    let (mut one, mut other) = (one, other);
    while let ([first, one_rest @ ..], [second, other_rest @ ..]) = (one, other) {
        if first <= second {
            all.push(*first);
            one = one_rest;
        } else {
            all.push(*second);
            other = other_rest;
        }
    }
    all.extend_from_slice(one);
    all.extend_from_slice(other);
    all
}

fn sort<T: Threads>(mut numbers: Vec<u64>, grain: usize) -> Vec<u64> {
    if numbers.len() <= grain {
        numbers.sort_unstable();
        return numbers;
    }
    let half = numbers.split_off(numbers.len() / 2);
    let other = T::spawn(move || sort::<T>(half, grain));
    merge(&sort::<T>(numbers, grain), &T::join(other))
}

pub fn parallel_sort<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 3)?;
    let n = params.number("n", 200_000)?;
    let grain = params.number("grain", 250)?.max(1);
    let mut random = Random(1991);
    let numbers: Vec<u64> = (0..n).map(|_| random.next()).collect();
    let mut expected = numbers.clone();
    expected.sort_unstable();
    timed(samples, 1, || {
        let numbers = numbers.clone();
        match T::join(T::spawn(move || sort::<T>(numbers, grain))) == expected {
            true => Ok(()),
            false => Err(Failure::Failed("the numbers are not in order".into())),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::posix::Posix;

    #[test]
    fn halves_are_merged() {
        assert_eq!(merge(&[1, 4, 4], &[2, 3, 5, 6]), [1, 2, 3, 4, 4, 5, 6]);
        assert_eq!(merge(&[], &[7]), [7]);
    }

    #[test]
    fn a_system_of_two_is_solved() {
        // x + 2y = 5, 3x + 4y = 11: x = 1, y = 2.
        let rows = vec![vec![3.0, 4.0, 11.0], vec![1.0, 2.0, 5.0]];
        let solution = solve::<Posix>(rows, 1);
        assert!((solution[0] - 1.0).abs() < 1e-12 && (solution[1] - 2.0).abs() < 1e-12);
    }
}
