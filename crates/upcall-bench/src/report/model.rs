//! What the page says, before it is a page: one table for each variant of each run.

use std::cmp::Reverse;

use crate::args::RuntimeName;
use crate::bounds::{Bound, Verdict as Kept};
use crate::catalogue::{Kind, OVERHEAD, Variant, WORKLOADS, Workload, served};
use crate::published::{self, Drawing, Published};
use crate::record::Record;
use crate::report::compare::{self, Comparison, Verdict, compare};
use crate::report::read::{Input, Run};
use crate::stats::Summary;

/// Our runtimes.
const OURS: [RuntimeName; 2] = [RuntimeName::Upcall, RuntimeName::Crate];
const NATIVE: &str = "nptl";

/// One runtime's figures.
#[derive(Debug)]
pub struct Row {
    pub runtime: String,
    pub version: String,
    pub figures: Summary,
    /// The figures over the native ones: best and median.
    pub times: Option<(f64, f64)>,
    /// How each of [`OURS`] fared against it; nothing against itself, or where there is nothing to say.
    pub against: [Option<Comparison>; 2],
}

/// A bound with what became of it.
#[derive(Debug)]
pub struct Judged {
    pub runtime: &'static str,
    pub bound: String,
    pub verdict: Kept,
}

/// The figures of one variant in one run.
#[derive(Debug)]
pub struct Table {
    pub workload: String,
    pub variant: String,
    pub about: &'static str,
    pub unit: String,
    pub workers: usize,
    /// The index of its run.
    pub run: usize,
    pub rows: Vec<Row>,
    pub bounds: Vec<Judged>,
    pub published: Vec<&'static Published>,
    pub drawing: Option<&'static Drawing>,
    /// What an overhead comes to: against native, which has no row of its own.
    pub lost: Option<Comparison>,
    /// Runtimes that have a program for it and no figures, with the reason.
    pub missing: Vec<String>,
    /// The command that makes these figures.
    pub command: String,
}

/// A comparison that is worth a line of its own.
#[derive(Debug)]
pub struct Notable<'a> {
    pub table: &'a Table,
    pub ours: &'static str,
    pub theirs: &'a str,
    pub comparison: &'a Comparison,
}

/// All that the page has.
#[derive(Debug)]
pub struct Report {
    pub runs: Vec<Run>,
    /// In the order of the catalogue; of one variant the newest run first.
    pub tables: Vec<Table>,
    pub complaints: Vec<String>,
}

impl Table {
    /// Its full name.
    pub fn name(&self) -> String {
        let slash = if self.variant.is_empty() { "" } else { "/" };
        format!("{}{slash}{}", self.workload, self.variant)
    }

    /// The last figures of a runtime.
    pub fn figures(&self, runtime: &str) -> Option<&Summary> {
        let row = self.rows.iter().rev().find(|row| row.runtime == runtime);
        row.map(|row| &row.figures)
    }
}

/// The names of our runtimes, in the order of [`Row::against`].
pub fn ours() -> [&'static str; 2] {
    OURS.map(RuntimeName::as_str)
}

/// What a workload of this name is here.
pub fn known(name: &str) -> Option<(usize, &'static Workload)> {
    WORKLOADS
        .iter()
        .enumerate()
        .find(|(_, workload)| workload.name == name)
}

/// The variant, for the bounds of the figures that are shown of it.
fn variant(workload: &'static Workload, name: &str) -> Option<(usize, &'static Variant)> {
    let all = match workload.kind {
        Kind::Overhead => OVERHEAD,
        Kind::Server => served::SHOWN,
        _ => workload.variants,
    };
    all.iter().enumerate().find(|(_, one)| one.name == name)
}

