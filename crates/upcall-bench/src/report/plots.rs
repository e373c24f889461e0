//! Which plots there are: the headlines, and the papers' figures.

use crate::report::compare::factor;
use crate::report::draw::{Axis, Bar, Group, Line, Plot, bars, lines};
use crate::report::loads;
use crate::report::model::{Report, Table};
use crate::stats::{Summary, quantity};

/// The plots that come first.
pub fn headlines(report: &Report) -> Vec<Plot> {
    let time = "median time, best in brackets; less is better";
    let plain = |label| Axis {
        label,
        logarithmic: false,
        mark: None,
        text: nanoseconds,
    };
    let log = |label| Axis {
        logarithmic: true,
        ..plain(label)
    };
    let share = Axis {
        mark: Some(1.0),
        text: |value| format!("{value:.1}"),
        ..plain("2 x one copy alone / two copies at once; more is better, 1 is nothing lost")
    };
    let pairs = ["pair_spin", "pair_ticket", "pair_barrier", "pair_openmp"];
    let creation = ["null_fork", "create_join"];
    let all = [
        blocking(
            report,
            "blocking",
            "Work done beside threads that block in system calls",
            "blockers_syscall",
        ),
        blocking(
            report,
            "faults",
            "Work done beside threads that block on page faults",
            "blockers_fault",
        ),
        bars(
            "pairs",
            "Two copies at once of a program that spins",
            share,
            &groups(report, &pairs, ratio),
        ),
        bars(
            "block",
            "A thread blocks in a system call, until another one computes",
            plain(time),
            &groups(report, &["block_to_compute"], both),
        ),
        bars(
            "creation",
            "A thread is made, run and joined",
            log(time),
            &groups(report, &creation, both),
        ),
    ];
    let all = all.into_iter().chain(loads::plots(report));
    all.flatten().collect()
}

/// The papers' figures, with what was published.
pub fn of_papers(report: &Report) -> Vec<Plot> {
    let axis = Axis {
        label: "speedup against the program without threads; more is better",
        logarithmic: false,
        mark: Some(1.0),
        text: |value| format!("{value:.1}"),
    };
    let memory = Axis {
        label: "time; less is better",
        mark: None,
        text: nanoseconds,
        ..axis
    };
    let all = [
        gains(report),
        over_variants(
            report,
            "speedup",
            "Figure 2 of 1991: N-body over processors",
            axis,
            ("processors", "nbody_speedup"),
        ),
        over_variants(
            report,
            "memory",
            "Figure 3 of 1991: N-body with part of its memory",
            memory,
            ("percent of the memory", "nbody_memory"),
        ),
        two_copies(report),
    ];
    all.into_iter().flatten().collect()
}

fn nanoseconds(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} ms", value / 1e6),
        value if value >= 1e3 => format!("{} µs", value / 1e3),
        value => format!("{value} ns"),
    }
}

fn both(figures: &Summary) -> String {
    let [median, min] = [figures.median, figures.min].map(|value| quantity(value, "ns"));
    format!("{median} ({min})")
}

fn ratio(figures: &Summary) -> String {
    format!("{:.2}", figures.median)
}

fn of_table(table: &Table, text: fn(&Summary) -> String) -> Group {
    let bar = |row: &crate::report::model::Row| Bar {
        name: row.runtime.clone(),
        value: row.figures.median,
        text: text(&row.figures),
    };
    Group {
        label: table.name(),
        bars: table.rows.iter().map(bar).collect(),
    }
}

fn groups(report: &Report, workloads: &[&str], text: fn(&Summary) -> String) -> Vec<Group> {
    let tables = workloads.iter().flat_map(|name| report.newest_of(name));
    tables.map(|table| of_table(table, text)).collect()
}

