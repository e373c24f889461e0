//! The workloads: what the program `upcall-workload` does.
//!
//! The program is written as any program with POSIX threads is: `pthread_create`, semaphores,
//! mutexes, condition variables, pipes, `nanosleep`, `sched_yield`. It has no knowledge of the
//! runtime that carries it, so one binary serves as the native program (`nptl`) and as the
//! unmodified program under `upcall run`. The Go peer speaks the same protocol.
//!
//! # Protocol
//!
//! 1. `upcall-workload NAME [KEY=VALUE ...]`; every key has a default, an unknown one is an error.
//! 2. Standard input is a control channel where a workload needs one: a socket to the resolver of
//!    page faults (`fault=uffd`), or the start signal of a pair of copies.
//! 3. Standard output has one line per figure, `SERIES VALUE`, and a last line `done`, so that a
//!    truncated run cannot pass for a complete one.
//! 4. Exit status 0; [`SKIP`] with a reason on standard error if this machine cannot run it;
//!    1 if something failed; 2 for a bad command line.
//!
//! Measuring inside the program was chosen over timing the whole process from outside: start-up
//! differs between runtimes by far more than what most workloads measure.

mod block;
mod blockers;
mod cold;
mod create;
mod never;
mod pair;
mod params;
mod pipe;
pub(crate) mod posix;
mod resolver;
mod semaphore;
mod signal;
pub mod uffd;
mod unblock;
mod yields;

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

pub use params::Params;

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

type Body = fn(&Params) -> Result<Figures, Failure>;

/// Every workload program by name; `resolver` is the helper process of the fault workloads.
const PROGRAMS: &[(&str, Body)] = &[
    ("block_to_compute", block::run),
    ("blockers", blockers::run),
    ("create_join", create::run),
    ("never_blocks", never::run),
    ("pair_barrier", pair::barrier),
    ("pair_spin", pair::spin_lock),
    ("pair_ticket", pair::ticket),
    ("pipe_exchange", pipe::run),
    ("resolver", resolver::run),
    ("semaphore", semaphore::run),
    ("signal_wait", signal::run),
    ("unblock_to_run", unblock::run),
    ("yield", yields::run),
];

/// Runs the workload program `name` in this process.
///
/// # Errors
///
/// [`Failure::Usage`] for an unknown name or parameter; otherwise whatever the workload met.
pub fn run(name: &str, params: &Params) -> Result<Figures, Failure> {
    let Some((_, body)) = PROGRAMS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<_> = PROGRAMS.iter().map(|(known, _)| *known).collect();
        let known = known.join(", ");
        return Err(Failure::Usage(format!(
            "no workload program {name:?}; there are: {known}"
        )));
    };
    let figures = body(params)?;
    params.all_used()?;
    Ok(figures)
}

/// The program `upcall-workload`: runs the workload that `args` name and prints its figures.
pub fn main(mut args: impl Iterator<Item = String>) -> ExitCode {
    let name = args.next().unwrap_or_default();
    let result = Params::parse(args).and_then(|params| run(&name, &params));
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
