//! What the samples of a workload come to.
//!
//! Most figures are the samples themselves. Where a figure compares two series, statistics are
//! compared in the way that noise harms least: other processes can only take away, so the best of
//! many runs is the machine's own, and runs that were made back to back share a slow spell.

use crate::args::RuntimeName;
use crate::bounds::Bound;
use crate::catalogue::{Kind, OVERHEAD, Variant, served};
use crate::choice::Choice;
use crate::measure::Samples;
use crate::stats::{Summary, lost_percent};

/// Figures of one variant, one of each runtime that has them, and what must hold for ours.
pub struct Outcome {
    pub run: &'static Variant,
    /// The name of what is shown of it.
    pub variant: &'static str,
    pub unit: &'static str,
    /// What must hold.
    pub bounds: &'static [Bound],
    /// One for each runtime, in their order.
    pub figures: Vec<Option<Summary>>,
}

pub fn outcomes(choice: &Choice, samples: &Samples, runtimes: &[RuntimeName]) -> Vec<Outcome> {
    let kind = choice.workload.kind;
    let mut all = Vec::new();
    for &variant in &choice.variants {
        let run = variant;
        let series = |series: &'static str, index: usize| -> &[f64] {
            samples
                .get(&(variant.name, series, index))
                .map_or(&[], Vec::as_slice)
        };
        let each = |figures: &dyn Fn(usize) -> Option<Summary>| -> Vec<Option<Summary>> {
            (0..runtimes.len()).map(figures).collect()
        };
        if kind == Kind::Overhead {
            for (raw, derived) in [("wall", OVERHEAD[0]), ("cpu", OVERHEAD[1])] {
                let figures = each(&|index| Summary::of(series(raw, index)));
                let native = runtimes.iter().position(|name| *name == RuntimeName::Nptl);
                let native = native.and_then(|native| figures[native]);
                let lost = each(&|index| match runtimes[index] {
                    RuntimeName::Upcall | RuntimeName::Before => {
                        Some(lost_time(&native?, &figures[index]?))
                    }
                    _ => None,
                });
                all.push(Outcome {
                    run,
                    variant: raw,
                    unit: "ns",
                    bounds: &[],
                    figures,
                });
                if !runtimes.contains(&RuntimeName::Upcall) {
                    continue;
                }
                let (variant, bounds) = (derived.name, derived.bounds);
                all.push(Outcome {
                    run,
                    variant,
                    unit: "%",
                    bounds,
                    figures: lost,
                });
            }
            continue;
        }
        if kind == Kind::Server {
            for (shown, name, unit) in served::shown(variant) {
                all.push(Outcome {
                    run,
                    variant: shown.name,
                    unit,
                    bounds: shown.bounds,
                    figures: each(&|index| Summary::of(series(name, index))),
                });
            }
            continue;
        }
        let figures = each(&|index| match kind {
            Kind::Loss | Kind::Traced => lost_work(series("without", index), series("with", index)),
            Kind::Pair => efficiency(series("alone", index), series("pair", index)),
            Kind::Speedup(_) => speedup(series("sequential", index), series("ns", index)),
            Kind::Samples
            | Kind::Share
            | Kind::Overhead
            | Kind::Server
            | Kind::Job
            | Kind::Warning => Summary::of(series(choice.workload.unit, index)),
        });
        let (unit, bounds) = (choice.workload.unit, variant.bounds);
        all.push(Outcome {
            run,
            variant: variant.name,
            unit,
            bounds,
            figures,
        });
    }
    all
}

/// The share of our time that the native run did not need, in percent: best against best, median
/// against median.
fn lost_time(native: &Summary, ours: &Summary) -> Summary {
    let lost = |native: f64, ours: f64| lost_percent(ours, native);
    Summary {
        min: lost(native.min, ours.min),
        median: lost(native.median, ours.median),
        p90: lost(native.p90, ours.p90),
        max: lost(native.max, ours.max),
        p99: None,
        p999: None,
        n: ours.n.min(native.n),
    }
}

/// What is missing of the work done without blocking threads, in percent. All but the minimum are
/// over pairs of runs back to back; the minimum is the best run against the best run.
fn lost_work(without: &[f64], with: &[f64]) -> Option<Summary> {
    let pairs = without.iter().zip(with);
    let pairs: Vec<_> = pairs
        .map(|(reference, work)| lost_percent(*reference, *work))
        .collect();
    let min = lost_percent(Summary::of(without)?.max, Summary::of(with)?.max);
    Summary::of(&pairs).map(|summary| Summary { min, ..summary })
}

