//! How `upcall` says no: what failed, what was checked, what to try, where to read more.

use crate::status::EXIT_OURS;

/// A failure of `upcall` itself, with exit status 125.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What failed, without the leading name of this command.
    pub what: String,
    /// The evidence.
    pub checked: String,
    pub remedy: String,
    /// Where to read more.
    pub more: &'static str,
}

impl Refusal {
    /// Prints the four lines to standard error and returns the exit status.
    pub fn report(&self) -> i32 {
        eprintln!("{self}");
        EXIT_OURS
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "upcall: {}", self.what)?;
        writeln!(f, "  checked: {}", self.checked)?;
        writeln!(f, "  try:     {}", self.remedy)?;
        write!(f, "  more:    {}", self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_four_lines() {
        let refusal = Refusal {
            what: "no".into(),
            checked: "this".into(),
            remedy: "that".into(),
            more: "there",
        };
        let text = refusal.to_string();
        assert_eq!(text.lines().count(), 4);
        assert!(text.starts_with("upcall: no\n"));
    }
}
