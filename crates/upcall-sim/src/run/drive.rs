//! Runs a scenario with many seeds, replays one run, and shrinks a run that fails.
//!
//! Seeds run in a child process, a *worker*. So a crash is a result like any other, and the parent can go on and shrink
//! the run. The worker says in shared memory where it is. A replay runs in the process itself, for a debugger.
//!
//! | variable | effect |
//! |---|---|
//! | `UPCALL_TEST_SEEDS=N` | runs seeds 1 to N of each scenario |
//! | `UPCALL_TEST_SEEDS=M-N` | runs seeds M to N |
//! | `UPCALL_TEST_SEED=PLAN` | replays one run (see [`Plan`]) |
//! | `UPCALL_TEST_SHRINK=0` | does not look for the shortest run that fails in the same way; otherwise that one is printed |
//! | `UPCALL_TEST_WANTED=TEXT` | passes over failures whose report does not contain this text |

use std::cell::Cell;
use std::fmt;
use std::ops::RangeInclusive;
use std::panic;

use crate::machine::Machine;
use crate::run::bound;
use crate::run::explore::Explore;
use crate::run::shared::Shared;
use crate::run::shrink::shrink;
use crate::setup::plan::Plan;
use crate::setup::style::Style;
use crate::threads::{self, KernelThread, Me};

/// Seeds of each scenario, if not said.
const SEEDS: u64 = if cfg!(debug_assertions) { 100 } else { 1000 };

/// What a scenario does.
#[derive(Clone, Copy)]
pub enum Scenario {
    /// One program, which has the machine for itself.
    Alone(fn(Me)),
    /// Several programs, between which a daemon divides the processors.
    Together(&'static [Program]),
}

/// One of several programs.
#[derive(Clone, Copy)]
pub enum Program {
    /// One that runs on the runtime, with a virtual processor for each processor.
    Ours(fn(Me)),
    /// One that has so many kernel threads, each of which does that.
    Others(usize, fn(KernelThread)),
}

impl Scenario {
    fn style(self, pick: &mut dyn FnMut(u64) -> u64) -> Style {
        let mut style = Style::draw(pick);
        if let Scenario::Together(programs) = self {
            style.spaces = programs.len();
            style.processors.truncate(MOST_SHARED);
        }
        style
    }

    fn boot(self, machine: &'static Machine) {
        let processors = &machine.style.processors;
        let programs = match self {
            Scenario::Alone(main) => return threads::boot(machine, 0, processors, main),
            Scenario::Together(programs) => programs,
        };
        machine.start_daemon();
        for (space, program) in programs.iter().enumerate() {
            match *program {
                Program::Ours(main) => {
                    threads::boot(machine, space, processors, main);
                    threads::boot_listener(machine, space);
                }
                Program::Others(count, body) => {
                    for _ in 0..count {
                        threads::boot_kernel_thread(machine, space, body);
                    }
                }
            }
        }
    }
}

/// Processors of a machine that several programs share, at most.
const MOST_SHARED: usize = 8;

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which run.
    pub plan: Plan,
    /// What did not hold, and the state of the machine.
    pub what: String,
    /// After how many points.
    pub points: u64,
    /// Draws until then.
    pub draws: u64,
}

impl Failure {
    /// The same for failures of one kind: what did not hold, without numbers.
    pub(crate) fn kind(&self) -> String {
        let line = self.what.lines().next().unwrap_or("");
        line.chars().filter(|one| !one.is_ascii_digit()).collect()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} points, {}", self.points, self.what)
    }
}

/// Runs `scenario` with many seeds, or replays one run of it: see the module.
///
/// # Panics
///
/// When a run fails.
pub fn explore(name: &str, main: fn(Me)) {
    explore_less(name, "1", main);
}

/// As [`explore`], in runs in which no more happens than this [`Plan`] says.
///
/// # Panics
///
/// When a run fails, or the plan is none.
pub fn explore_less(name: &str, less: &str, main: fn(Me)) {
    explore_all(name, less, Scenario::Alone(main));
}

/// As [`explore`], several programs on one machine, between which a daemon divides the processors.
///
/// # Panics
///
/// When a run fails.
pub fn explore_together(name: &str, programs: &'static [Program]) {
    explore_all(name, "1", Scenario::Together(programs));
}