/// 2 x the best time alone / each time of a pair.
fn efficiency(alone: &[f64], pairs: &[f64]) -> Option<Summary> {
    let pairs: Vec<_> = pairs.iter().map(|pair| pair / 2.0).collect();
    speedup(alone, &pairs)
}

/// The best time without threads / each time with them.
fn speedup(sequential: &[f64], times: &[f64]) -> Option<Summary> {
    let sequential = Summary::of(sequential)?.min;
    let all: Vec<_> = times.iter().map(|time| sequential / time).collect();
    Summary::of(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::choose;

    const BOTH: [RuntimeName; 2] = [RuntimeName::Upcall, RuntimeName::Nptl];

    fn of(name: &str, samples: &[(&'static str, &'static str, usize, &[f64])]) -> Vec<Outcome> {
        let all = samples
            .iter()
            .map(|(variant, series, index, values)| ((*variant, *series, *index), values.to_vec()));
        let choices = choose(&[name.to_owned()]).unwrap();
        outcomes(&choices[0], &all.collect(), &BOTH)
    }

    #[test]
    fn overhead_is_what_native_did_not_need() {
        let ours: &[f64] = &[200.0, 400.0, 250.0];
        let native: &[f64] = &[150.0, 100.0, 130.0];
        let found = of(
            "never_blocks",
            &[("", "wall", 0, ours), ("", "wall", 1, native)],
        );
        let names: Vec<_> = found.iter().map(|outcome| outcome.variant).collect();
        assert_eq!(names, ["wall", "throughput", "cpu", "cpu_share"]);
        let lost = found[1].figures[0].unwrap();
        assert_eq!((lost.min, lost.median), (50.0, 48.0));
        assert!(found[1].figures[1].is_none() && found[3].figures[0].is_none());
    }

    #[test]
    fn a_load_has_four_figures() {
        let samples: [(_, _, _, &[f64]); 3] = [
            ("4x", "throughput", 0, &[10.0, 30.0]),
            ("4x", "p99", 0, &[5.0]),
            ("4x", "p99", 1, &[6.0]),
        ];
        let found = of("redis/4x", &samples);
        let names: Vec<_> = found.iter().map(|one| (one.variant, one.unit)).collect();
        let wanted = [
            ("4x_throughput", "requests/s"),
            ("4x_p95", "ns"),
            ("4x_p99", "ns"),
            ("4x_slowest", "ns"),
        ];
        assert_eq!(names, wanted);
        assert_eq!(found[0].figures[0].unwrap().median, 20.0);
        assert_eq!(found[2].figures[1].unwrap().median, 6.0);
        assert!(found[3].figures[0].is_none());
    }

    #[test]
    fn loss_is_paired_but_for_the_best() {
        let samples: [(_, _, _, &[f64]); 2] = [
            ("8", "without", 0, &[100.0, 50.0, 100.0]),
            ("8", "with", 0, &[90.0, 45.0, 98.0]),
        ];
        let found = of("blockers_syscall/8", &samples);
        let lost = found[0].figures[0].unwrap();
        assert!(
            (lost.median - 10.0).abs() < 1e-9 && (lost.min - 2.0).abs() < 1e-9,
            "{lost:?}"
        );
        assert!(found[0].figures[1].is_none());
    }

    #[test]
    fn efficiency_is_against_the_best_alone() {
        let samples: [(_, _, _, &[f64]); 2] = [
            ("", "alone", 0, &[30.0, 10.0]),
            ("", "pair", 0, &[20.0, 40.0]),
        ];
        let found = of("pair_spin", &samples)[0].figures[0].unwrap();
        assert_eq!((found.min, found.max), (0.5, 1.0));
    }

    #[test]
    fn speedup_is_against_the_best_without_threads() {
        let samples: [(_, _, _, &[f64]); 2] = [
            ("2", "sequential", 0, &[30.0, 20.0]),
            ("2", "ns", 0, &[10.0, 40.0]),
        ];
        let found = of("nbody_speedup/2", &samples)[0].figures[0].unwrap();
        assert_eq!((found.min, found.max), (0.5, 2.0));
    }
}
