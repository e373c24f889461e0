//! What stands in front of the program under test.
//!
//! By default that is this workspace's own `upcall run --`, built in release mode on first use.
//! `UPCALL_TEST_LAUNCHER` replaces it by any command prefix, for example `env` (native against
//! native, which checks the suite itself) or `/path/to/upcall run -p 1 --`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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
                words: vec![build(scratch).into(), "run".into(), "--".into()],
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

/// Builds the command and its preloaded library and returns the command's path.
///
/// Cargo is asked every time and not only when the file is missing: a stale command would test
/// yesterday's code.
fn build(scratch: &Path) -> PathBuf {
    let target = scratch
        .parent()
        .expect("the scratch directory lies in the target directory");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "build",
            "--quiet",
            "--release",
            "-p",
            "upcall-cli",
            "-p",
            "upcall-guest",
        ])
        .arg("--target-dir")
        .arg(target)
        .status()
        .expect("cargo can be started");
    assert!(
        status.success(),
        "building the upcall command failed: {status}"
    );
    let release = target.join("release");
    for file in ["upcall", "libupcall_guest.so"] {
        let path = release.join(file);
        assert!(path.exists(), "the build left no {}", path.display());
    }
    release.join("upcall")
}
