//! One JSON line for one runtime's figures of one workload.
//!
//! The first eight fields are the interface and keep their names, order and meaning while `v` is
//! 1; further fields may follow.

use serde::Serialize;

use crate::stats::Summary;

/// The version of the line.
const VERSION: u32 = 1;

/// A line of `--json`.
#[derive(Debug, Serialize)]
pub struct Record<'a> {
    v: u32,
    workload: &'a str,
    runtime: &'a str,
    workers: usize,
    unit: &'a str,
    min: f64,
    median: f64,
    n: usize,
    #[serde(skip_serializing_if = "str::is_empty")]
    variant: &'a str,
    p90: f64,
    max: f64,
    /// The runtime's version.
    version: &'a str,
    /// Whether all bounds hold; absent for runtimes that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<bool>,
}

/// What a record says beside its figures.
#[derive(Clone, Copy, Debug)]
pub struct Heading<'a> {
    /// The workload's name.
    pub workload: &'a str,
    /// The variant, or nothing.
    pub variant: &'a str,
    /// The runtime's name.
    pub runtime: &'a str,
    /// The runtime's version.
    pub version: &'a str,
    /// How many processors the program could use.
    pub workers: usize,
    /// The unit of the figures.
    pub unit: &'a str,
    /// Whether the bounds hold, if there are any.
    pub holds: Option<bool>,
}

/// The JSON line, without its end.
pub fn line(heading: &Heading<'_>, figures: &Summary) -> String {
    let record = Record {
        v: VERSION,
        workload: heading.workload,
        runtime: heading.runtime,
        workers: heading.workers,
        unit: heading.unit,
        min: rounded(figures.min),
        median: rounded(figures.median),
        n: figures.n,
        variant: heading.variant,
        p90: rounded(figures.p90),
        max: rounded(figures.max),
        version: heading.version,
        holds: heading.holds,
    };
    serde_json::to_string(&record).expect("a flat structure of numbers and texts")
}

/// To a thousandth, which is more than any clock here resolves.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heading() -> Heading<'static> {
        Heading {
            workload: "yield",
            variant: "",
            runtime: "upcall",
            version: "0.1.0",
            workers: 1,
            unit: "ns",
            holds: None,
        }
    }

    #[test]
    fn the_line_begins_as_documented() {
        let figures = Summary::of(&[80.5, 81.25, 90.0]).unwrap();
        let line = line(&heading(), &figures);
        let expected = r#"{"v":1,"workload":"yield","runtime":"upcall","workers":1,"unit":"ns","min":80.5,"median":81.25,"n":3,"#;
        assert!(line.starts_with(expected), "{line}");
        assert!(
            !line.contains("variant") && !line.contains("holds"),
            "{line}"
        );
    }

    #[test]
    fn further_fields_follow() {
        let figures = Summary::of(&[1.0]).unwrap();
        let heading = Heading {
            variant: "pipe",
            holds: Some(false),
            ..heading()
        };
        let value: serde_json::Value = serde_json::from_str(&line(&heading, &figures)).unwrap();
        assert_eq!(value["variant"], "pipe");
        assert_eq!(value["holds"], false);
        assert_eq!(value["p90"], 1.0);
        assert_eq!(value["version"], "0.1.0");
    }
}
