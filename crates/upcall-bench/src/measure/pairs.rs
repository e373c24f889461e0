//! Two copies at once of a program that spins, against one copy alone.
//!
//! The efficiency is 2 x (time alone) / (time of the pair): 1 if two copies share the processors
//! as well as two runs one after the other would use them. The best time alone serves every pair,
//! for a program that spins collapses even alone when another process takes a processor. Both copies are started, then let go
//! by one byte on their standard inputs; the pair's time runs from the first beginning to the last
//! end on the clock that all processes share, so that start-up is in neither.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::child::{self, Failure, Figures};
use crate::measure::{Bench, Subject};

/// The time of one copy alone and right after it that of a pair, in nanoseconds.
pub fn times(bench: &Bench<'_>, subject: &Subject<'_>) -> Result<[f64; 2], Failure> {
    let alone = elapsed(&copies(bench, subject, 1, &["gate=1"], |_| ())?)?;
    let pair = elapsed(&copies(bench, subject, 2, &["gate=1"], |_| ())?)?;
    Ok([alone, pair])
}

/// The mean time of two copies at once, in nanoseconds (Anderson et al. 1991, Table 5).
pub fn mean_of_two(bench: &Bench<'_>, subject: &Subject<'_>) -> Result<f64, Failure> {
    // A program that has done its part does not disturb the other one.
    let both = copies(bench, subject, 2, &["gate=1", "sequential=0"], |_| ())?;
    mean(&both)
}

/// The mean time of copies, in nanoseconds.
pub(super) fn mean(copies: &[Figures]) -> Result<f64, Failure> {
    let times = copies
        .iter()
        .map(|copy| elapsed(std::slice::from_ref(copy)));
    Ok(times.sum::<Result<f64, _>>()? / copies.len() as f64)
}

/// Runs so many copies at once to their ends. `adapt` is called with each one's command.
pub(super) fn copies(
    bench: &Bench<'_>,
    subject: &Subject<'_>,
    count: usize,
    params: &[&str],
    adapt: impl Fn(&mut Command),
) -> Result<Vec<Figures>, Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("the start signal: {error}"));
    let instead = match (subject.workload.name, &bench.openmp) {
        ("pair_openmp", Ok(built)) => Some(built.program.as_path()),
        ("pair_openmp", Err(why)) => return Err(Failure::Skipped(why.clone())),
        _ => None,
    };
    let processors = bench
        .allowed
        .last(bench.workers(subject.workload, subject.variant));
    let mut running = Vec::new();
    let mut gates = Vec::new();
    for _ in 0..count {
        let (gate, signal) = std::io::pipe().map_err(failed)?;
        let mut command = bench.command(subject, instead, params);
        adapt(&mut command);
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
    running.into_iter().map(child::Running::finish).collect()
}

/// From the first beginning to the last end, in nanoseconds.
fn elapsed(copies: &[Figures]) -> Result<f64, Failure> {
    let all = |name: &'static str| {
        copies
            .iter()
            .filter_map(move |c| c.get(name)?.first().copied())
    };
    let begin = all("begin").fold(f64::INFINITY, f64::min);
    let end = all("end").fold(f64::NEG_INFINITY, f64::max);
    if end > begin {
        Ok(end - begin)
    } else {
        Err(Failure::Failed("reported no time of its own".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(begin: f64, end: f64) -> Figures {
        Figures::from([("begin".into(), vec![begin]), ("end".into(), vec![end])])
    }

    #[test]
    fn a_pair_lasts_from_the_first_beginning_to_the_last_end() {
        assert_eq!(elapsed(&[copy(10.0, 30.0), copy(12.0, 25.0)]), Ok(20.0));
        assert_eq!(elapsed(&[copy(10.0, 30.0)]), Ok(20.0));
        assert!(elapsed(&[Figures::new()]).is_err());
    }
}
