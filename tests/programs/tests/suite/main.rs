//! Real programs under `upcall run`, compared with native runs. See README.md.

mod asked;
mod blocked_calls;
mod calls;
mod constructors;
mod dispatch;
mod exit_status;
mod filters;
mod groups;
mod hidden_library;
mod installed;
mod memcached;
mod parked;
mod policies;
mod programs;
mod redis;
mod refusals;
mod scripts;
mod shown;
mod sites;
mod spins;
mod told;
mod tools;
mod turns;

use program_tests::case::Case;
use program_tests::provision;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

/// A case in this suite's scratch directory.
fn case(name: &str) -> Case {
    Case::new(name, Path::new(env!("CARGO_TARGET_TMPDIR")))
}

/// A case for the real command, and the test program FILE, compiled. None if the case must be skipped.
fn real(name: &str, file: &str) -> Option<(Case, PathBuf)> {
    let case = case(name);
    if !case.runs_upcall() {
        return None;
    }
    let program = case.compile(file)?;
    Some((case, program))
}

/// As [`real`], for a case that needs two processors.
fn real_on_two(name: &str, file: &str) -> Option<(Case, PathBuf)> {
    if available_parallelism().map_or(1, usize::from) < 2 {
        provision::skip(name, "it takes two processors, and one is allowed");
        return None;
    }
    real(name, file)
}
