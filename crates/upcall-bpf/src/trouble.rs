//! What can be wrong.

use std::fmt;

/// Why nothing can be observed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// What failed.
    pub what: &'static str,
    /// What was seen.
    pub evidence: String,
    /// What to try.
    pub remedy: &'static str,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trouble { what, evidence, .. } = self;
        write!(f, "{what}: {evidence}")
    }
}

impl std::error::Error for Trouble {}
