//! Real programs under `upcall run`, compared with native runs. See README.md.

mod dispatch;
mod exit_status;
mod groups;
mod guests;
mod memcached;
mod parked;
mod placed;
mod redis;
mod refusals;
mod scripts;
mod tools;
mod turns;

use program_tests::case::Case;
use std::path::Path;

/// A case in this suite's scratch directory.
fn case(name: &str) -> Case {
    Case::new(name, Path::new(env!("CARGO_TARGET_TMPDIR")))
}
