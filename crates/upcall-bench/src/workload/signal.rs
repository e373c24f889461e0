//! `signal_wait`: a round trip between two threads over a mutex and two condition variables.
//!
//! Signal-Wait of Anderson et al. 1991, Tables 1 and 4, in both directions: each thread signals
//! the other's condition variable and waits on its own, holding the mutex throughout except while
//! it waits. One figure `ns` is the mean over `operations` round trips.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::posix::{Condition, Mutex, Thread, now_ns};
use super::{Failure, Figures, Params};

struct Exchange {
    mutex: Mutex,
    conditions: [Condition; 2],
    /// Written under the mutex alone.
    turn: AtomicUsize,
}

impl Exchange {
    fn take_turns(&self, me: usize, operations: usize) {
        self.mutex.lock();
        for _ in 0..operations {
            while self.turn.load(Ordering::Relaxed) != me {
                self.conditions[me].wait(&self.mutex);
            }
            self.turn.store(1 - me, Ordering::Relaxed);
            self.conditions[1 - me].signal();
        }
        self.mutex.unlock();
    }
}

pub fn run(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 10_000)?;
    let mut figures = Figures::default();
    for sample in 0..=samples {
        let exchange = Arc::new(Exchange {
            mutex: Mutex::new(),
            conditions: [Condition::new(), Condition::new()],
            turn: AtomicUsize::new(0),
        });
        let begin = now_ns();
        let mut threads = Vec::new();
        for me in 0..2 {
            let exchange = exchange.clone();
            threads.push(Thread::spawn(move || exchange.take_turns(me, operations))?);
        }
        super::posix::join_all(threads)?;
        let each = (now_ns() - begin) as f64 / operations as f64;
        if sample > 0 {
            figures.push("ns", each);
        }
    }
    Ok(figures)
}
