//! The experiments of Anderson et al. (1991), §5.3, with the published costs of the Firefly.

use std::cell::RefCell;
use std::rc::Rc;

use super::program::{Problem, Result, parallel, sequential};
use crate::costs::{Costs, MS, US, firefly};
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

/// The application. The paper gives the miss, and says that the problem was small, that the critical
/// sections are a bottleneck for kernel threads and not for the others, and (by Table 5) that new
/// FastThreads reach 2.45 to 2.58 on three processors; the other figures are ours:
///
/// - *estimated*: a CVAX with its floating-point chip does somewhat more than half a million operations
///   a second, and an instruction in 0.7 µs: an interaction is 38 operations; a step down the tree
///   while it is built, with the sums of the cell and the place of the next one, 16 of them and a
///   procedure call; to look a page up and put it first, 34 instructions and three procedure
///   calls. A page is a block of 2 KiB with cells of 128 bytes; a daemon runs for 4 of 100 ms;
/// - *chosen*: as few bodies, and as few of them for a thread, as leave Figure 3 its shape;
/// - *fitted* to Table 5's figure of original FastThreads: `quantum`, a turn of Topaz.
///
/// `--example nbody_1991 sensitivity` shows what becomes of the table when each is another.
pub const PROBLEM: Problem = Problem {
    bodies: 200,
    steps: 10,
    grain: 2,
    interaction: 65 * US,
    insertion: 35 * US,
    lookup: 45 * US,
    page: 16,
    miss: firefly::MISS,
    memory: 100,
    quantum: 450 * MS,
    daemon: 4 * MS,
    seed: 1,
};

/// A daemon of the kernel wakes up so often.
const DAEMON_EVERY: u64 = 100 * MS;

/// Runs `copies` of a problem at once, each with at most `processors`, beside the kernel's
/// daemons. Returns what each has computed.
pub fn run(system: System, processors: u32, copies: usize, problem: Problem) -> Vec<Result> {
    run_with(system, processors, copies, problem, |_| {})
}

/// The same on a machine whose costs are changed.
pub fn run_with(
    system: System,
    processors: u32,
    copies: usize,
    problem: Problem,
    change: fn(&mut Costs),
) -> Vec<Result> {
    let (kind, mut costs, machine) = match system {
        // Nothing but the size of the machine limits what kernel threads use.
        System::Topaz => (Kind::KernelThreads, firefly::topaz(), processors),
        System::Original => (Kind::Bound, firefly::fast_threads(), PROCESSORS),
        System::New => (Kind::Activations, firefly::activations(), PROCESSORS),
    };
    change(&mut costs);
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
    programs.push(daemon(problem.daemon));
    simulate(Setup {
        processors: machine,
        scheduling,
        programs,
        limit: 3_600_000 * MS,
    });
    results.into_iter().map(|result| result.take()).collect()
}

fn daemon(runs: u64) -> Program {
    Program {
        kind: Kind::KernelThreads,
        costs: firefly::topaz(),
        vps: 0,
        daemon: true,
        main: Box::new(move |me| {
            loop {
                me.block(DAEMON_EVERY - runs);
                me.work(runs);
            }
        }),
    }
}

/// Runs of the same experiment with other bodies, of which the mean is taken.
const RUNS: u64 = 6;

/// Speedup over the sequential program, the mean of all copies.
pub fn speedup(problem: Problem, system: System, processors: u32, copies: usize) -> f64 {
    speedup_with(problem, system, processors, copies, |_| {})
}

/// The same on a machine whose costs are changed.
pub fn speedup_with(
    problem: Problem,
    system: System,
    processors: u32,
    copies: usize,
    change: fn(&mut Costs),
) -> f64 {
    let (mut took, mut alone) = (0, 0);
    for run_number in 0..RUNS {
        let problem = Problem {
            seed: problem.seed + 2 * run_number,
            ..problem
        };
        let results = run_with(system, processors, copies, problem, change);
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

/// Where the time of all processors goes, in percent of it.
pub struct Shares {
    /// Forces are computed, beside the lock.
    pub forces: f64,
    /// Pages are looked up, under the lock.
    pub lookups: f64,
    /// The tree is built and the bodies are moved, by one thread,
    pub alone: f64,
    /// while the other processors have nothing to do.
    pub others: f64,
    /// The remainder: operations on threads, the bus, waiting.
    pub rest: f64,
    /// How much of the time in which forces are computed the lock is held: all of it would be no
    /// speedup any more.
    pub lock: f64,
}

/// The shares of one copy.
pub fn shares(problem: Problem, system: System, processors: u32) -> Shares {
    let alone = sequential(problem);
    let with = &run(system, processors, 1, problem)[0];
    let all = with.ended as f64 * f64::from(processors);
    let percent = |time: u64| 100.0 * time as f64 / all;
    let forces = percent(alone.sequential - alone.locked - alone.alone);
    let lookups = percent(alone.locked);
    let others = percent(with.alone) * f64::from(processors - 1);
    let alone = percent(with.alone);
    Shares {
        forces,
        lookups,
        alone,
        others,
        rest: 100.0 - forces - lookups - alone - others,
        lock: 100.0 * with.locked as f64 / (with.ended - with.alone) as f64,
    }
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
