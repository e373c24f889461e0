//! What went wrong, how it is known, and what to try.

use std::fmt;
use std::io::Write;

/// A problem that ends the benchmark before it measures.
#[derive(Debug)]
pub struct Problem {
    /// What failed.
    pub what: String,
    /// What was looked at.
    pub evidence: String,
    /// What to try.
    pub remedy: String,
}

impl Problem {
    /// A problem from its three parts.
    pub fn new(
        what: impl Into<String>,
        evidence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            evidence: evidence.into(),
            remedy: remedy.into(),
        }
    }
}

impl Problem {
    /// What `command` says of it.
    pub(crate) fn said_by(&self, command: &str) -> String {
        let Self {
            what,
            evidence,
            remedy,
        } = self;
        format!("{command}: {what}\n  found: {evidence}\n  try: {remedy}")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said_by("upcall bench"))
    }
}

pub(crate) fn print(out: &mut dyn Write, text: &str) -> Result<(), Problem> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| {
        let evidence = format!("standard output: {error}");
        Problem::new(
            "cannot print the figures",
            evidence,
            "a place that takes them",
        )
    })
}