impl Report {
    /// The report of what was read.
    pub fn of(input: Input) -> Self {
        let Input { runs, complaints } = input;
        let mut tables: Vec<Table> = Vec::new();
        for (index, run) in runs.iter().enumerate() {
            let mut groups: Vec<Vec<&Record>> = Vec::new();
            for record in &run.records {
                let same = |group: &&mut Vec<&Record>| {
                    let first = group[0];
                    first.workload == record.workload
                        && first.variant == record.variant
                        && first.workers == record.workers
                        && first.unit == record.unit
                };
                match groups.iter_mut().find(same) {
                    Some(group) => group.push(record),
                    None => groups.push(vec![record]),
                }
            }
            tables.extend(groups.iter().map(|group| table(index, run, group)));
        }
        tables.sort_by_key(place);
        Self {
            runs,
            tables,
            complaints,
        }
    }

    /// The newest table of a variant.
    pub fn newest(&self, workload: &str, variant: &str) -> Option<&Table> {
        let is = |table: &&Table| table.workload == workload && table.variant == variant;
        self.tables.iter().find(is)
    }

    /// The newest tables of a workload, one for each variant.
    pub fn newest_of(&self, workload: &str) -> Vec<&Table> {
        let mut found: Vec<&Table> = Vec::new();
        for table in self
            .tables
            .iter()
            .filter(|table| table.workload == workload)
        {
            if found.iter().all(|one| one.variant != table.variant) {
                found.push(table);
            }
        }
        found
    }

    /// What ours won or lost against the native run, and against the best peer of each variant: the largest first.
    pub fn notable(&self, verdict: Verdict) -> Vec<Notable<'_>> {
        let mut found = Vec::new();
        for table in &self.tables {
            if self
                .newest(&table.workload, &table.variant)
                .map(std::ptr::from_ref)
                != Some(std::ptr::from_ref(table))
            {
                continue;
            }
            if let Some(lost) = &table.lost {
                found.push(Notable {
                    table,
                    ours: ours()[0],
                    theirs: NATIVE,
                    comparison: lost,
                });
            }
            for (which, ours) in ours().into_iter().enumerate() {
                found.extend(shown(table, which, ours));
            }
        }
        found.retain(|one| one.comparison.verdict == verdict);
        // Stable: of equal ones the catalogue's order stays.
        found.sort_by(|one, other| other.comparison.size.total_cmp(&one.comparison.size));
        found
    }
}

/// Against the native run, and against the peer that fares best.
fn shown<'a>(table: &'a Table, which: usize, ours: &'static str) -> Vec<Notable<'a>> {
    let all = table.rows.iter().filter_map(|row| {
        let comparison = row.against[which].as_ref()?;
        Some(Notable {
            table,
            ours,
            theirs: &row.runtime,
            comparison,
        })
    });
    let (native, mut peers): (Vec<_>, Vec<_>) = all
        .filter(|one| one.theirs != "before" && !self::ours().contains(&one.theirs))
        .partition(|one| one.theirs == NATIVE);
    // The one against which ours is worst off: signed, so that a large loss comes before a small win.
    let signed = |one: &Notable| match one.comparison.verdict {
        Verdict::Wins => one.comparison.size,
        Verdict::Same => 0.0,
        Verdict::Loses => -one.comparison.size,
    };
    peers.sort_by(|one, other| signed(one).total_cmp(&signed(other)));
    native
        .into_iter()
        .chain(peers.into_iter().take(1))
        .collect()
}

/// Where a table stands: by the catalogue, unknown ones last, by name; then by run.
fn place(table: &Table) -> (usize, String, usize, String, usize) {
    let workload = known(&table.workload);
    let at = workload.map_or(usize::MAX, |(at, _)| at);
    let variant = workload.and_then(|(_, workload)| variant(workload, &table.variant));
    (
        at,
        table.workload.clone(),
        variant.map_or(usize::MAX, |(at, _)| at),
        table.variant.clone(),
        table.run,
    )
}

