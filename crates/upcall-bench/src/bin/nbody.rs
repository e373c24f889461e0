//! The N-body problem on kernel threads, on the threads of the crate upcall, or without threads:
//! what `upcall bench nbody_speedup` measures, as a program of its own.
//!
//! `nbody model | nbody run --threads upcall > later`

mod common;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use common::Crate;
use upcall_bench::workload::nbody::body::{self, Body, energy};
use upcall_bench::workload::nbody::cache::Disk;
use upcall_bench::workload::nbody::{Means, Problem, format, parallel, sequential};
use upcall_bench::workload::posix::Posix;

/// The N-body problem after Barnes and Hut, by threads.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a Plummer model to standard output
    Model {
        /// How many bodies
        #[arg(long, default_value_t = 4000)]
        bodies: usize,
        /// The same model for the same seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Read bodies from standard input, move them, and write them to standard output
    Run(Run),
}

#[derive(clap::Args)]
struct Run {
    /// What computes the forces
    #[arg(long, value_enum, default_value_t = Threads::Upcall)]
    threads: Threads,
    /// Virtual processors of the runtime [default: as many as processors are allowed]
    #[arg(long, value_name = "N")]
    processors: Option<u32>,
    /// How many steps in time
    #[arg(long, value_name = "N", default_value_t = 10)]
    steps: usize,
    /// The length of a step
    #[arg(long, value_name = "TIME", default_value_t = 1.0 / 64.0)]
    dt: f64,
    /// The angle under which a group of bodies counts as one
    #[arg(long, value_name = "RADIANS", default_value_t = 0.8, value_parser = angle)]
    theta: f64,
    /// How many bodies a thread serves
    #[arg(long, value_name = "BODIES", default_value_t = 8)]
    grain: usize,
    /// What part of the tree is kept in memory
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    memory: usize,
    /// How long a thread sleeps for a page that is not
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 50)]
    miss: u64,
    /// Keep all pages in this file, and read those from it
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// Tell the energy before and after, by all pairs of bodies
    #[arg(long)]
    energy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Threads {
    /// Threads of the crate upcall
    Upcall,
    /// Threads of the kernel
    Kernel,
    /// One after the other, without cache
    None,
}

fn angle(text: &str) -> Result<f64, String> {
    let angle = text.parse().ok();
    angle
        .filter(|angle| (0.01..=1.0).contains(angle))
        .ok_or_else(|| "is not from 0.01 to 1".into())
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Model { bodies, seed } => print(&body::plummer(bodies, seed), 0.0),
        Command::Run(run) => run.main(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("nbody: {why}");
            ExitCode::FAILURE
        }
    }
}

fn print(bodies: &[Body], time: f64) -> Result<(), String> {
    let text = format::write(bodies, time);
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|error| format!("standard output: {error}"))
}

impl Run {
    fn main(self) -> Result<(), String> {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|error| format!("standard input: {error}"))?;
        let (mut bodies, time) =
            format::read(&text).map_err(|why| format!("standard input: {why}"))?;
        let before = self.energy.then(|| energy(&bodies));
        let took = self.compute(&mut bodies)?;
        eprintln!("{} bodies, {} steps: {took:.3?}", bodies.len(), self.steps);
        if let Some(before) = before {
            let after = energy(&bodies);
            eprintln!(
                "energy {before:.9}, then {after:.9}: {:+.2e}",
                after / before - 1.0
            );
        }
        print(&bodies, time + self.dt * self.steps as f64)
    }

    fn compute(&self, bodies: &mut [Body]) -> Result<Duration, String> {
        let problem = Problem {
            theta: self.theta,
            dt: self.dt,
            steps: self.steps,
        };
        let disk = match &self.disk {
            None => Disk::Sleep(self.miss * 1_000_000),
            Some(path) => {
                Disk::open(path).map_err(|error| format!("{}: {error}", path.display()))?
            }
        };
        let means = Means {
            grain: self.grain,
            memory: self.memory,
            disk,
        };
        let said = |error: std::io::Error| format!("the disk: {error}");
        let mut begin = Instant::now();
        let report = match self.threads {
            Threads::None => {
                sequential(bodies, problem);
                return Ok(begin.elapsed());
            }
            Threads::Kernel => parallel::<Posix>(bodies, problem, means).map_err(said)?,
            Threads::Upcall => {
                let mut runtime = upcall::Runtime::builder();
                if let Some(count) = self.processors {
                    runtime = runtime.virtual_processors(count, count);
                }
                runtime.start().map_err(|error| error.to_string())?;
                begin = Instant::now();
                parallel::<Crate>(bodies, problem, means).map_err(said)?
            }
        };
        let took = begin.elapsed();
        eprintln!("{} threads, {} misses", report.threads, report.misses);
        Ok(took)
    }
}