fn explore_all(name: &str, less: &str, scenario: Scenario) {
    let less: Plan = less.parse().expect("a plan");
    let attempt = |plan: &Plan| run(plan, scenario);
    let seeds = match asked(SEEDS) {
        Asked::Replay(plan) => {
            if let Err(failure) = attempt(&plan) {
                panic!("{name}: {failure}");
            }
            return;
        }
        Asked::Seeds(seeds) => seeds,
    };
    let wanted = std::env::var("UPCALL_TEST_WANTED").unwrap_or_default();
    let mut next = *seeds.start();
    let first = loop {
        let plans = (next..=*seeds.end()).map(|seed| Plan {
            seed,
            ..less.clone()
        });
        let Err(failure) = hunt(plans, attempt) else {
            return;
        };
        if failure.what.contains(&wanted) {
            break failure;
        }
        next = failure.plan.seed + 1;
    };
    let replay = |plan: &Plan| replay("upcall-sim", name, plan);
    eprintln!("{name} failed: {}\n{first}", replay(&first.plan));
    if std::env::var_os("UPCALL_TEST_SHRINK").is_some_and(|value| value == "0") {
        panic!("{name} failed");
    }
    let least = shrink(first, attempt);
    panic!("{name}, shrunk: {least}\nreplay: {}", replay(&least.plan));
}

/// What the environment asks for.
pub enum Asked {
    /// This run.
    Replay(Plan),
    /// Runs with these seeds.
    Seeds(RangeInclusive<u64>),
}

/// What the environment asks for; so many seeds, if nothing.
///
/// # Panics
///
/// When it is neither numbers nor a plan.
pub fn asked(seeds: u64) -> Asked {
    if let Ok(text) = std::env::var("UPCALL_TEST_SEED") {
        return Asked::Replay(text.parse().expect("UPCALL_TEST_SEED"));
    }
    let text = std::env::var("UPCALL_TEST_SEEDS").unwrap_or_else(|_| seeds.to_string());
    let (first, last) = text.split_once('-').unwrap_or(("1", &text));
    let number = |text: &str| text.parse::<u64>().expect("UPCALL_TEST_SEEDS");
    let seeds = number(first)..=number(last);
    assert!(!seeds.is_empty(), "UPCALL_TEST_SEEDS: no seed in {text}");
    Asked::Seeds(seeds)
}

/// The command that replays a run of a test, in the same build: another one has other steps.
pub fn replay(package: &str, name: &str, plan: &Plan) -> String {
    let program = std::env::current_exe().unwrap_or_default();
    // target/PROFILE/deps/TEST
    let profile = match program.iter().nth_back(2).and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    format!("UPCALL_TEST_SEED={plan} cargo test --profile {profile} -p {package} {name}")
}

