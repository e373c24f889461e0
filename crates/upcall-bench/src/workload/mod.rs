//! The workloads: what the program `upcall-workload` does.
//!
//! The program is written as any program with POSIX threads is: `pthread_create`, semaphores,
//! mutexes, condition variables, pipes, `nanosleep`, `sched_yield`. It has no knowledge of the
//! runtime that carries it, so one binary serves as the native program (`nptl`) and as the
//! unmodified program under `upcall run`. Workloads that need nothing but threads are written for
//! any package of them ([`threads`]): the program `upcall-workload-crate` has these with the crate
//! upcall. The peers in Go, C++ and Java speak the same protocol.
//!
//! # Protocol
//!
//! 1. `upcall-workload NAME [KEY=VALUE ...]`; every key has a default, an unknown one is an error.
//!    All programs but that of POSIX threads are told by `workers=N` how many processors to use.
//! 2. Standard input is a control channel where a workload needs one: a socket to the resolver of
//!    page faults (`how=uffd`) or to the process that makes events (`reactivity`), or the start signal of a pair of
//!    copies.
//! 3. Standard output has one line per figure, `SERIES VALUE`, and a last line `done`, so that a
//!    truncated run cannot pass for a complete one.
//! 4. Exit status 0; [`SKIP`] with a reason on standard error if this machine cannot run it;
//!    1 if something failed; 2 for a bad command line.
//!
//! Measuring inside the program was chosen over timing the whole process from outside: start-up
//! differs between runtimes by far more than what most workloads measure.

mod applications;
mod block;
pub mod blocked;
mod blockers;
mod cold;
pub mod counted;
mod create;
mod critical;
mod flagged;
pub mod fork;
mod interruption;
pub mod load;
mod machine;
mod mutex;
pub mod nbody;
mod never;
mod pair;
mod params;
mod pipe;
pub mod posix;
mod process;
pub mod reactivity;
mod resolver;
mod semaphore;
mod share;
mod signal;
mod start;
pub mod threads;
pub mod uffd;
mod unblock;
mod yields;

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

pub use params::Params;
use threads::Threads;

/// Exit status of a workload that this machine cannot run; the reason is on standard error.
pub const SKIP: u8 = 77;

/// Why a workload gave no figures.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// This machine lacks something that the workload needs.
    Skip(String),
    /// Something that should have worked did not.
    Failed(String),
}

