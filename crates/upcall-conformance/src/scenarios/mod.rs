//! The scenarios.
//!
//! | module | what the kernel does |
//! |---|---|
//! | [`blocked`] | blocks threads, in calls and on page faults, many times, and without kernel threads to spare |
//! | [`unblocked`] | lets them come back: to idle processors, to busy ones, for more urgent ones |
//! | [`preempted`] | stops threads: in critical sections, in the runtime, on processors that are taken or forbidden |
//! | [`processors`] | adds processors, and lets them rest |
//!
//! If a thread must run, other threads wait for it and *compute* meanwhile: they neither park nor give way.
//! With [`Slices::Endless`] no time slice ends their wait either. So only the upcall that gives the
//! scenario its name lets it go on.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::world::{Counters, Slices, World};

pub mod blocked;
pub mod preempted;
pub mod processors;
pub mod unblocked;

/// What a run has shown when it is over.
pub struct Facts {
    /// Virtual processors.
    pub processors: u64,
    /// [`World::rounds`].
    pub rounds: u64,
    /// True if the kernel tells the runtime of every processor that it takes.
    pub is_told: bool,
    /// What the runtime counted.
    pub counters: Counters,
}

/// A scenario for worlds of one kind.
pub struct Scenario<W: World> {
    /// Its name.
    pub name: &'static str,
    /// What it does. The error is the reason why this world cannot do it.
    pub body: fn(W) -> Result<(), String>,
    /// When its threads are preempted, by the number of virtual processors.
    pub slices: fn(usize) -> Slices,
    /// The least number of virtual processors that it needs.
    pub least: usize,
    /// True if its threads have priorities.
    pub by_priority: bool,
    /// True if it runs beside other programs that compute, where there can be some.
    pub is_crowded: bool,
    /// What must hold of every run.
    pub holds: fn(&Facts) -> bool,
    /// What must have happened at least once in all runs in a world.
    pub happens: fn(&Facts) -> bool,
}

impl<W: World> Scenario<W> {
    /// A scenario that must end, without the help of a time slice. Nothing else is asked of it.
    fn new(name: &'static str, body: fn(W) -> Result<(), String>) -> Self {
        Scenario {
            name,
            body,
            slices: |_| Slices::Endless,
            least: 1,
            by_priority: false,
            is_crowded: false,
            holds: |_| true,
            happens: |_| true,
        }
    }
}

/// All scenarios, in the order of [`each_scenario`](crate::each_scenario).
pub fn scenarios<W: World>() -> Vec<Scenario<W>> {
    let mut all = blocked::scenarios();
    all.extend(unblocked::scenarios());
    all.extend(preempted::scenarios());
    all.extend(processors::scenarios());
    all
}

/// The scenario of that name.
pub fn find<W: World>(name: &str) -> Option<Scenario<W>> {
    scenarios().into_iter().find(|one| one.name == name)
}

/// With several virtual processors, a thread that comes back may be given to an idle one that finds another
/// thread first. Then only the end of a time slice lets it run.
fn endless_on_one(processors: usize) -> Slices {
    if processors == 1 {
        Slices::Endless
    } else {
        Slices::Short
    }
}

/// A zero.
fn word() -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(0)))
}

fn add_one(word: &AtomicU32) {
    word.fetch_add(1, Ordering::SeqCst);
}

fn is(word: &AtomicU32, value: u32) -> bool {
    word.load(Ordering::SeqCst) == value
}

/// Computes until `holds` returns true.
fn compute_until<W: World>(w: W, holds: impl Fn() -> bool) {
    while !holds() {
        w.step();
    }
}

/// One thread for each virtual processor.
fn on_each<W: World>(w: W, body: impl FnOnce(W) + Copy + Send + 'static) -> Vec<W::Handle> {
    (0..w.processors()).map(|_| w.spawn(body)).collect()
}

fn join_all<W: World>(w: W, threads: Vec<W::Handle>) {
    for thread in threads {
        w.join(thread);
    }
}

/// Gives way until one thread for each processor waits on the gate.
fn all_wait<W: World>(w: W, gate: W::Gate) {
    while w.nr_waiting(gate) < w.processors() {
        w.yield_now();
    }
}
