//! A heap of problems, and workers that solve them (Møller-Nielsen and Staunstrup, *Problem-heap*, 1987; in the manner of
//! Vandevoorde and Roberts, *WorkCrews*, 1988).
//!
//! A worker takes a problem, and solves it or divides it into smaller ones, which it puts back. The work is done when the heap is empty and
//! no worker has a problem any more. How the problems divide need not be known; there are as many threads as workers, and not as
//! many as problems. Workers may block, so there may be more of them than processors.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use upcall::workers;
//!
//! let sum = AtomicU64::new(0);
//! workers::solve(4, [1..1001u64], |heap, numbers| {
//!     if numbers.end - numbers.start < 10 {
//!         sum.fetch_add(numbers.sum(), Ordering::Relaxed);
//!     } else {
//!         let middle = numbers.start.midpoint(numbers.end);
//!         heap.put(numbers.start..middle);
//!         heap.put(middle..numbers.end);
//!     }
//! });
//! assert_eq!(sum.into_inner(), 500_500);
//! ```

use std::fmt;
use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// Problems that wait for a worker.
pub struct Heap<P> {
    state: Mutex<State<P>>,
    /// There is a problem, or there will be none.
    changed: Condvar,
}

struct State<P> {
    /// The last one is the next: divided problems are smaller, and so the heap stays small.
    problems: Vec<P>,
    /// How many workers have a problem.
    busy: usize,
    /// A worker panicked: no worker takes another problem.
    given_up: bool,
}

impl<P> Heap<P> {
    pub(crate) fn new(problems: Vec<P>) -> Self {
        Heap {
            state: Mutex::new(State {
                problems,
                busy: 0,
                given_up: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        // What the lock is around is whole at any moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a problem, which is the next to be taken.
    pub fn put(&self, problem: P) {
        self.lock().problems.push(problem);
        self.changed.notify_one();
    }

    /// Takes a problem, which is solved when what is returned is dropped. Waits as long as there is none and some worker
    /// may put one; `None`: there will be none.
    pub(crate) fn take(&self) -> Option<(P, Solving<'_, P>)> {
        let mut state = self.lock();
        loop {
            if state.given_up {
                return None;
            }
            if let Some(problem) = state.problems.pop() {
                state.busy += 1;
                return Some((problem, Solving(self)));
            }
            if state.busy == 0 {
                return None;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A worker has a problem.
pub(crate) struct Solving<'a, P>(&'a Heap<P>);

impl<P> Drop for Solving<'_, P> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy -= 1;
        state.given_up |= std::thread::panicking();
        let over = state.given_up || (state.busy == 0 && state.problems.is_empty());
        drop(state);
        if over {
            self.0.changed.notify_all();
        }
    }
}

impl<P> fmt::Debug for Heap<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Heap")
            .field("problems", &state.problems.len())
            .field("busy", &state.busy)
            .finish()
    }
}

/// Solves all problems, and those that they become, by so many threads (at least one). A worker takes the problem that
/// was put last.
///
/// # Panics
///
/// If a worker panicked: the others finish their problems and take no more, the problems that are left are dropped,
/// and the panic goes on here. If there is no memory, or the kernel gives no thread.
#[cfg(not(loom))]
pub fn solve<P, F>(workers: usize, problems: impl IntoIterator<Item = P>, solve: F)
where
    P: Send,
    F: Fn(&Heap<P>, P) + Sync,
{
    let heap = Heap::new(problems.into_iter().collect());
    crate::thread::scope(|scope| {
        let worker = || {
            while let Some((problem, solving)) = heap.take() {
                solve(&heap, problem);
                drop(solving);
            }
        };
        let workers: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(worker)).collect();
        let ends = workers.into_iter().map(|worker| worker.join());
        // All are joined before one of the panics goes on.
        if let Some(panic) = ends.filter_map(Result::err).last() {
            std::panic::resume_unwind(panic);
        }
    });
}
