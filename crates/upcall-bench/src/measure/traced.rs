//! What a timeline costs: a workload without one, and back to back with one.
//!
//! A variant has the name of a workload of the catalogue. Its program is started by `upcall trace` the second time. A server
//! stays the same: `upcall trace -p` asks it for a timeline while it is loaded the second time. Whoever reads the events
//! has the same processors, and what it takes is part of the cost. What it writes at the end is not.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::catalogue::{Kind, WORKLOADS};
use crate::child::{self, Failure};
use crate::measure::others::{self, Found};
use crate::measure::{Bench, Subject, series};
use crate::runtime::processors_are_chosen;

/// What is done in a second, or is in proportion to it: `without` a timeline and `with` one.
pub fn without_and_with(bench: &Bench, subject: &Subject) -> Result<Found, Failure> {
    let name = subject.variant.name;
    let workload = WORKLOADS.iter().find(|one| one.name == name);
    let workload =
        workload.ok_or_else(|| Failure::Failed(format!("there is no workload {name}")))?;
    let subject = Subject {
        workload,
        ..*subject
    };
    let place = tempfile::tempdir_in(&bench.cache)
        .map_err(|error| Failure::Failed(format!("{}: {error}", bench.cache.display())))?;
    let timeline = place.path().join("timeline");
    let [without, with] = match workload.kind {
        Kind::Server => server(bench, &subject, &timeline)?,
        _ => program(bench, &subject, &timeline)?,
    };
    if !timeline.exists() {
        return Err(Failure::Failed("nothing was traced".into()));
    }
    Ok(vec![("without", vec![without]), ("with", vec![with])])
}

fn program(bench: &Bench, subject: &Subject, timeline: &Path) -> Result<[f64; 2], Failure> {
    let workers = bench.workers(subject.workload, subject.variant);
    let rate = |command: Command| {
        let processors = bench.allowed.last(workers);
        let running = child::start(command, Stdio::null(), &processors, bench.args.timeout)?;
        let times = series(&mut running.finish()?, "ns")?;
        let best = times.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(1e9 / best)
    };
    let without = rate(bench.command(subject, None, &[]))?;
    let plain = bench.command(subject, None, &[]);
    let mut traced = trace(bench, timeline);
    traced.arg("--");
    let words: Vec<_> = std::iter::once(plain.get_program())
        .chain(plain.get_args())
        .collect();
    match words.iter().position(|word| *word == "--") {
        Some(after) => {
            if !processors_are_chosen() {
                traced.env("UPCALL_VPS", workers.to_string());
            }
            traced.args(&words[after + 1..]);
        }
        // It has a runtime of its own.
        None => {
            traced.args(["env", "-u", "LD_PRELOAD"]).args(words);
        }
    }
    Ok([without, rate(traced)?])
}

fn server(bench: &Bench, subject: &Subject, timeline: &Path) -> Result<[f64; 2], Failure> {
    let throughput = |found: Found| {
        let one = found.into_iter().find(|(name, _)| *name == "throughput");
        let value = one.and_then(|(_, values)| values.first().copied());
        value.ok_or_else(|| Failure::Failed("the load had no throughput".into()))
    };
    let without = throughput(others::server(bench, subject)?)?;
    let pid = bench.house.borrow().pid(subject.index);
    let pid = pid.ok_or_else(|| Failure::Failed("the server has no process".into()))?;
    let mut reader = trace(bench, timeline);
    reader.args(["-p", &pid.to_string()]);
    let processors = bench
        .allowed
        .last(bench.workers(subject.workload, subject.variant));
    let reader = child::start(reader, Stdio::null(), &processors, 2 * bench.args.timeout)?;
    let with = throughput(others::server(bench, subject)?)?;
    // What it writes then is not part of what is measured.
    reader.interrupt();
    reader.output()?;
    Ok([without, with])
}

fn trace(bench: &Bench, timeline: &Path) -> Command {
    let mut command = Command::new(&bench.runtimes.upcall);
    command.args(["trace", "-o"]).arg(timeline);
    // A shell that starts the harness in the background has it ignore this signal, and so what it starts.
    // SAFETY: between fork and exec this makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_is_a_workload() {
        let traced = WORKLOADS.iter().filter(|one| one.kind == Kind::Traced);
        let names = traced.flat_map(|one| one.variants).map(|one| one.name);
        for name in names {
            let of = WORKLOADS.iter().find(|one| one.name == name);
            let kind = of.map(|one| (one.kind, one.unit));
            assert!(
                matches!(kind, Some((Kind::Samples, "ns") | (Kind::Server, _))),
                "{name}: {kind:?}"
            );
        }
    }
}
