//! That each scenario can fail: a changed line of the runtime, and the scenario that catches it.
//!
//! ```text
//! cargo test --release -p upcall-conformance --test mutants -- --ignored --nocapture
//! ```
//!
//! A copy of the workspace is built and run once for each mutant, on the simulated machine: minutes.
//! A text that is not there exactly once is an error, and so is a mutant that does not compile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A scenario; a file; what stands there, and what shall.
type Mutant = (&'static str, &'static str, &'static str, &'static str);

const UPCALL: &str = "crates/upcall-core/src/upcall.rs";
const PASSAGE: &str = "crates/upcall-core/src/passage.rs";
const STANDBY: &str = "crates/upcall-core/src/standby.rs";
const SPARES: &str = "crates/upcall-core/src/spares.rs";
const WAIT: &str = "crates/upcall-core/src/wait.rs";

/// None for `priority_unblock`: the runtime has no priorities yet.
const MUTANTS: &[Mutant] = &[
    (
        "block",
        STANDBY,
        "if self.kernel.is_blocked(word.owner(), cheap_doubt) {",
        "if word.state() == State::User && self.kernel.is_blocked(word.owner(), cheap_doubt) {",
    ),
    (
        "fault",
        STANDBY,
        "if self.kernel.is_blocked(word.owner(), cheap_doubt) {",
        "if word.state() == State::Kernel && self.kernel.is_blocked(word.owner(), cheap_doubt) {",
    ),
    // Threads whose calls have ended are made ready, and a sleeping processor is not told.
    (
        "unblock_while_idle",
        WAIT,
        "self.notify(word.owner());\n        true",
        "true",
    ),
    // Who was displaced has the owner choose again, and so displaces in its turn.
    (
        "unblock_while_busy",
        UPCALL,
        "&& displaced == 0",
        "&& displaced < 2",
    ),
    (
        "preempt_in_critical_section",
        UPCALL,
        "if !vp.has_ready() && self.kernel.may_run(vp) {",
        "if self.kernel.may_run(vp) {",
    ),
    // Who is stopped inside the runtime is replaced.
    (
        "preempt_in_runtime",
        UPCALL,
        "State::Granted | State::Runtime => return false,",
        "State::Runtime => return vp.replace(word, activation, State::Runtime),\n                State::Granted => return false,",
    ),
    (
        "last_processor",
        WAIT,
        "if self.kernel.may_run(vp) {\n                break;",
        "if self.kernel.may_run(vp) && vp.has_ready() && self.idle.is_empty() {\n                break;",
    ),
    (
        "add",
        WAIT,
        "State::Idle if self.grant_idle(vp, word) => return true,",
        "State::Idle if word.owner().thread().is_some() && self.grant_idle(vp, word) => return true,",
    ),
    (
        "idle",
        WAIT,
        "if self.kernel.now().wrapping_sub(began) >= spell {",
        "if self.kernel.now().wrapping_sub(began) >= spell.max(1 << 40) {",
    ),
    (
        "need",
        PASSAGE,
        "let rung = !self.idle.is_empty() && self.ring(vp.index());",
        "let rung = false;",
    ),
    (
        "resume",
        PASSAGE,
        "if self.grant_displaced(vp) {",
        "if vp.has_ready() && self.grant_displaced(vp) {",
    ),
    (
        "recycle",
        SPARES,
        "self.take_pooled(vp)\n            .or_else(|| self.spawn_activation(vp, false))",
        "self.spawn_activation(vp, false)",
    ),
    // A thread whose processor was taken waits until it comes back.
    ("warning", UPCALL, "self.fetch_stranded(vp);", ""),
    (
        "exhaustion",
        SPARES,
        "if self.kernel.spawn(activation, sentinel).is_err() {",
        "if self.kernel.spawn(activation, sentinel).is_err() && sentinel {",
    ),
];

#[test]
#[ignore = "builds the workspace for each mutant: minutes"]
fn each_scenario_catches_its_mutant() {
    let room = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let only = std::env::var("UPCALL_TEST_MUTANT").ok();
    let copy = room.join("source");
    fs::create_dir_all(&copy).expect("the scratch directory is writable");
    for name in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"] {
        fs::copy(root.join(name), copy.join(name)).expect("a file of the workspace");
    }
    for name in ["crates", "tests"] {
        copy_tree(&root.join(name), &copy.join(name));
    }
    let bench = Bench {
        target: room.join("target"),
        copy,
    };
    let mut missed = Vec::new();
    for mutant in MUTANTS {
        let scenario = mutant.0;
        if only.as_deref().is_some_and(|only| only != scenario) {
            continue;
        }
        let caught = bench.catches(mutant);
        eprintln!("{scenario}: {}", if caught { "caught" } else { "MISSED" });
        if !caught {
            missed.push(scenario);
        }
    }
    assert!(missed.is_empty(), "missed by {missed:?}");
}

struct Bench {
    copy: PathBuf,
    target: PathBuf,
}

impl Bench {
    fn catches(&self, &(scenario, file, text, instead): &Mutant) -> bool {
        let path = self.copy.join(file);
        let sound = fs::read_to_string(&path).expect("a source");
        let times = sound.matches(text).count();
        assert_eq!(times, 1, "{scenario}: in {file}, so often: {text}");

        fs::write(&path, sound.replace(text, instead)).expect("a source can be written");
        let built = self.cargo(&["--no-run"]);
        assert!(built, "{scenario}: its mutant does not compile");
        let passes = self.cargo(&["--", &format!("{scenario}::")]);
        fs::write(&path, sound).expect("a source can be written");
        !passes
    }

    fn cargo(&self, more: &[&str]) -> bool {
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(&self.copy)
            .args([
                "test",
                "--quiet",
                "-p",
                "upcall-conformance",
                "--test",
                "sim",
            ])
            .args(more)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("cargo can be started")
            .success()
    }
}

/// Copies what differs, so that nothing is built again that need not.
fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the scratch directory is writable");
    for entry in fs::read_dir(from).expect("a directory of the workspace") {
        let path = entry.expect("it is readable").path();
        let place = to.join(path.file_name().expect("it has a name"));
        if path.is_dir() {
            copy_tree(&path, &place);
        } else {
            let bytes = fs::read(&path).expect("a file of the workspace");
            if fs::read(&place).ok().as_ref() != Some(&bytes) {
                fs::write(&place, bytes).expect("the scratch directory is writable");
            }
        }
    }
}
