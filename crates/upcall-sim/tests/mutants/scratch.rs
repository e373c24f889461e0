//! A copy of the runtime and of its simulation, to be changed and built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The copy.
pub struct Scratch(PathBuf);

const CRATES: [&str; 3] = ["upcall-alloc", "upcall-core", "upcall-sim"];

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

impl Scratch {
    /// A copy of what is there, by this name.
    pub fn new(name: &str) -> Self {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let scratch = Scratch(place);
        let manifest = fs::read_to_string(workspace().join("Cargo.toml")).expect("the workspace");
        let manifest: Vec<&str> = manifest
            .lines()
            // Members are listed below; link-time optimization takes long and finds nothing here.
            .filter(|line| !line.starts_with("members") && !line.starts_with("lto"))
            .filter(|line| !line.starts_with("codegen-units"))
            .collect();
        let members = CRATES.map(|name| format!("\"crates/{name}\""));
        let members = format!("members = [{}]", members.join(", "));
        let manifest = manifest
            .join("\n")
            .replace("[workspace]", &format!("[workspace]\n{members}"));
        fs::create_dir_all(&scratch.0).expect("a scratch directory");
        fs::write(scratch.0.join("Cargo.toml"), manifest).expect("its manifest");
        fs::copy(workspace().join("Cargo.lock"), scratch.0.join("Cargo.lock")).expect("its lock");
        scratch.restore();
        scratch
    }

    /// The sources as they are.
    pub fn restore(&self) {
        for name in CRATES {
            let (from, to) = (
                workspace().join("crates").join(name),
                self.0.join("crates").join(name),
            );
            fs::create_dir_all(&to).expect("a scratch directory");
            copy(&from.join("Cargo.toml"), &to.join("Cargo.toml"));
            copy(&from.join("src"), &to.join("src"));
        }
        let scenarios = "crates/upcall-sim/tests/scenarios";
        copy(&workspace().join(scenarios), &self.0.join(scenarios));
    }

    /// Replaces a text of the runtime that occurs once.
    ///
    /// # Panics
    ///
    /// When it occurs more often, or not at all.
    pub fn replace(&self, file: &str, text: &str, instead: &str) {
        let file = self.0.join("crates/upcall-core/src").join(file);
        let before = fs::read_to_string(&file).expect("a file of the runtime");
        assert_eq!(
            before.matches(text).count(),
            1,
            "{}: {text}",
            file.display()
        );
        fs::write(&file, before.replace(text, instead)).expect("a scratch file");
    }

    /// Builds the copy and explores a scenario there: the report, if it fails.
    ///
    /// # Panics
    ///
    /// When it cannot be built.
    pub fn explore(&self, scenario: &str, variables: &[(&str, &str)]) -> Option<String> {
        let cargo = || {
            let mut cargo = Command::new(env!("CARGO"));
            cargo
                .current_dir(&self.0)
                .env("CARGO_TARGET_DIR", self.0.join("target"));
            cargo.args([
                "test",
                "--offline",
                "--release",
                "-p",
                "upcall-sim",
                "--test",
                "scenarios",
            ]);
            cargo
                .env_remove("UPCALL_TEST_SEED")
                .env("RUST_BACKTRACE", "0");
            cargo
        };
        let built = cargo().arg("--no-run").output().expect("cargo");
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        let mut run = cargo();
        run.args(["--", "--exact", scenario])
            .envs(variables.iter().copied());
        let ran = run.output().expect("cargo");
        let report = String::from_utf8_lossy(&ran.stdout).into_owned();
        (!ran.status.success()).then_some(report)
    }
}

/// Copies what differs, so that a build finds the rest as it was.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).expect("a scratch directory");
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