/// The medians of each runtime over variants whose names are numbers.
fn medians(report: &Report, workload: &str, of: impl Fn(f64) -> f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for table in report.newest_of(workload) {
        let Ok(x) = table.variant.parse::<f64>() else {
            continue;
        };
        for row in table.rows.iter().filter(|_| x.is_finite() && x.abs() < 1e6) {
            let point = (x, of(row.figures.median));
            match lines.iter_mut().find(|line| line.name == row.runtime) {
                Some(line) => line.points.push(point),
                None => lines.push(Line {
                    name: row.runtime.clone(),
                    points: vec![point],
                }),
            }
        }
    }
    for line in &mut lines {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines
}

/// What is left of the work: the workload's figure is what is lost of it.
fn blocking(report: &Report, id: &'static str, title: &str, workload: &str) -> Option<Plot> {
    let axis = Axis {
        label: "percent of the work without them; more is better",
        logarithmic: false,
        mark: Some(100.0),
        text: |value| format!("{value:.0} %"),
    };
    let left = medians(report, workload, |lost| (100.0 - lost).max(0.0));
    lines(id, title, axis, "threads that block", &left)
}

fn over_variants(
    report: &Report,
    id: &'static str,
    title: &str,
    axis: Axis,
    (x_label, workload): (&str, &str),
) -> Option<Plot> {
    lines(
        id,
        title,
        axis,
        x_label,
        &medians(report, workload, |median| median),
    )
}

/// How much better than kernel threads: in each paper, and here.
fn gains(report: &Report) -> Option<Plot> {
    let mut groups = Vec::new();
    for table in newest(report) {
        for row in &table.published {
            let Some(gain) = row.gain() else {
                continue;
            };
            let bar = |name: String, value: f64| Bar {
                name,
                value,
                text: factor(value),
            };
            let mut bars = vec![bar("published".into(), gain)];
            for ours in ["upcall", "crate"] {
                if let Some(times) = against_native(table, ours) {
                    bars.push(bar(ours.into(), times));
                }
            }
            if bars.len() > 1 {
                let year = row.paper.rsplit(' ').next().unwrap_or_default();
                let label = format!("{}: {year}, {}", table.name(), row.place);
                groups.push(Group { label, bars });
            }
        }
    }
    let axis = Axis {
        label: "kernel threads' time over theirs; more is better, 1 is no difference",
        logarithmic: true,
        mark: Some(1.0),
        text: |value| format!("{value} ×"),
    };
    bars(
        "gains",
        "How much better than kernel threads: published, and here",
        axis,
        &groups,
    )
}

/// The medians of the native threads over ours, or the other way round where more is better.
fn against_native(table: &Table, ours: &str) -> Option<f64> {
    let [ours, native] = [ours, "nptl"].map(|name| table.figures(name).map(|one| one.median));
    Some(match &*table.unit {
        "ratio" => ours? / native?,
        _ => native? / ours?,
    })
}

/// One table of each variant.
fn newest(report: &Report) -> Vec<&Table> {
    let is_newest = |table: &&Table| {
        let newest = report.newest(&table.workload, &table.variant);
        newest.is_some_and(|newest| std::ptr::eq(newest, *table))
    };
    report.tables.iter().filter(is_newest).collect()
}

/// Table 5: two copies at once. As a part of what two copies can have, so that machines of different sizes compare.
fn two_copies(report: &Report) -> Option<Plot> {
    let table = report.newest("nbody_pair", "")?;
    let part = |name: &str, value: f64, most: f64| Bar {
        name: name.into(),
        value: value / most,
        text: format!("{:.2} of {most}", value),
    };
    let most = table.workers as f64 / 2.0;
    let here = table.rows.iter();
    let here = here.map(|row| part(&row.runtime, row.figures.median, most));
    let there = table.published.iter().flat_map(|row| row.figures);
    let there = there.map(|one| part(one.system, one.value, 3.0));
    let groups = [
        Group {
            label: "here".into(),
            bars: here.collect(),
        },
        Group {
            label: "published, on 6 processors".into(),
            bars: there.collect(),
        },
    ];
    let axis = Axis {
        label: "speedup of each copy as a part of the most that it can have; more is better",
        logarithmic: false,
        mark: Some(1.0),
        text: |value| format!("{value:.1}"),
    };
    bars(
        "copies",
        "Table 5 of 1991: two copies of N-body at once",
        axis,
        &groups,
    )
}
