//! Instructions are counted, and a second count comes to what the first did: of locked ones and writes of the FS base,
//! exactly. How many an operation may take is held for a release's build: `upcall bench --counts --check`, in `.ci/run`.
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use upcall_bench::BenchArgs;

/// Counts by operation and unit, or nothing, aloud, where processes may not trace their children.
fn count() -> Option<BTreeMap<(String, String), f64>> {
    let args = BenchArgs {
        workloads: ["null_fork", "yield", "mutex", "critical"]
            .map(String::from)
            .to_vec(),
        runtime: Vec::new(),
        workers: None,
        rounds: 1,
        json: true,
        output: None,
        check: false,
        counts: true,
        list: false,
        quick: false,
        all: false,
        brief: false,
        timeout: Duration::from_secs(120),
        slice: Duration::from_millis(5),
        upcall: None,
        before: None,
        workload_program: Some(PathBuf::from(env!("CARGO_BIN_EXE_upcall-workload"))),
        cache: None,
    };
    let mut out = Vec::new();
    match upcall_bench::run(&args, &mut out) {
        Ok(fine) => assert!(fine, "a program failed; see above"),
        Err(problem) if problem.what.contains("cannot count") => {
            eprintln!("skipped: {problem}");
            return None;
        }
        Err(problem) => panic!("{problem}"),
    }
    let text = String::from_utf8(out).expect("text");
    let figure = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("a JSON object");
        let word = |key: &str| line[key].as_str().expect("a word").to_owned();
        let value = line["min"].as_f64().expect("a number");
        ((word("workload"), word("unit")), value)
    };
    Some(text.lines().map(figure).collect())
}

#[test]
fn a_second_count_comes_to_what_the_first_did() {
    let (Some(first), Some(second)) = (count(), count()) else {
        return;
    };
    assert_eq!(first.len(), 16, "{first:?}");
    for (key, was) in &first {
        let (operation, unit) = (key.0.as_str(), key.1.as_str());
        let now = second[key];
        match unit {
            "instructions" => {
                // Where no activation sits in the poller it is asked for at each switch, by functions that are not
                // inlined in this build: a tenth.
                assert!(
                    (now - was).abs() < was * 0.15,
                    "{operation}: {was} and {now}"
                );
                let least = match operation {
                    "mutex" | "critical" => 5.0,
                    _ => 50.0,
                };
                assert!(*was > least, "{operation} in {was} instructions");
            }
            // Of all operations: without one of ten, this is a tenth less.
            "locked" => {
                assert_eq!(now, *was, "{operation}: locked instructions");
                let has_none = matches!(operation, "critical" | "yield");
                assert_eq!(*was == 0.0, has_none, "{operation}: {was} locked");
            }
            // A switch to another thread and one back are two, a yield is one of them.
            "fs_writes" => {
                let expected = match operation {
                    "null_fork" => 2.0,
                    "yield" => 1.0,
                    _ => 0.0,
                };
                assert_eq!((*was, now), (expected, expected), "{operation}: FS writes");
            }
            // Nothing of this is done by the kernel.
            _ => assert_eq!((unit, *was, now), ("calls", 0.0, 0.0), "{operation}"),
        }
    }
}