/// Attempts one plan after the other in a worker, and adds up what the attempts say.
///
/// # Errors
///
/// The first that failed.
pub fn hunt(
    plans: impl Iterator<Item = Plan>,
    attempt: impl Fn(&Plan) -> Result<u64, Failure>,
) -> Result<u64, Failure> {
    let shared = Shared::new();
    // SAFETY: the child uses what glibc and std keep usable after a fork: memory and this module's own.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no worker");
    if child == 0 {
        // One that panics has told why.
        let attempts = panic::AssertUnwindSafe(|| work(plans, attempt, &shared));
        let failed = panic::catch_unwind(attempts).unwrap_or(true);
        // SAFETY: ends the child, without what the parent's exit would do.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: our own child.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {}
    if status == 0 {
        return Ok(shared.sum());
    }
    let mut what = shared.text();
    if libc::WIFSIGNALED(status) && what.is_empty() {
        what = format!("ended by signal {}", libc::WTERMSIG(status));
    }
    let (points, draws) = (shared.points(), shared.draws());
    Err(Failure {
        plan: shared.plan(),
        what,
        points,
        draws,
    })
}

/// In the child. Returns true if a plan failed.
fn work(
    plans: impl Iterator<Item = Plan>,
    attempt: impl Fn(&Plan) -> Result<u64, Failure>,
    shared: &Shared,
) -> bool {
    WORKER.set(shared);
    // Printed by the parent, if at all.
    panic::set_hook(Box::new(|information| {
        // SAFETY: null, or of this child, which does not give it back.
        if let Some(shared) = unsafe { WORKER.get().as_ref() } {
            shared.tell(&format!("{information}\n"));
        }
    }));
    for plan in plans {
        shared.begin(&plan);
        match attempt(&plan) {
            Ok(number) => shared.add(number),
            Err(failure) => {
                shared.tell(&failure.what);
                shared.count(failure.points, failure.draws);
                return true;
            }
        }
    }
    false
}

thread_local! {
    /// Where the panics of a worker are told.
    static WORKER: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// One run of a scenario, of which nothing is counted.
fn run(plan: &Plan, scenario: Scenario) -> Result<u64, Failure> {
    let draw = |pick: &mut dyn FnMut(u64) -> u64| scenario.style(pick);
    play(plan, draw, |machine| scenario.boot(machine), || Ok(0))
}

/// One run, here, on a machine whose style `draw` gives and on which `boot` puts programs; `judge`
/// says afterwards what came of it.
///
/// # Errors
///
/// What did not hold.
pub fn play(
    plan: &Plan,
    draw: impl FnOnce(&mut dyn FnMut(u64) -> u64) -> Style,
    boot: impl FnOnce(&'static Machine),
    judge: impl FnOnce() -> Result<u64, String>,
) -> Result<u64, Failure> {
    let machine = Machine::new(
        plan.seed,
        |pick| plan.reduce(draw(pick)),
        |style| Box::new(Explore::new(style)),
    );
    machine.limit(plan);
    let machine = Box::into_raw(Box::new(machine));
    // SAFETY: freed below, when nothing refers to it any more.
    let borrowed: &'static Machine = unsafe { &*machine };
    boot(borrowed);
    bound::begin(borrowed);
    let result = borrowed.run();
    bound::end();
    let result = result.and_then(|()| judge());
    let result = result.map_err(|what| Failure {
        plan: plan.clone(),
        what: format!("{what}\n{}", borrowed.describe()),
        points: borrowed.points.get(),
        draws: borrowed.draws(),
    });
    // SAFETY: made above; the run is over.
    drop(unsafe { Box::from_raw(machine) });
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many events there were, and their hash.
    fn timeline_of(seed: u64) -> (u64, u64) {
        let plan: Plan = format!("{seed},without=stepping").parse().unwrap();
        let main = |me: Me| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    me.spawn(|me| {
                        for _ in 0..5 {
                            me.steps(5);
                            me.call(2_000);
                            me.yield_now();
                            me.sleep(1_000);
                        }
                    })
                })
                .collect();
            for thread in threads {
                me.join(thread);
            }
        };
        let machine = Cell::new(None);
        let events = Cell::new(0);
        let boot = |borrowed| {
            machine.set(Some(borrowed));
            Scenario::Alone(main).boot(borrowed);
        };
        let judge = || {
            let machine: &Machine = machine.get().expect("it was booted");
            let timeline = &machine.spaces[0].timeline;
            events.set(timeline.count.get());
            Ok(timeline.hash.get())
        };
        let hash = play(&plan, |pick| Style::draw(pick), boot, judge).expect("no failure");
        (events.get(), hash)
    }

    #[test]
    fn the_timeline_of_a_seed_is_always_the_same() {
        for seed in (1..40).step_by(2) {
            let (events, hash) = timeline_of(seed);
            assert!(events > 50, "{seed}: {events} events");
            assert_eq!(timeline_of(seed), (events, hash), "{seed}");
        }
        assert_eq!(timeline_of(2).0, 0, "nobody asks for events");
        assert_ne!(timeline_of(1).1, timeline_of(3).1);
    }

    /// What the bound is for: the run ends, and says so.
    #[test]
    fn an_endless_loop_ends_the_run() {
        let plan: Plan = "1,without=stepping".parse().unwrap();
        let scenario = Scenario::Alone(|me| {
            let _ = me.runtime.enter();
            loop {
                std::hint::spin_loop();
            }
        });
        let hunted = hunt([plan].into_iter(), |plan| run(plan, scenario));
        assert!(hunted.is_err_and(|failure| failure.what.contains("endless loop")));
    }

    #[test]
    fn a_crash_is_a_failure_with_its_seed() {
        let seeds = (1..=5).map(Plan::from);
        let scenario = Scenario::Alone(|me| assert!(me.machine.seed() != 3, "the third"));
        let hunted = hunt(seeds, |plan| run(plan, scenario));
        let failure = hunted.expect_err("a failure");
        assert_eq!(failure.plan.seed, 3);
        assert!(failure.what.contains("the third"), "{failure}");
    }

    /// A panic outside of a vessel, such as one of the machine itself, unwinds as far as the worker.
    #[test]
    fn a_panic_of_the_worker_is_a_failure() {
        let seeds = (1..=5).map(Plan::from);
        let hunted = hunt(seeds, |plan| {
            assert!(plan.seed != 3, "the machine's own");
            Ok(1)
        });
        let failure = hunted.expect_err("a failure");
        assert_eq!(failure.plan.seed, 3);
        assert!(failure.what.contains("the machine's own"), "{failure}");
    }
}