fn table(index: usize, run: &Run, records: &[&Record]) -> Table {
    let first = records[0];
    let (workload, unit) = (known(&first.workload).map(|(_, one)| one), &*first.unit);
    let last = |name: &str| {
        let record = records.iter().rev().find(|record| record.runtime == name);
        record.map(|record| record.figures())
    };
    let native = last(NATIVE);
    let row = |record: &&Record| {
        let figures = record.figures();
        let times = native
            .filter(|native| record.runtime != NATIVE && native.min > 0.0 && native.median > 0.0)
            .filter(|_| unit != "%")
            .map(|native| (figures.min / native.min, figures.median / native.median));
        let against = ours().map(|ours| {
            let figures = last(ours).filter(|_| record.runtime != ours)?;
            compare(&figures, &record.figures(), unit)
        });
        Row {
            runtime: record.runtime.clone().into_owned(),
            version: record.version.clone().into_owned(),
            figures,
            times,
            against,
        }
    };
    let slice = run.head.as_ref().map_or(4e6, |head| head.slice as f64);
    let judge = |bound: &'static Bound| {
        let figures = last(bound.runtime.as_str())?;
        let of = |runtime: RuntimeName| last(runtime.as_str());
        Some(Judged {
            runtime: bound.runtime.as_str(),
            bound: bound.describe(unit),
            verdict: bound.judge(&figures, of, slice),
        })
    };
    let variant = workload.and_then(|workload| variant(workload, &first.variant));
    let bounds = variant.map_or(&[][..], |(_, variant)| variant.bounds);
    let is_overhead = workload.is_some_and(|one| one.kind == Kind::Overhead) && unit == "%";
    let mut table = Table {
        workload: first.workload.clone().into_owned(),
        variant: first.variant.clone().into_owned(),
        about: workload.map_or("a workload that this version does not have", |one| {
            one.about
        }),
        unit: unit.into(),
        workers: first.workers,
        run: index,
        rows: records.iter().map(row).collect(),
        bounds: bounds.iter().filter_map(judge).collect(),
        published: published::of(&first.workload).collect(),
        drawing: published::drawing(&first.workload),
        lost: last(ours()[0])
            .filter(|_| is_overhead)
            .map(|figures| compare::lost(&figures)),
        missing: Vec::new(),
        command: String::new(),
    };
    table.missing = missing(run, &table);
    table.command = command(run, &table, workload);
    table
}

/// Who has no figures in `table`, and why.
fn missing(run: &Run, table: &Table) -> Vec<String> {
    let workload = known(&table.workload).map(|(_, one)| one);
    let (name, mut all) = (measured(table, workload), Vec::new());
    for one in &run.left_out {
        let about = [&name, &table.workload].contains(&&one.workload);
        let has = table.figures(&one.runtime).is_some();
        if about && !has {
            let word = if one.failed { "failed" } else { "is left out" };
            all.push(format!("{} {word}: {}", one.runtime, one.why));
        }
    }
    all
}

/// What was measured to make a table: the variant, if it is one, or what it is a figure of.
fn measured(table: &Table, workload: Option<&Workload>) -> String {
    let has = |name: &str| workload.is_none_or(|one| one.variants.iter().any(|v| v.name == name));
    match served::measured(&table.variant) {
        _ if has(&table.variant) => table.name(),
        Some(name) if has(name) => format!("{}/{name}", table.workload),
        _ => table.workload.clone(),
    }
}

fn command(run: &Run, table: &Table, workload: Option<&Workload>) -> String {
    let name = measured(table, workload);
    let options = run.head.as_ref().map_or(&[][..], |head| &head.options);
    let mut words = vec!["upcall".to_owned(), "bench".to_owned()];
    words.extend(options.iter().cloned());
    words.push(name);
    words.join(" ")
}

/// How many bounds hold, do not, and cannot be judged.
pub fn bounds(report: &Report) -> [usize; 3] {
    let all = report.tables.iter().flat_map(|table| &table.bounds);
    let mut counts = [0; 3];
    for bound in all {
        counts[match bound.verdict {
            Kept::Holds => 0,
            Kept::Broken => 1,
            Kept::Unknown => 2,
        }] += 1;
    }
    counts
}

