//! Figures for people: tables, bounds beside them, and the list of workloads.

use std::fmt::Write;

use crate::bounds::{Bound, Verdict};
use crate::catalogue::{Kind, OVERHEAD, Variant, Workload, served};
use crate::choice::{Choice, full_name};
use crate::published;
use crate::runtime::Runtimes;
use crate::stats::Summary;
use crate::stats::quantity;

/// One runtime's figures.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The runtime's name.
    pub runtime: &'static str,
    pub figures: Summary,
}

pub fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Broken => "DOES NOT HOLD",
        Verdict::Unknown => "cannot be judged: figures are missing",
    }
}

/// What was measured, and where.
pub fn title(runtimes: &Runtimes, processors: usize) -> String {
    let name = |runtime: &crate::runtime::Runtime| {
        format!("{} ({})", runtime.name.as_str(), runtime.version)
    };
    let names: Vec<_> = runtimes.all.iter().map(name).collect();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let plural = if processors == 1 { "" } else { "s" };
    format!(
        "{}; Linux {}, {processors} processor{plural}\n",
        names.join(", "),
        release.trim()
    )
}

/// The table of one outcome, with what must hold and whether it does.
pub fn outcome(
    (workload, variant, workers): (&Workload, &str, usize),
    unit: &str,
    rows: &[Row],
    verdicts: &[(&Bound, Verdict)],
) -> String {
    let name = full_name(workload, variant);
    let width = if unit == "requests/s" { 17 } else { 11 };
    let plural = if workers == 1 { "" } else { "s" };
    let about = workload.about;
    let mut text = format!("\n{name}: {about}; {workers} processor{plural}\n");
    let row = |runtime| rows.iter().find(|row| row.runtime == runtime);
    let reference = row("before").or_else(|| row("nptl"));
    let has_tail = rows.iter().any(|row| row.figures.p99.is_some());
    if rows.is_empty() {
        text.push_str("  no figures\n");
    } else {
        let tail = match has_tail {
            true => format!(" {:>11} {:>11}", "p99", "p99.9"),
            false => String::new(),
        };
        let _ = writeln!(
            text,
            "  {:8} {:>width$} {:>width$} {:>width$}{tail} {:>width$} {:>6} {:>14}",
            "",
            "min",
            "median",
            "p90",
            "max",
            "n",
            reference.map_or(String::new(), |row| format!("× {}", row.runtime))
        );
    }
    let has_ratio = matches!(unit, "ns" | "bytes" | "Mops/s" | "requests/s");
    for Row { runtime, figures } in rows {
        let [min, median, p90, max] =
            [figures.min, figures.median, figures.p90, figures.max].map(|v| quantity(v, unit));
        let times = match reference {
            Some(reference) if has_ratio && *runtime != reference.runtime => {
                let times = |ours: f64, theirs: f64| format!("{:.2}", ours / theirs);
                let min = times(figures.min, reference.figures.min);
                format!(
                    "{min} / {}",
                    times(figures.median, reference.figures.median)
                )
            }
            _ => String::new(),
        };
        let tail = [figures.p99, figures.p999].map(|value| {
            let value = value.map(|value| quantity(value, unit));
            format!(" {:>11}", value.unwrap_or_default())
        });
        let tail = if has_tail {
            tail.concat()
        } else {
            String::new()
        };
        let n = figures.n;
        let _ = writeln!(
            text,
            "  {runtime:8} {min:>width$} {median:>width$} {p90:>width$}{tail} {max:>width$} {n:>6} {times:>14}"
        );
    }
    for (bound, verdict) in verdicts {
        let (runtime, bound) = (bound.runtime.as_str(), bound.describe(unit));
        let _ = writeln!(
            text,
            "  must hold for {runtime}: {bound}: {}",
            word(*verdict)
        );
    }
    for row in published::of(workload.name) {
        let _ = writeln!(text, "  published: {}", row.line());
    }
    text
}

