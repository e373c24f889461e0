//! What stands in front of the program under test.
//!
//! By default that is this workspace's own `upcall run --`, as it is built for users ([`crate::release`]).
//! `UPCALL_TEST_LAUNCHER` replaces it by any command prefix, for example `env` (native against
//! native, which checks the suite itself) or `/path/to/upcall run -p 1 --`.

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use crate::release::built;

/// A command prefix: the words that are put before a program and its arguments.
#[derive(Clone, Debug)]
pub struct Launcher {
    words: Vec<OsString>,
}

impl Launcher {
    /// The launcher that this test process uses.
    ///
    /// `scratch` is Cargo's directory for integration tests, from which the target directory
    /// follows.
    ///
    /// # Panics
    ///
    /// When `UPCALL_TEST_LAUNCHER` is empty or the workspace's command cannot be built.
    pub fn chosen(scratch: &Path) -> &'static Launcher {
        static CHOSEN: OnceLock<Launcher> = OnceLock::new();
        CHOSEN.get_or_init(|| match std::env::var("UPCALL_TEST_LAUNCHER") {
            Ok(line) => {
                let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
                assert!(
                    !words.is_empty(),
                    "UPCALL_TEST_LAUNCHER is empty; unset it or name one"
                );
                Launcher { words }
            }
            Err(_) => Launcher {
                words: vec![
                    built(scratch).join("upcall").into(),
                    "run".into(),
                    "--".into(),
                ],
            },
        })
    }

    /// The words put before the program.
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// This launcher with a further option of `upcall run`.
    ///
    /// # Panics
    ///
    /// When the launcher is no `upcall run`.
    pub fn with(&self, option: &str) -> Launcher {
        let run = self
            .words
            .iter()
            .position(|word| word == "run")
            .expect("a word `run`");
        let mut words = self.words.clone();
        words.insert(run + 1, option.into());
        Launcher { words }
    }

    /// The `upcall` command itself, or `None` when something else launches.
    pub fn upcall(&self) -> Option<&Path> {
        let first = Path::new(&self.words[0]);
        (first.file_name()? == "upcall").then_some(first)
    }
}
