//! One JSON line for one runtime's figures of one workload.
//!
//! The first eight fields are the interface and keep their names, order and meaning while `v` is
//! 1; further fields may follow.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::stats::Summary;

/// The version of all lines.
pub const VERSION: u32 = 1;

/// A line of `--json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record<'a> {
    pub v: u32,
    /// The workload's name.
    pub workload: Cow<'a, str>,
    /// The runtime's name.
    pub runtime: Cow<'a, str>,
    /// How many processors the program could use.
    pub workers: usize,
    pub unit: Cow<'a, str>,
    pub min: f64,
    pub median: f64,
    pub n: usize,
    /// The variant, or nothing.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub variant: Cow<'a, str>,
    pub p90: f64,
    pub max: f64,
    /// Of a hundred samples or more; the next one of a thousand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999: Option<f64>,
    /// The runtime's version.
    #[serde(default)]
    pub version: Cow<'a, str>,
    /// Whether all bounds hold; absent for runtimes that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
}

impl Record<'_> {
    /// A record of these figures, which does not say yet of what they are.
    pub fn of(figures: &Summary) -> Self {
        Record {
            v: VERSION,
            min: rounded(figures.min),
            median: rounded(figures.median),
            n: figures.n,
            p90: rounded(figures.p90),
            max: rounded(figures.max),
            p99: figures.p99.map(rounded),
            p999: figures.p999.map(rounded),
            ..Record::default()
        }
    }

    /// The figures.
    pub fn figures(&self) -> Summary {
        Summary {
            min: self.min,
            median: self.median,
            p90: self.p90,
            max: self.max,
            p99: self.p99,
            p999: self.p999,
            n: self.n,
        }
    }

    /// The JSON line, without its end.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("a flat structure of numbers and texts")
    }
}

/// To a thousandth, which is more than any clock here resolves.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(figures: &[f64]) -> Record<'static> {
        Record {
            workload: "yield".into(),
            runtime: "upcall".into(),
            version: "0.1.0".into(),
            workers: 1,
            unit: "ns".into(),
            ..Record::of(&Summary::of(figures).unwrap())
        }
    }

    #[test]
    fn the_line_begins_as_documented() {
        let line = record(&[80.5, 81.25, 90.0]).line();
        let expected = r#"{"v":1,"workload":"yield","runtime":"upcall","workers":1,"unit":"ns","min":80.5,"median":81.25,"n":3,"#;
        assert!(line.starts_with(expected), "{line}");
        assert!(
            !line.contains("variant") && !line.contains("holds"),
            "{line}"
        );
    }

    #[test]
    fn a_tail_survives() {
        let samples: Vec<f64> = (1..=2000).map(f64::from).collect();
        let line = record(&samples).line();
        assert!(line.contains(r#""p99":1980.0,"p999":1998.0"#), "{line}");
        let read: Record = serde_json::from_str(&line).unwrap();
        assert_eq!(read.figures(), Summary::of(&samples).unwrap());
    }

    #[test]
    fn further_fields_follow() {
        let record = Record {
            variant: "pipe".into(),
            holds: Some(false),
            ..record(&[1.0])
        };
        let value: serde_json::Value = serde_json::from_str(&record.line()).unwrap();
        assert_eq!(value["variant"], "pipe");
        assert_eq!(value["holds"], false);
        assert_eq!(value["p90"], 1.0);
        assert_eq!(value["version"], "0.1.0");
    }
}
