//! Does it scale beyond a hundred processors, to ten thousand? (The question asked in the paper's
//! discussion.) The core and the allocator with today's costs, on machines that grow.
//!
//! Each address space runs a tree of forks whose leaves compute; the leaves are as many for each
//! processor on every machine, and virtual processors twice as many as its share, where there are
//! so many. All begin at one moment, when the kernel threads are there: these are made one after the
//! other by the first thread of each, which takes `start`. Efficiency is speedup by processors. The cost
//! of the allocator's decisions is measured by its own example, `decisions`.

use std::time::Instant;

use upcall_timed::costs::{MS, US, today};
use upcall_timed::{Kind, Me, Program, Report, Scheduling, Setup, simulate};

/// Leaves for each processor,
const LEAVES: u64 = 16;
/// each of which computes for this time.
const LEAF: u64 = 100 * US;
/// When they begin.
const BEGIN: u64 = 200 * MS;

/// Forks a tree with so many leaves.
fn tree(me: Me, leaves: u64) {
    if leaves <= 1 {
        me.work(LEAF);
        return;
    }
    let half = leaves / 2;
    let other = me.fork(move |me| tree(me, half));
    tree(me, leaves - half);
    me.join(other);
}

fn measure(processors: u32, spaces: u32) {
    let vps = (2 * processors / spaces).clamp(1, processors);
    let leaves = u64::from(processors) * LEAVES / u64::from(spaces);
    let programs = (0..spaces).map(|_| Program {
        kind: Kind::Activations,
        costs: today::activations(),
        vps,
        daemon: false,
        main: Box::new(move |me| {
            me.block(BEGIN - me.now());
            tree(me, leaves);
        }),
    });
    let clock = Instant::now();
    let outcome = simulate(Setup {
        processors,
        scheduling: Scheduling::Allocated(upcall_alloc::Terms::default()),
        programs: programs.collect(),
        limit: 3_600_000 * MS,
    });
    let wall = clock.elapsed().as_secs_f64();
    let all = |of: fn(&Report) -> u64| outcome.programs.iter().map(of);
    let took = (all(|one| one.ended).max().unwrap_or(0) - BEGIN) as f64;
    let speedup = all(|one| one.computed).sum::<u64>() as f64 / took;
    println!(
        "{processors:>10} {spaces:>7} {speedup:>9.1} {:>6.1} {:>11.0} {:>9} {:>9} {:>7} {:>9.2} {wall:>7.2}",
        100.0 * speedup / f64::from(processors),
        all(|one| one.upcalls).sum::<u64>() as f64 / (took / 1e9),
        all(|one| one.stolen).sum::<u64>(),
        outcome.allocator_calls,
        outcome.moves,
        all(|one| one.began).max().unwrap_or(0) as f64 / 1e6,
    );
}

fn main() {
    println!(
        "{:>10} {:>7} {:>9} {:>6} {:>11} {:>9} {:>9} {:>7} {:>9} {:>7}",
        "processors",
        "spaces",
        "speedup",
        "%",
        "upcalls/s",
        "steals",
        "decisions",
        "moves",
        "start ms",
        "wall s"
    );
    let most: u32 = std::env::args()
        .nth(1)
        .map_or(10_000, |word| word.parse().expect("a number"));
    for processors in [1, 2, 4, 8, 16, 32, 64, 100, 300, 1_000, 3_000, 10_000] {
        for spaces in [1, 10, 100, 1_000] {
            if processors <= most && spaces <= processors && (spaces == 1 || processors >= 100) {
                measure(processors, spaces);
            }
        }
    }
}
