//! A place for files, and the shortest measurement that the harness makes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use upcall_bench::{BenchArgs, RuntimeName};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_upcall-workload");

/// A directory that goes away with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = place.join(format!("upcall-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn quick(scratch: &Scratch, workloads: &[&str], runtime: &[RuntimeName]) -> BenchArgs {
    BenchArgs {
        workloads: workloads.iter().map(|name| name.to_string()).collect(),
        runtime: runtime.to_vec(),
        workers: None,
        rounds: 1,
        json: true,
        output: None,
        check: false,
        counts: false,
        list: false,
        quick: true,
        all: false,
        brief: false,
        timeout: Duration::from_secs(60),
        slice: Duration::from_millis(5),
        upcall: None,
        before: None,
        workload_program: Some(PROGRAM.into()),
        cache: Some(scratch.0.clone()),
    }
}

/// Measures. Returns true if no program failed, and the records.
pub fn records(args: &BenchArgs) -> (bool, Vec<serde_json::Value>) {
    let mut out = Vec::new();
    let fine = upcall_bench::run(args, &mut out).unwrap_or_else(|problem| panic!("{problem}"));
    let text = String::from_utf8(out).expect("text");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object"));
    (fine, lines.collect())
}