/// Runtimes that could not be measured in the newest run that says so, with the reasons.
pub fn without(report: &Report) -> Vec<(&str, &str)> {
    let runs = report.runs.iter();
    let mut all: Vec<(&str, &str)> = Vec::new();
    for one in runs.flat_map(|run| &run.left_out) {
        if one.workload.is_empty() && all.iter().all(|(name, _)| *name != one.runtime) {
            all.push((&one.runtime, &one.why));
        }
    }
    all.sort_by_key(|one| Reverse(one.0));
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::LeftOut;

    fn record(
        workload: &str,
        variant: &str,
        runtime: &str,
        unit: &str,
        value: f64,
    ) -> Record<'static> {
        Record {
            workload: workload.to_owned().into(),
            variant: variant.to_owned().into(),
            runtime: runtime.to_owned().into(),
            unit: unit.to_owned().into(),
            workers: 1,
            ..Record::of(&Summary::of(&[value]).unwrap())
        }
    }

    fn report(records: Vec<Record<'static>>, left_out: Vec<LeftOut>) -> Report {
        let run = Run {
            file: "a.jsonl".into(),
            records,
            left_out,
            ..Run::default()
        };
        Report::of(Input {
            runs: vec![run],
            complaints: Vec::new(),
        })
    }

    #[test]
    fn a_losing_row_is_said_as_lost() {
        let report = report(
            vec![
                record("yield", "", "upcall", "ns", 90.0),
                record("yield", "", "nptl", "ns", 600.0),
                record("yield", "", "st", "ns", 30.0),
            ],
            Vec::new(),
        );
        let table = &report.tables[0];
        let words = |row: usize| table.rows[row].against[0].as_ref().map(Comparison::words);
        assert_eq!(words(0), None);
        assert_eq!(words(1).unwrap(), "wins, 6.67 ×");
        assert_eq!(words(2).unwrap(), "loses, 3.00 ×");
        let lost = report.notable(Verdict::Loses);
        assert_eq!((lost.len(), lost[0].theirs), (1, "st"));
        assert_eq!(report.notable(Verdict::Wins)[0].theirs, NATIVE);
        assert_eq!(table.bounds[0].verdict, Kept::Holds);
        assert_eq!(table.command, "upcall bench yield");
    }

    #[test]
    fn an_overhead_is_a_loss_against_native() {
        let report = report(
            vec![record("never_blocks", "cpu_share", "upcall", "%", 1.6)],
            Vec::new(),
        );
        let lost = report.notable(Verdict::Loses);
        assert_eq!((lost.len(), lost[0].theirs), (1, NATIVE));
        assert_eq!(report.tables[0].bounds[0].verdict, Kept::Broken);
        assert_eq!(report.tables[0].command, "upcall bench never_blocks");
    }

    #[test]
    fn a_missing_peer_is_named() {
        let left_out = |workload: &str, runtime: &str, failed| LeftOut {
            workload: workload.into(),
            runtime: runtime.into(),
            failed,
            why: "a reason".into(),
        };
        let report = report(
            vec![record("fib_30", "1", "upcall", "ns", 1.0)],
            vec![
                left_out("", "go", false),
                left_out("fib_30/1", "java", true),
                left_out("fib_30/2", "st", false),
            ],
        );
        assert_eq!(report.tables[0].missing, ["java failed: a reason"]);
        assert_eq!(without(&report), [("go", "a reason")]);
    }

    #[test]
    fn an_unknown_workload_has_its_table_last() {
        let report = report(
            vec![
                record("dance", "tango", "upcall", "steps", 1.0),
                record("yield", "", "upcall", "ns", 1.0),
            ],
            Vec::new(),
        );
        assert_eq!(report.tables[1].name(), "dance/tango");
        assert!(report.tables[1].about.contains("does not have"));
        assert!(report.tables[1].bounds.is_empty());
    }

    #[test]
    fn every_variant_of_the_catalogue_has_its_place_and_command() {
        for workload in WORKLOADS.iter().rev() {
            for variant in workload.variants {
                let one = record(workload.name, variant.name, "upcall", workload.unit, 1.0);
                let report = report(vec![one], Vec::new());
                let command = &report.tables[0].command;
                let name = command.strip_prefix("upcall bench ").unwrap().to_owned();
                assert!(crate::choice::choose(&[name]).is_ok(), "{command}");
            }
        }
    }
}
