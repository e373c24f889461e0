//! A copy of some crates of the workspace, to be changed and built. The mutants of other crates use it, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The copy.
pub struct Scratch {
    place: PathBuf,
    crates: &'static [&'static str],
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

impl Scratch {
    /// A copy, by this name, which no other test has, of these directories of the workspace as they are: crates, with all that they
    /// depend on, and sources of other crates that they include.
    pub fn new(name: &str, crates: &'static [&'static str]) -> Self {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let scratch = Scratch { place, crates };
        let manifest = fs::read_to_string(workspace().join("Cargo.toml")).expect("the workspace");
        let manifest: Vec<&str> = manifest
            .lines()
            // Members are listed below; link-time optimization takes long and finds nothing here.
            .filter(|line| !line.starts_with("members") && !line.starts_with("lto"))
            .filter(|line| !line.starts_with("codegen-units"))
            .collect();
        let is_crate = |path: &&&str| workspace().join(path).join("Cargo.toml").exists();
        let members = crates.iter().filter(is_crate);
        let members: Vec<_> = members.map(|path| format!("\"{path}\"")).collect();
        let members = format!("members = [{}]", members.join(", "));
        let manifest = manifest
            .join("\n")
            .replace("[workspace]", &format!("[workspace]\n{members}"))
            // Most runs fail soon, and take less than the build.
            .replace("[profile.testing]", "[profile.testing]\nopt-level = 1");
        fs::create_dir_all(&scratch.place).expect("a scratch directory");
        fs::write(scratch.place.join("Cargo.toml"), manifest).expect("its manifest");
        let lock = "Cargo.lock";
        fs::copy(workspace().join(lock), scratch.place.join(lock)).expect("its lock");
        scratch.restore();
        scratch
    }

    /// The sources as they are.
    pub fn restore(&self) {
        for path in self.crates {
            copy(&workspace().join(path), &self.place.join(path));
        }
    }

    /// Replaces a text that occurs once in a file of the workspace.
    ///
    /// # Panics
    ///
    /// When it occurs more often, or not at all.
    pub fn replace(&self, file: &str, text: &str, instead: &str) {
        let path = self.place.join(file);
        let before = fs::read_to_string(&path).expect("a file of the copy");
        assert_eq!(before.matches(text).count(), 1, "{file}: {text}");
        fs::write(&path, before.replace(text, instead)).expect("a scratch file");
    }

    /// Builds a test of the copy and runs it, with these arguments and variables: the report, if it fails.
    ///
    /// # Panics
    ///
    /// When it cannot be built.
    pub fn run(
        &self,
        package: &str,
        test: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Option<String> {
        let cargo = || {
            let mut cargo = Command::new(env!("CARGO"));
            cargo
                .current_dir(&self.place)
                .env("CARGO_TARGET_DIR", self.place.join("target"));
            cargo.args(["test", "--offline", "--profile", "testing", "-p", package]);
            cargo.args(["--test", test]);
            cargo
                .env_remove("UPCALL_TEST_SEED")
                .env_remove("UPCALL_TEST_LAUNCHER")
                .env("RUST_BACKTRACE", "0")
                // The next one differs in a line.
                .env("CARGO_INCREMENTAL", "1");
            cargo
        };
        let built = cargo().arg("--no-run").output().expect("cargo");
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        let mut run = cargo();
        run.arg("--")
            .args(arguments)
            .envs(variables.iter().copied());
        let ran = run.output().expect("cargo");
        let report = String::from_utf8_lossy(&ran.stdout).into_owned();
        (!ran.status.success()).then_some(report)
    }
}

/// Panics if a text does not stand in a file of the workspace exactly once: no mutant could replace it.
pub fn find(file: &str, text: &str) {
    let source = fs::read_to_string(workspace().join(file)).expect(file);
    assert_eq!(source.matches(text).count(), 1, "{file}: {text}");
}

/// Copies what differs, so that a build finds the rest as it was, and removes what is gone.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).expect("a scratch directory");
        for entry in fs::read_dir(to).expect("the scratch directory") {
            let entry = entry.expect("a scratch file");
            if !from.join(entry.file_name()).exists() {
                let path = entry.path();
                let removed = if path.is_dir() {
                    fs::remove_dir_all(&path)
                } else {
                    fs::remove_file(&path)
                };
                removed.expect("a scratch file that can be removed");
            }
        }
        for entry in fs::read_dir(from).expect("sources") {
            let name = entry.expect("a source").file_name();
            copy(&from.join(&name), &to.join(&name));
        }
        return;
    }
    let new = fs::read(from).expect("a source");
    if fs::read(to).ok().as_deref() != Some(&new[..]) {
        fs::write(to, new).expect("a scratch file");
    }
}
