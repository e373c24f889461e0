//! A file of results: what `upcall bench --output` writes and `upcall report` reads.
//!
//! Each line is a JSON object with a field `v`. What else it has says what it is: the [`Head`] of a run (`head`), a record
//! (`workload`), what has no figures and why (`left_out`), or the end of a run (`end`). A line is written at once, so a run
//! that is cut off leaves whole lines, and at most one that is not. A run that is added to a file begins with its head.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::record::{Record, VERSION};

/// What is so for all figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// This command's version.
    pub upcall: String,
    #[serde(flatten)]
    pub machine: Machine,
    /// How many processors the run could use.
    pub allowed: usize,
    /// Options of `upcall bench` that change the figures, as they are given to reproduce them.
    pub options: Vec<String>,
    /// Whether the samples were few and short.
    pub quick: bool,
    /// The time slice that one bound refers to, in nanoseconds.
    pub slice: u64,
    /// Runtimes that were measured, each with its version.
    pub runtimes: Vec<(String, String)>,
}

/// What has no figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// A workload or a variant; all if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// A runtime; all if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub runtime: String,
    /// Whether a program failed: it was not left out before it ran.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    pub why: String,
}

/// The end of a run that was not cut off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// How long the run took.
    pub seconds: u64,
    pub load: f64,
    /// What was noisy.
    pub noise: Vec<String>,
}

/// A line that is no record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    Head(Head),
    LeftOut(LeftOut),
    End(End),
}

impl Note {
    /// The JSON line, without its end.
    pub fn line(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            v: u32,
            #[serde(flatten)]
            note: &'a Note,
        }
        let line = Line {
            v: VERSION,
            note: self,
        };
        serde_json::to_string(&line).expect("numbers, texts and lists of them")
    }
}

/// A line of a file of results.
#[derive(Debug)]
pub enum Line {
    Record(Record<'static>),
    Note(Box<Note>),
}

/// Reads a line.
///
/// # Errors
///
/// Why it is none, in words.
pub fn parse(line: &str) -> Result<Line, String> {
    let value: serde_json::Value = serde_json::from_str(line)
        .map_err(|error| format!("it is no whole JSON object: {error}"))?;
    let version = value.get("v").and_then(serde_json::Value::as_u64);
    match version {
        None => return Err("it has no field v, so it is not of upcall bench".into()),
        Some(known) if known == u64::from(VERSION) => {}
        Some(other) => {
            return Err(format!(
                "it is of version {other}, and this command reads version {VERSION}"
            ));
        }
    }
    let is_record = value.get("workload").is_some();
    let read = |error: serde_json::Error| error.to_string();
    if is_record {
        let record = serde_json::from_value(value).map_err(read)?;
        return Ok(Line::Record(record));
    }
    let note = ["head", "left_out", "end"]
        .into_iter()
        .find_map(|key| Some((key, value.get(key)?.clone())));
    let (key, inside) = note.ok_or("it is neither a record nor a head")?;
    let note = serde_json::json!({ key: inside });
    serde_json::from_value(note)
        .map(|note| Line::Note(Box::new(note)))
        .map_err(read)
}

/// A file that takes lines.
#[derive(Debug)]
pub struct Sink(File);

impl Sink {
    /// Opens the file at `path` to add a run to it, and makes it and its directory if they are not there.
    ///
    /// # Errors
    ///
    /// There can be no such file.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent().filter(|one| !one.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)?;
        // The last line of a run that was cut off stays one line.
        if file.seek(SeekFrom::End(-1)).is_ok() {
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self(file))
    }

    /// Adds whole lines.
    ///
    /// # Errors
    ///
    /// There is no room.
    pub fn add(&mut self, lines: &str) -> io::Result<()> {
        self.0.write_all(lines.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_are_written() {
        let head = Note::Head(Head {
            upcall: "0.1.0".into(),
            machine: Machine {
                load: 1.5,
                processors: 2,
                ..Machine::default()
            },
            options: vec!["--rounds".into(), "2".into()],
            runtimes: vec![("nptl".into(), "glibc 2.36".into())],
            ..Head::default()
        });
        let left_out = Note::LeftOut(LeftOut {
            runtime: "go".into(),
            why: "there is no go".into(),
            ..LeftOut::default()
        });
        let end = Note::End(End {
            seconds: 7,
            ..End::default()
        });
        for note in [head, left_out, end] {
            let line = note.line();
            assert!(line.starts_with(r#"{"v":1,"#), "{line}");
            match parse(&line) {
                Ok(Line::Note(read)) => assert_eq!(*read, note),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_line_of_ours_is_said_in_words() {
        for (line, word) in [
            (r#"{"v":1,"workload":"yi"#, "no whole JSON object"),
            (r#"{"name":"left-pad"}"#, "not of upcall bench"),
            (r#"{"v":2,"workload":"yield"}"#, "version 2"),
            (r#"{"v":1}"#, "neither"),
            (
                r#"{"v":1,"workload":"yield","runtime":"upcall"}"#,
                "workers",
            ),
            (r#"{"v":1,"head":[]}"#, "invalid"),
            ("[]", "no field v"),
        ] {
            let why = parse(line).unwrap_err();
            assert!(why.contains(word), "{line}: {why}");
        }
    }

    #[test]
    fn a_run_is_added_behind_a_line_that_was_cut_off() {
        let path = std::env::temp_dir().join(format!("upcall-results-{}", std::process::id()));
        std::fs::write(&path, "{\"v\":1,\"work").unwrap();
        Sink::open(&path).unwrap().add("whole\n").unwrap();
        Sink::open(&path).unwrap().add("next\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "{\"v\":1,\"work\nwhole\nnext\n");
    }
}
