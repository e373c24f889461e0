//! `upcall bench`: the papers' experiments, side by side on several thread runtimes.
//!
//! # How it is put together
//!
//! - [`workload`] is what is measured: the program `upcall-workload`, with POSIX threads and
//!   nothing else. As it stands it is the native run (`nptl`) and, under `upcall run`, ours. What
//!   needs nothing but threads is written for any package of them: `upcall-workload-crate` has it
//!   with the crate upcall, and so have the Rust programs in `peers/`, beside small programs in Go, C++ and Java.
//! - `catalogue` lists the workloads with the bounds that they must hold, `bounds` judges them; `who` says which
//!   runtimes have a program for what.
//! - `measure` runs the programs in interleaved rounds; `child` runs one of them, with a timeout.
//! - `servers` measures real servers under load, `jobs` the processor time of programs that compute; `installed` finds them.
//! - `counts` counts instructions, which repeat where times do not.
//! - `table` and `record` print: figures on standard output, talk on standard error. `results` is the file that keeps them.
//! - `published` has what the papers published of the same experiments.
//! - `report` makes a page of files of results.
//!
//! # Invariants
//!
//! 1. Runtimes are interleaved round by round, so that a slow spell of the machine meets all.
//! 2. Whatever fails or cannot run is named; no figure is dropped in silence.
//! 3. The program under test is never helped by the runtime under test: what resolves its page
//!    faults is a native process of its own.
//!
//! Criterion was not taken: it measures functions inside one process, and what differs here is
//! the process.

mod affinity;
mod args;
mod bounds;
mod builds;
mod catalogue;
mod child;
mod choice;
mod counts;
mod farewell;
pub mod guarded;
mod installed;
mod jobs;
pub mod keeper;
mod machine;
mod measure;
pub mod memcached_load;
mod noise;
mod outcome;
mod problem;
mod published;
mod record;
mod report;
mod results;
mod runtime;
pub mod server;
mod servers;
mod session;
mod stats;
mod table;
pub mod terminal;
mod who;
pub mod workload;

use std::io::Write;
use std::process::ExitCode;

pub use args::{BenchArgs, RuntimeName};
pub use problem::Problem;
pub use report::ReportArgs;

/// The exit status of failures of `upcall` itself.
const OURS: u8 = 125;

/// Runs the benchmark as `args` say and prints what it found on standard output.
///
/// Returns 0; 1 if a program under test failed, or under `--check` if a bound does not hold; 125, as every
/// command of `upcall`, if `args` ask for something that does not exist or cannot be had here.
#[must_use]
pub fn main(args: BenchArgs) -> ExitCode {
    if let Some(results) = &args.output {
        farewell::prepare(results);
    }
    match run(&args, &mut std::io::stdout()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(OURS)
        }
    }
}

/// Makes the page of `upcall report` as `args` say, and prints its path on standard output.
///
/// Returns 0, or 125 if there are no results or the page cannot be written.
#[must_use]
pub fn report(args: &ReportArgs) -> ExitCode {
    let printed = report::run(args).and_then(|path| {
        let out = &mut std::io::stdout();
        problem::print(out, &format!("{path}\n"))
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{}", problem.said_by("upcall report"));
            ExitCode::from(OURS)
        }
    }
}

/// As [`main`], with the figures written to `out`; true if nothing failed and, under `--check`,
/// every bound holds.
///
/// # Errors
///
/// A [`Problem`] if `args` ask for something that does not exist or cannot be had here, or if
/// `out` does not take the figures.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<bool, Problem> {
    session::run(args, out)
}
