//! The processor time that programs get beside native ones.
//!
//! So many copies under the runtime, of two threads each, compute beside so many native programs of one thread, all on the
//! same two processors and all for the same time. The figure is what all the copies got together. Natively it is what the
//! kernel gives them, so the ratio to that is the share. What is missing or too much, the native programs got or lost.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::child::{self, Failure};
use crate::measure::{Bench, Subject, series};

/// The milliseconds of processor time that the copies got together. The variant's name says how many of which compute:
/// `2_beside_1`.
pub fn of_copies(bench: &Bench<'_>, subject: &Subject<'_>) -> Result<f64, Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("the start signal: {error}"));
    let (copies, natives) = numbers(subject.variant.name)
        .ok_or_else(|| Failure::Failed("the variant has no such name".into()))?;
    let processors = bench
        .allowed
        .last(bench.workers(subject.workload, subject.variant));
    let duration = if bench.args.quick {
        "duration_ms=100"
    } else {
        "duration_ms=3000"
    };
    let mut running = Vec::new();
    let mut gates = Vec::new();
    for at in 0..copies + natives {
        let command = if at < copies {
            bench.command(subject, None, &["gate=1", "threads=2", duration])
        } else {
            let mut command = Command::new(&bench.runtimes.workload_program);
            command.args(["share", "gate=1", "threads=1", duration]);
            command
        };
        let (gate, signal) = std::io::pipe().map_err(failed)?;
        let gate = Stdio::from(gate);
        running.push(child::start(
            command,
            gate,
            &processors,
            bench.args.timeout,
        )?);
        gates.push(signal);
    }
    for gate in &mut gates {
        gate.write_all(&[1]).map_err(failed)?;
    }
    let mut sum = 0.0;
    for (at, program) in running.into_iter().enumerate() {
        let mut figures = program.finish()?;
        if at < copies {
            sum += series(&mut figures, "cpu")?.iter().sum::<f64>();
        }
    }
    Ok(sum)
}

fn numbers(variant: &str) -> Option<(usize, usize)> {
    let (copies, natives) = variant.split_once("_beside_")?;
    Some((copies.parse().ok()?, natives.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Kind, WORKLOADS};

    #[test]
    fn every_variant_says_how_many_compute() {
        let shares = WORKLOADS.iter().filter(|one| one.kind == Kind::Share);
        for variant in shares.flat_map(|one| one.variants) {
            assert!(numbers(variant.name).is_some(), "{}", variant.name);
        }
        assert_eq!(numbers("8_beside_2"), Some((8, 2)));
    }
}
