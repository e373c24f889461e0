//! What can go wrong, in four lines: what failed, what was seen, what to try, where to read more.

use std::fmt;

/// How the daemon ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// SIGTERM or SIGINT ended it.
    Ended = 0,
    /// It ran, and cannot go on.
    Broken = 1,
    /// Another daemon runs at this place.
    Second = 3,
    /// Its directory or socket cannot be used.
    Place = 4,
    /// The configuration cannot be used.
    Config = 6,
}

/// Why the daemon does not run.
#[derive(Debug)]
pub struct Trouble {
    /// With what status it ends.
    pub exit: Exit,
    /// What failed.
    pub what: String,
    /// What was seen.
    pub evidence: String,
    /// What to try.
    pub remedy: String,
}

impl Trouble {
    /// Something that the kernel refused while the daemon runs.
    pub fn broken(what: &str, error: impl fmt::Display) -> Self {
        Trouble {
            exit: Exit::Broken,
            what: what.into(),
            evidence: error.to_string(),
            remedy: "start it again; programs go on without it meanwhile, and take turns".into(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "upcalld: {}", self.what)?;
        writeln!(f, "  seen: {}", self.evidence)?;
        writeln!(f, "  try:  {}", self.remedy)?;
        let more = match self.exit {
            Exit::Config => "man 5 upcalld.toml",
            _ => "upcalld --help",
        };
        write!(f, "  more: {more}")
    }
}

impl std::error::Error for Trouble {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_four_lines() {
        let text = Trouble::broken("the socket is gone", "EBADF").to_string();
        let begins: Vec<&str> = text.lines().map(|line| &line[..8]).collect();
        assert_eq!(begins, ["upcalld:", "  seen: ", "  try:  ", "  more: "]);
    }
}
