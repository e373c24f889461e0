//! The experiments of Anderson et al. (1991), §5.3, with the published costs of the Firefly.

use std::cell::RefCell;
use std::rc::Rc;

use super::program::{Problem, Result, parallel, sequential};
use crate::costs::{MS, US, firefly};
use crate::latency::{kernel_signal_wait, null_fork, signal_wait};
use crate::{Kind, Program, Scheduling, Setup, simulate};

/// Processors of the machine.
pub const PROCESSORS: u32 = 6;

/// Which system runs the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// Kernel threads.
    Topaz,
    /// User-level threads on kernel threads.
    Original,
    /// User-level threads on activations.
    New,
}

/// All of them, in the order of the paper's tables.
pub const SYSTEMS: [System; 3] = [System::Topaz, System::Original, System::New];

/// The application. The paper gives the miss and that the problem was small; the other figures are ours:
///
/// - *estimated*: a CVAX with its floating-point chip does somewhat more than half a million operations
///   a second, an interaction is 38 of them, a step down the tree while it is built a quarter of that;
///   a page is a block of 2 KiB with cells of 128 bytes; a turn of Topaz is 200 ms;
/// - *fitted* to Table 5: `lookup`, by which the lock is held for a third of the time, to the figures of
///   original and new FastThreads; `under_lock` of [`firefly::topaz`] to that of Topaz threads;
///   `bodies` is as small as leaves Figure 3 its shape.
///
/// `--example nbody_1991 sensitivity` shows what becomes of the table when each is another.
pub const PROBLEM: Problem = Problem {
    bodies: 200,
    steps: 10,
    interaction: 65 * US,
    insertion: 15 * US,
    lookup: 100 * US,
    page: 16,
    miss: firefly::MISS,
    memory: 100,
    quantum: 200 * MS,
    seed: 1,
};

/// A daemon of the kernel wakes up so often,
const DAEMON_EVERY: u64 = 100 * MS;
/// and runs for so long.
const DAEMON_RUNS: u64 = 4 * MS;

/// Runs `copies` of a problem at once, each with at most `processors`, beside the kernel's
/// daemons. Returns what each has computed.
pub fn run(system: System, processors: u32, copies: usize, problem: Problem) -> Vec<Result> {
    let (kind, costs, machine) = match system {
        // Nothing but the size of the machine limits what kernel threads use.
        System::Topaz => (Kind::KernelThreads, firefly::topaz(), processors),
        System::Original => (Kind::Bound, firefly::fast_threads(), PROCESSORS),
        System::New => (Kind::Activations, firefly::activations(), PROCESSORS),
    };
    let scheduling = match system {
        System::Topaz | System::Original => Scheduling::RoundRobin {
            quantum: problem.quantum,
        },
        System::New => Scheduling::Allocated(upcall_alloc::Terms {
            slice_ns: problem.quantum,
            spell_ns: 0,
        }),
    };
    let results: Vec<Rc<RefCell<Result>>> = (0..copies).map(|_| Rc::default()).collect();
    let mut programs: Vec<Program> = results
        .iter()
        .enumerate()
        .map(|(copy, result)| {
            let result = result.clone();
            let problem = Problem {
                seed: problem.seed + copy as u64,
                ..problem
            };
            Program {
                kind,
                costs: costs.clone(),
                vps: processors,
                daemon: false,
                main: Box::new(move |me| parallel(me, problem, &result)),
            }
        })
        .collect();
    programs.push(daemon());
    simulate(Setup {
        processors: machine,
        scheduling,
        programs,
        limit: 3_600_000 * MS,
    });
    results.into_iter().map(|result| result.take()).collect()
}

fn daemon() -> Program {
    Program {
        kind: Kind::KernelThreads,
        costs: firefly::topaz(),
        vps: 0,
        daemon: true,
        main: Box::new(|me| {
            loop {
                me.block(DAEMON_EVERY - DAEMON_RUNS);
                me.work(DAEMON_RUNS);
            }
        }),
    }
}

/// Runs of the same experiment with other bodies, of which the mean is taken.
const RUNS: u64 = 6;

/// Speedup over the sequential program, the mean of all copies.
pub fn speedup(problem: Problem, system: System, processors: u32, copies: usize) -> f64 {
    let (mut took, mut alone) = (0, 0);
    for run_number in 0..RUNS {
        let problem = Problem {
            seed: problem.seed + 2 * run_number,
            ..problem
        };
        let results = run(system, processors, copies, problem);
        took += results.iter().map(|result| result.ended).sum::<u64>();
        alone += (0..copies as u64)
            .map(|copy| {
                let seed = problem.seed + copy;
                sequential(Problem { seed, ..problem }).sequential
            })
            .sum::<u64>();
    }
    alone as f64 / took as f64
}

/// Time in seconds on all processors with so much of the memory (percent).
pub fn time(system: System, memory: u32) -> f64 {
    let took = (0..RUNS).map(|run_number| {
        let problem = Problem {
            memory,
            seed: PROBLEM.seed + 2 * run_number,
            ..PROBLEM
        };
        run(system, PROCESSORS, 1, problem)[0].ended
    });
    took.sum::<u64>() as f64 / RUNS as f64 / 1e9
}

/// A figure that the paper's text gives.
pub struct Point {
    /// What it is.
    pub what: &'static str,
    /// The paper's figure: microseconds, or a speedup.
    pub paper: f64,
    /// The same here.
    pub measure: fn() -> f64,
}

/// All of them.
pub fn published() -> Vec<Point> {
    use Kind::{Activations, Bound, KernelThreads};
    use firefly::{activations, fast_threads, topaz, ultrix};
    let point = |what, paper, measure| Point {
        what,
        paper,
        measure,
    };
    vec![
        point("Null Fork, FastThreads on Topaz (us)", 34.0, || {
            null_fork(Bound, fast_threads()) / 1e3
        }),
        point("Null Fork, FastThreads on activations (us)", 37.0, || {
            null_fork(Activations, activations()) / 1e3
        }),
        point("Null Fork, Topaz threads (us)", 948.0, || {
            null_fork(KernelThreads, topaz()) / 1e3
        }),
        point("Null Fork, Ultrix processes (us)", 11_300.0, || {
            null_fork(KernelThreads, ultrix()) / 1e3
        }),
        point("Signal-Wait, FastThreads on Topaz (us)", 37.0, || {
            signal_wait(Bound, fast_threads()) / 1e3
        }),
        point("Signal-Wait, FastThreads on activations (us)", 42.0, || {
            signal_wait(Activations, activations()) / 1e3
        }),
        point("Signal-Wait, Topaz threads (us)", 441.0, || {
            signal_wait(KernelThreads, topaz()) / 1e3
        }),
        point("Signal-Wait, Ultrix processes (us)", 1_840.0, || {
            signal_wait(KernelThreads, ultrix()) / 1e3
        }),
        point("Signal-Wait through the kernel (us)", 2_400.0, || {
            kernel_signal_wait(Activations, activations()) / 1e3
        }),
        point("Table 5, Topaz threads", 1.29, || {
            speedup(PROBLEM, System::Topaz, PROCESSORS, 2)
        }),
        point("Table 5, original FastThreads", 1.26, || {
            speedup(PROBLEM, System::Original, PROCESSORS, 2)
        }),
        point("Table 5, new FastThreads", 2.45, || {
            speedup(PROBLEM, System::New, PROCESSORS, 2)
        }),
    ]
}
