//! The peers from packages of the distribution: each that can be built here answers each of its
//! workloads. One that is not installed is skipped aloud; that is found out here in another way than
//! by the harness, so that a peer that does not build any more is no skipped test.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use common::Scratch;
use upcall_bench::guarded::{Trust, Way};
use upcall_bench::{BenchArgs, RuntimeName};

const FORKS: &[&str] = &[
    "fib_30",
    "fork_batch",
    "null_fork",
    "sumtime_100000",
    "sumtime_2000",
];

/// What those have besides that join two halves.
const JOINS: &[&str] = &["fib_30_join", "join_null", "sumtime_100000_join"];

/// What those have besides whose threads can wait for one another.
const WAITS: &[&str] = &[
    "blocked_create",
    "blocked_rss",
    "mutex_64",
    "semaphore",
    "signal_wait",
    "yield",
];

/// What those have besides whose threads can wait for descriptors.
const DESCRIPTORS: &[&str] = &["http", "idle_connections", "pipe_exchange"];

/// Runs `workloads`, all if there are none, for a moment on `runtime` alone. Returns its records.
fn run(runtime: RuntimeName, workloads: &[&str], workers: usize) -> Vec<serde_json::Value> {
    // Not the shared temporary directory: nothing is built or executed there.
    let scratch = Scratch::new(&format!("{}-{workers}", runtime.as_str()));
    let (fine, records) = common::records(&BenchArgs {
        workers: Some(workers),
        ..common::quick(&scratch, workloads, &[runtime])
    });
    assert!(fine, "a program failed; see above");
    records
}

/// Checks that `runtime` has figures of these workloads, and of no others.
fn answers(runtime: RuntimeName, workloads: &[&[&str]]) {
    // One of them has one worker.
    let records = run(runtime, &[], 1);
    let workloads = workloads.iter().copied().flatten().copied();
    let wrk = is_there("wrk");
    let expected: BTreeSet<_> = workloads.filter(|name| *name != "http" || wrk).collect();
    let names = records.iter().map(|record| &record["workload"]);
    let found: BTreeSet<_> = names.filter_map(|name| name.as_str()).collect();
    assert_eq!(found, expected);
    for record in &records {
        // Memory of a few threads may have been there already.
        let positive = record["min"].as_f64().is_some_and(|min| min > 0.0);
        assert!(positive || record["unit"] == "bytes", "{record}");
        let version = record["version"].as_str();
        let number = version.is_some_and(|version| version.contains(|c: char| c.is_ascii_digit()));
        assert!(number, "{record}");
    }
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// Whether programs are built in the directory of these tests: not where others can write.
fn may_build() -> bool {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let guarded = Trust::own().guarded(place, Way::OfBuilds);
    if let Err(why) = &guarded {
        eprintln!("SKIPPED: {why}");
    }
    guarded.is_ok()
}

/// Whether a program can be built with this header and library.
fn is_installed(header: &str, library: &str) -> bool {
    if !may_build() {
        return false;
    }
    let script =
        r#"echo 'int main() {}' | c++ -std=c++17 -include "$0" -x c++ - "-l$1" -o /dev/null"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, header, library]);
    let output = command.output().expect("sh");
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        eprintln!("SKIPPED: no program can be built with {header}: {said}");
    }
    output.status.success()
}

#[test]
fn one_tbb_forks() {
    if is_installed("oneapi/tbb/task_group.h", "tbb") {
        answers(RuntimeName::Tbb, &[FORKS, JOINS]);
    }
}

#[test]
fn boost_fiber_waits() {
    if is_installed("boost/fiber/fiber.hpp", "boost_fiber") {
        answers(RuntimeName::Boost, &[FORKS, WAITS]);
    }
}

#[test]
fn state_threads_have_sockets() {
    if is_installed("st.h", "st") {
        answers(RuntimeName::St, &[FORKS, WAITS, DESCRIPTORS]);
    }
}

#[test]
fn java_has_sockets() {
    let newest = r#"for javac in "$JAVA_HOME/bin/javac" javac /usr/lib/jvm/*/bin/javac; do
        "$javac" -version; done 2>/dev/null | sed -n 's/^javac \([0-9]*\).*/\1/p' | sort -n | tail -1"#;
    let output = Command::new("sh").args(["-c", newest]).output();
    let newest = String::from_utf8(output.expect("sh").stdout).expect("text");
    if newest.trim().parse().unwrap_or(0) < 21 {
        eprintln!("SKIPPED: there is no JDK of version 21 or later");
        return;
    }
    if !may_build() {
        return;
    }
    answers(RuntimeName::Java, &[FORKS, WAITS, DESCRIPTORS]);
}

#[test]
fn work_on_two_processors_is_stolen_or_declined() {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() == 1) {
        eprintln!("SKIPPED: there is one processor");
        return;
    }
    let workloads = ["mutex_64", "sumtime_2000"];
    if is_installed("boost/fiber/fiber.hpp", "boost_fiber") {
        assert_eq!(run(RuntimeName::Boost, &workloads, 2).len(), 3);
    }
    if is_installed("st.h", "st") {
        assert_eq!(run(RuntimeName::St, &workloads, 2).len(), 0);
    }
}
