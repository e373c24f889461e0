//! Reads files of results.
//!
//! The files may have been cut off, made by another version, or be no results at all: what cannot be read is named, and
//! what can be is kept. Text from a file is made fit for a page here, once.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::problem::Problem;
use crate::record::Record;
use crate::results::{End, Head, LeftOut, Line, Note, parse};

/// How large a file may be: some hundred times what a run of everything writes.
const MOST: u64 = 32 << 20;

/// A run of `upcall bench`.
#[derive(Debug, Default)]
pub struct Run {
    /// The name of its file.
    pub file: String,
    /// What is known of the run; nothing of lines that were printed by `--json`.
    pub head: Option<Head>,
    pub records: Vec<Record<'static>>,
    pub left_out: Vec<LeftOut>,
    /// Nothing if the run was cut off.
    pub end: Option<End>,
}

/// All that a directory has.
#[derive(Debug, Default)]
pub struct Input {
    /// The newest first.
    pub runs: Vec<Run>,
    /// What could not be read, and why.
    pub complaints: Vec<String>,
}

/// Reads the files of `directory` whose names end in `.jsonl`.
///
/// # Errors
///
/// A [`Problem`] if there is no result in it.
pub fn directory(directory: &Path) -> Result<Input, Problem> {
    let shown = directory.display();
    let problem = |what: &str, evidence: String| {
        let remedy = format!("upcall bench -o {shown}/results.jsonl, and then this again");
        Err(Problem::new(what, evidence, remedy))
    };
    let files = match files(directory) {
        Ok(files) => files,
        Err(error) => return problem("the directory cannot be read", format!("{shown}: {error}")),
    };
    if files.is_empty() {
        let evidence = format!("{shown} has no file whose name ends in .jsonl");
        return problem("there are no results", evidence);
    }
    let mut input = Input::default();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = fit(&name).into_owned();
        match text(&path) {
            Ok(text) => input.add(&name, &text),
            Err(why) => input.complaints.push(format!("{name} is left out: {why}")),
        }
    }
    if input.runs.iter().all(|run| run.records.is_empty()) {
        let mut evidence = format!("no file of {shown} has a figure");
        for complaint in &input.complaints {
            evidence += &format!("\n         {complaint}");
        }
        return problem("there are no results", evidence);
    }
    let time = |run: &Run| run.head.as_ref().map(|head| head.machine.time);
    input.runs.sort_by_key(|run| std::cmp::Reverse(time(run)));
    Ok(input)
}

fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn text(path: &Path) -> Result<String, String> {
    // A pipe has no end.
    if !fs::metadata(path)
        .map_err(|error| error.to_string())?
        .is_file()
    {
        return Err("it is not a file".into());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = file.take(MOST + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST {
        return Err(format!("it has more than {} MB", MOST >> 20));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Input {
    /// Adds the runs of a file.
    pub fn add(&mut self, name: &str, text: &str) {
        let mut bad = Vec::new();
        let mut runs: Vec<Run> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            match parse(&fit(line)) {
                Ok(line) => put(&mut runs, name, line),
                Err(why) => bad.push(format!("line {number}: {why}")),
            }
        }
        let (count, first) = (bad.len(), bad.first());
        if let Some(first) = first {
            let more = match count {
                1 => String::new(),
                _ => format!(" (and {} more such lines)", count - 1),
            };
            let what = if runs.is_empty() {
                format!("{name} is left out: no line is of upcall bench")
            } else {
                format!("a part of {name} is left out")
            };
            self.complaints.push(format!("{what}; {first}{more}"));
        }
        self.runs.extend(runs);
    }
}

fn put(runs: &mut Vec<Run>, file: &str, line: Line) {
    let begins = matches!(&line, Line::Note(note) if matches!(**note, Note::Head(_)));
    if begins || runs.is_empty() {
        runs.push(Run {
            file: file.into(),
            ..Run::default()
        });
    }
    let Some(run) = runs.last_mut() else {
        return;
    };
    match line {
        Line::Record(record) => run.records.push(record),
        Line::Note(note) => match *note {
            Note::Head(head) => run.head = Some(head),
            Note::LeftOut(one) => run.left_out.push(one),
            Note::End(end) => run.end = Some(end),
        },
    }
}

/// `text` without what XML does not have. JSON escapes of such characters are replaced, too: what is parsed has none.
fn fit(text: &str) -> Cow<'_, str> {
    let bad = |c: char| {
        (c < ' ' && c != '\t') || matches!(c, '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
    };
    let escaped = |text: &str| {
        // \u0000 to \u001f, \u007f to \u009f, \ufffe and \uffff.
        text.to_ascii_lowercase().split("\\u").skip(1).any(|code| {
            let code = code
                .get(..4)
                .and_then(|code| u32::from_str_radix(code, 16).ok());
            code.and_then(char::from_u32).is_some_and(bad)
        }) || ["\\b", "\\f", "\\n", "\\r"]
            .iter()
            .any(|escape| text.contains(escape))
    };
    if !text.contains(bad) && !escaped(text) {
        return Cow::Borrowed(text);
    }
    let mut fit: String = text
        .chars()
        .map(|c| if bad(c) { '\u{fffd}' } else { c })
        .collect();
    if let Ok(mut value) = serde_json::from_str::<serde_json::Value>(&fit) {
        replace(&mut value, &bad);
        fit = value.to_string();
    }
    Cow::Owned(fit)
}

fn replace(value: &mut serde_json::Value, bad: &dyn Fn(char) -> bool) {
    use serde_json::Value::{Array, Object, String};
    match value {
        String(text) => {
            let lines = text.replace(['\n', '\r'], " ");
            *text = lines.replace(bad, "\u{fffd}");
        }
        Array(all) => all.iter_mut().for_each(|one| replace(one, bad)),
        Object(all) => all.values_mut().for_each(|one| replace(one, bad)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YIELD: &str = r#"{"v":1,"workload":"yield","runtime":"upcall","workers":1,"unit":"ns","min":1,"median":2,"n":3,"p90":3,"max":4}"#;

    #[test]
    fn a_line_that_was_cut_off_costs_nothing_else() {
        let mut input = Input::default();
        input.add("a.jsonl", &format!("{YIELD}\n{}", &YIELD[..40]));
        assert_eq!(input.runs[0].records.len(), 1);
        let said = &input.complaints[0];
        assert!(
            said.starts_with("a part of a.jsonl is left out; line 2: it is no whole"),
            "{said}"
        );
    }

    #[test]
    fn a_head_begins_a_run() {
        let mut input = Input::default();
        let head = r#"{"v":1,"head":{"time":5}}"#;
        let left_out = r#"{"v":1,"left_out":{"runtime":"go","why":"there is none"}}"#;
        input.add(
            "a.jsonl",
            &format!("{YIELD}\n{head}\n{left_out}\n{YIELD}\n"),
        );
        assert_eq!(input.runs.len(), 2);
        assert!(input.runs[0].head.is_none() && input.runs[0].left_out.is_empty());
        assert_eq!(input.runs[1].left_out[0].runtime, "go");
        assert!(input.complaints.is_empty());
    }

    #[test]
    fn a_foreign_file_is_named() {
        let mut input = Input::default();
        input.add("b.jsonl", "{\"name\":\"x\"}\nhello\n");
        assert!(input.runs.is_empty());
        let said = &input.complaints[0];
        assert!(
            said.contains("b.jsonl is left out: no line is of upcall bench; line 1")
                && said.contains("1 more"),
            "{said}"
        );
    }

    #[test]
    fn characters_that_no_page_can_have_are_replaced() {
        let mut input = Input::default();
        let line = YIELD.replace("upcall", "a\\u0001\\b\\nb\u{7f}c\\\\u0001");
        input.add("a.jsonl", &line);
        assert_eq!(
            input.runs[0].records[0].runtime,
            "a\u{fffd}\u{fffd} b\u{fffd}c\\u0001"
        );
    }
}
