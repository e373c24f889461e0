//! `signal_wait`: a round trip between two threads over a mutex and two condition variables.
//!
//! Signal-Wait of Anderson et al. 1991, Tables 1 and 4, in both directions: each thread signals
//! the other's condition variable and waits on its own, holding the mutex throughout except while
//! it waits. One figure `ns` is the mean over `operations` round trips.

use std::sync::Arc;

use super::posix::now_ns;
use super::threads::{Mutex, Threads};
use super::{Failure, Figures, Params};

/// The mutex guards whose turn it is.
struct Exchange<M: Mutex<usize>> {
    turn: M,
    conditions: [M::Condition; 2],
}

impl<M: Mutex<usize>> Exchange<M> {
    fn take_turns(&self, me: usize, operations: usize) {
        let mut turn = self.turn.lock();
        for _ in 0..operations {
            while *turn != me {
                turn = self.turn.wait(&self.conditions[me], turn);
            }
            *turn = 1 - me;
            M::signal(&self.conditions[1 - me]);
        }
    }
}

pub fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 10_000)?;
    let mut figures = Figures::default();
    for sample in 0..=samples {
        let exchange = Arc::new(Exchange {
            turn: T::Mutex::new(0),
            conditions: [(); 2].map(|()| T::Mutex::<usize>::condition()),
        });
        let begin = now_ns();
        let mut threads = Vec::new();
        for me in 0..2 {
            let exchange = exchange.clone();
            threads.push(T::spawn(move || exchange.take_turns(me, operations)));
        }
        threads.into_iter().for_each(T::join);
        let each = (now_ns() - begin) as f64 / operations as f64;
        if sample > 0 {
            figures.push("ns", each);
        }
    }
    Ok(figures)
}
