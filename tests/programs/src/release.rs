//! What is built for users.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory with everything that `./install` installs, which `./install build` has made of the sources as they are.
///
/// Cargo is asked every time, and not only when a file is missing: a stale command would test yesterday's code. All
/// tests ask for the same, since cargo builds what packages share anew for each other set of them.
///
/// `scratch` is Cargo's directory for integration tests, from which the target directory follows.
///
/// # Panics
///
/// When it cannot be built.
pub fn built(scratch: &Path) -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = scratch.parent().expect("in the target directory");
        let install = concat!(env!("CARGO_MANIFEST_DIR"), "/../../install");
        let mut build = Command::new(install);
        build.arg("build");
        build
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_TERM_QUIET", "true");
        let status = build.status().expect("./install can be started");
        assert!(status.success(), "./install build: {status}");
        target.join("release")
    })
}
