//! The operations of Tables 1 and 4 of Anderson et al., measured on the timed machine.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::costs::{Costs, MS, firefly};
use super::{Kind, Me, Program, Scheduling, Setup, Word, simulate};

/// How often an operation is repeated.
const TIMES: u32 = 1000;

/// Runs `main` alone on one processor; returns the time that it says, for one operation.
fn alone(kind: Kind, costs: Costs, main: impl Fn(Me) -> u64 + 'static) -> f64 {
    let took = Rc::new(Cell::new(0));
    let out = took.clone();
    let scheduling = match kind {
        Kind::Activations => Scheduling::Allocated(upcall_alloc::Terms::default()),
        Kind::Bound | Kind::KernelThreads => Scheduling::RoundRobin { quantum: 100 * MS },
    };
    simulate(Setup {
        processors: 1,
        scheduling,
        programs: vec![Program {
            kind,
            costs,
            vps: 1,
            daemon: false,
            main: Box::new(move |me| out.set(main(me))),
        }],
        limit: 3_600_000 * MS,
    });
    took.get() as f64 / f64::from(TIMES)
}

/// Null Fork: create, schedule, execute and complete a thread that calls the null procedure.
pub fn null_fork(kind: Kind, costs: Costs) -> f64 {
    alone(kind, costs, |me| {
        let began = me.now();
        let threads: Vec<_> = (0..TIMES)
            .map(|_| me.fork(|me| me.work(firefly::CALL)))
            .collect();
        for thread in threads {
            me.join(thread);
        }
        me.now() - began
    })
}

/// Signal-Wait: signal a waiting thread, then wait.
pub fn signal_wait(kind: Kind, costs: Costs) -> f64 {
    ping_pong(kind, costs, Me::wait, Me::wake)
}

/// The same, forced through the kernel.
pub fn kernel_signal_wait(kind: Kind, costs: Costs) -> f64 {
    ping_pong(kind, costs, Me::wait_in_kernel, Me::wake_in_kernel)
}

fn ping_pong(kind: Kind, costs: Costs, wait: fn(Me, &Word, u32), wake: fn(Me, &Word, u32)) -> f64 {
    alone(kind, costs, move |me| {
        let ball = Rc::new(Word::new(0));
        let began = me.now();
        let players = [0, 1].map(|side| {
            let ball = ball.clone();
            me.fork(move |me| {
                for _ in 0..TIMES / 2 {
                    loop {
                        let now = ball.value.load(Ordering::SeqCst);
                        if now % 2 == side {
                            break;
                        }
                        wait(me, &ball, now);
                    }
                    ball.value.fetch_add(1, Ordering::SeqCst);
                    wake(me, &ball, 1);
                }
            })
        });
        for player in players {
            me.join(player);
        }
        me.now() - began
    })
}