impl Failure {
    /// A failed system call: `what`, with the reason that `errno` gives.
    pub(crate) fn errno(what: &str) -> Self {
        Self::Failed(format!("{what}: {}", std::io::Error::last_os_error()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Skip(text) | Self::Failed(text) => f.write_str(text),
        }
    }
}

/// The figures of one run, in the order in which they were taken.
#[derive(Debug, Default)]
pub struct Figures(Vec<(&'static str, f64)>);

impl Figures {
    /// Adds one figure to `series`.
    pub fn push(&mut self, series: &'static str, value: f64) {
        self.0.push((series, value));
    }

    /// All figures of `series`.
    #[must_use]
    pub fn series(&self, series: &str) -> Vec<f64> {
        let mine = self.0.iter().filter(|(name, _)| *name == series);
        mine.map(|(_, value)| *value).collect()
    }
}

/// A workload program.
pub type Body = fn(&Params) -> Result<Figures, Failure>;

/// The workload programs that any package of threads has, by name.
fn common<T: Threads>() -> Vec<(&'static str, Body)> {
    vec![
        ("blocked", blocked::run::<T>),
        ("computation", fork::computation::<T>),
        ("counted", counted::run::<T>),
        ("critical_sections", critical::run::<T>),
        ("fib", fork::fibonacci::<T>),
        ("fib_join", fork::fibonacci_join::<T>),
        ("fork_batch", fork::batch::<T>),
        ("gauss", applications::gauss::<T>),
        ("interruption", interruption::run::<T>),
        ("join_null", fork::null_join::<T>),
        ("kernel_signal_wait", process::signal_wait::<T>),
        ("kernel_trap", machine::kernel_trap),
        ("mutex_64", mutex::run::<T>),
        ("nbody", nbody::run::<T>),
        ("null_fork", fork::null::<T>),
        ("parallel_sort", applications::parallel_sort::<T>),
        ("pipe_exchange", pipe::run::<T>),
        ("procedure_call", machine::procedure_call),
        ("process_fork", process::null),
        ("reactivity", reactivity::run::<T>),
        ("section_flags", flagged::run::<T>),
        ("semaphore", semaphore::run::<T>),
        ("signal_wait", signal::run::<T>),
        ("sumtime", fork::sumtime::<T>),
        ("sumtime_join", fork::sumtime_join::<T>),
        ("yield", yields::run::<T>),
    ]
}

/// Those of POSIX threads alone; `resolver` is the helper process of the fault workloads.
const POSIX: &[(&str, Body)] = &[
    ("block_to_compute", block::run),
    ("blockers", blockers::run),
    ("create_join", create::run),
    ("events", reactivity::events),
    ("never_blocks", never::run),
    ("pair_barrier", pair::barrier),
    ("pair_spin", pair::spin_lock),
    ("pair_ticket", pair::ticket),
    ("resolver", resolver::run),
    ("share", share::run),
    ("spin_barrier", pair::crowded_barrier),
    ("spin_ring", pair::rings),
    ("start", start::run),
    ("unblock_to_run", unblock::run),
];

/// The program `upcall-workload`: runs the workload that `args` name, with POSIX threads. `more` are
/// others that it has.
pub fn main(more: Vec<(&'static str, Body)>, args: impl Iterator<Item = String>) -> ExitCode {
    let mut programs = common::<posix::Posix>();
    programs.extend(POSIX);
    programs.extend(more);
    print_or_say(command(args).and_then(|(name, params)| run(&programs, &name, &params)))
}

/// The program of another package of threads, with all that any package has, and `more`.
pub fn main_on<T: Threads>(
    more: Vec<(&'static str, Body)>,
    args: impl Iterator<Item = String>,
    start: impl FnOnce(usize, Job) -> Result<Figures, Failure>,
) -> ExitCode {
    let mut programs = common::<T>();
    programs.extend(more);
    with_programs(programs, args, start)
}

/// A program with these workloads: `start` is told how many processors there are for it
/// (`workers=`) and calls the body on one of its threads.
pub fn with_programs(
    programs: Vec<(&'static str, Body)>,
    args: impl Iterator<Item = String>,
    start: impl FnOnce(usize, Job) -> Result<Figures, Failure>,
) -> ExitCode {
    print_or_say(command(args).and_then(|(name, params)| {
        let workers = params.number("workers", 1)?;
        start(workers, Box::new(move || run(&programs, &name, &params)))
    }))
}

/// What a program does once its package of threads has been started.
pub type Job = Box<dyn FnOnce() -> Result<Figures, Failure> + Send>;

fn command(mut args: impl Iterator<Item = String>) -> Result<(String, Params), Failure> {
    let name = args.next().unwrap_or_default();
    Params::parse(args).map(|params| (name, params))
}

fn run(programs: &[(&str, Body)], name: &str, params: &Params) -> Result<Figures, Failure> {
    let Some((_, body)) = programs.iter().find(|(known, _)| *known == name) else {
        let mut known: Vec<_> = programs.iter().map(|(known, _)| *known).collect();
        known.sort_unstable();
        let known = known.join(", ");
        return Err(Failure::Usage(format!(
            "no workload program {name:?}; there are: {known}"
        )));
    };
    let figures = body(params)?;
    params.all_used()?;
    Ok(figures)
}

fn print_or_say(result: Result<Figures, Failure>) -> ExitCode {
    let failure = match result.and_then(|figures| print(&figures)) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(failure) => failure,
    };
    eprintln!("upcall-workload: {failure}");
    ExitCode::from(match failure {
        Failure::Usage(_) => 2,
        Failure::Skip(_) => SKIP,
        Failure::Failed(_) => 1,
    })
}

fn print(figures: &Figures) -> Result<(), Failure> {
    let mut text = String::new();
    for (series, value) in &figures.0 {
        text.push_str(&format!("{series} {value}\n"));
    }
    text.push_str("done\n");
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written.map_err(|error| Failure::Failed(format!("writing the figures: {error}")))
}
