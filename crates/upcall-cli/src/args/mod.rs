//! The command line. Every flag of `run` has a variable of the same meaning in the
//! environment; a flag wins over its variable.

use std::time::Duration;

use clap::{Parser, Subcommand};

mod run;
pub mod show;
#[cfg(test)]
mod tests;
mod trace;

pub use run::{Backend, RunArgs, word};
pub use show::{DoctorArgs, PsArgs, ShowArgs, StacksArgs, TopArgs};
pub use trace::TraceArgs;

/// Scheduler activations for unmodified programs.
#[derive(Parser)]
#[command(name = "upcall", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Run(RunArgs),
    Doctor(DoctorArgs),
    Bench(upcall_bench::BenchArgs),
    Report(upcall_bench::ReportArgs),
    Ps(PsArgs),
    Show(ShowArgs),
    Stacks(StacksArgs),
    Top(TopArgs),
    Trace(TraceArgs),
    /// Print a completion script for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page: upcall's own, or that of one of its commands
    #[command(hide = true)]
    Man {
        /// The command, such as run
        page: Option<String>,
    },
}

/// Seconds, with a fraction or without.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if duration.is_zero() {
        return Err("no time at all".into());
    }
    Ok(duration)
}