/// What must hold of a variant.
fn bounds(variant: &Variant, unit: &str) -> String {
    let all = variant.bounds.iter();
    let all: Vec<_> = all
        .map(|bound| format!("{} {}", bound.runtime.as_str(), bound.describe(unit)))
        .collect();
    all.join("; ")
}

/// The list of workloads, variants and bounds.
pub fn list(choices: &[Choice]) -> String {
    let mut text = String::new();
    for choice in choices {
        let workload = choice.workload;
        let plural = if workload.workers == 1 { "" } else { "s" };
        let (name, about, workers) = (workload.name, workload.about, workload.workers);
        let _ = writeln!(text, "{name}: {about}; {workers} processor{plural}");
        let (variants, unit): (Vec<&Variant>, _) = match workload.kind {
            Kind::Overhead => (OVERHEAD.iter().collect(), "%"),
            Kind::Server => {
                for variant in &choice.variants {
                    let _ = writeln!(text, "  {}", variant.name);
                    for (shown, _, unit) in served::shown(variant) {
                        let _ = writeln!(text, "    {}: {}", shown.name, bounds(shown, unit));
                    }
                }
                continue;
            }
            _ => (choice.variants.clone(), workload.unit),
        };
        for variant in variants {
            let gap = if variant.name.is_empty() { "" } else { ": " };
            let workers = match variant.workers {
                Some(own) if own != workload.workers => format!("{own} processors; "),
                _ => String::new(),
            };
            let bounds = bounds(variant, unit);
            let _ = writeln!(text, "  {}{gap}{workers}{bounds}", variant.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Limit;
    use crate::catalogue::WORKLOADS;
    use crate::choice::choose;

    #[test]
    fn quantities_have_units() {
        assert_eq!(quantity(120.0, "ns"), "120 ns");
        assert_eq!(quantity(1150.0, "ns"), "1.15 µs");
        assert_eq!(quantity(5_066_000.0, "ns"), "5.07 ms");
        assert_eq!(quantity(2.0, "%"), "2.00 %");
        assert_eq!(quantity(0.5, "ratio"), "0.50");
    }

    #[test]
    fn a_table_compares_with_the_native_run() {
        let row = |runtime, value| Row {
            runtime,
            figures: Summary::of(&[value]).unwrap(),
        };
        let rows = [row("upcall", 500.0), row("nptl", 1000.0)];
        let bound = Bound::min(Limit::AtMost(1.0));
        let verdicts = [
            (&bound, Verdict::Broken),
            (&bound.of_crate(), Verdict::Holds),
        ];
        let text = outcome((&WORKLOADS[0], "pipe", 1), "ns", &rows, &verdicts);
        assert!(
            text.contains("block_to_compute/pipe") && text.contains("0.50 / 0.50"),
            "{text}"
        );
        assert!(
            text.contains("upcall: min ≤ 1 ns: DOES NOT HOLD")
                && text.contains("crate: min ≤ 1 ns: holds"),
            "{text}"
        );
    }

    #[test]
    fn a_table_has_the_papers_figures() {
        let find = |name| WORKLOADS.iter().find(|workload| workload.name == name);
        let row = Row {
            runtime: "upcall",
            figures: Summary::of(&[1e6]).unwrap(),
        };
        let text = outcome((find("sumtime_2000").unwrap(), "1", 1), "ns", &[row], &[]);
        assert!(
            text.contains("published: POSIX interface on activations 12.00 ms"),
            "{text}"
        );
    }

    #[test]
    fn the_list_has_every_workload_and_its_bounds() {
        let text = list(&choose(&[]).unwrap());
        assert!(
            WORKLOADS
                .iter()
                .all(|workload| text.contains(workload.name))
        );
        assert!(
            text.contains("upcall median ≤ 1.60 µs or 1.39 × nptl"),
            "{text}"
        );
        assert!(text.contains("throughput: upcall min ≤ 0.50 %"), "{text}");
    }
}
