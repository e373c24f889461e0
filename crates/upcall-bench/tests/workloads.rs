//! Every workload runs, by itself and through the harness, and reports plausible figures.
//!
//! The runs are as short as they can be and nothing here is a time limit: how fast a workload is
//! depends on the machine, that it reports what it should does not.

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::{PROGRAM, Scratch, records as lines};
use upcall_bench::{BenchArgs, RuntimeName};

const CRATE_PROGRAM: &str = env!("CARGO_BIN_EXE_upcall-workload-crate");

fn workload(program: &str, words: &[&str]) -> Output {
    Command::new(program)
        .args(words)
        .output()
        .expect("the workload program starts")
}

/// The figures of one run, or nothing, aloud, if this machine cannot run it.
fn figures(words: &[&str]) -> Option<BTreeMap<String, Vec<f64>>> {
    figures_of(PROGRAM, words)
}

fn figures_of(program: &str, words: &[&str]) -> Option<BTreeMap<String, Vec<f64>>> {
    let output = workload(program, words);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(i32::from(upcall_bench::workload::SKIP)) {
        eprintln!("SKIPPED {words:?}: {stderr}");
        return None;
    }
    assert!(
        output.status.success(),
        "{words:?}: {}: {stderr}",
        output.status
    );
    let stdout = String::from_utf8(output.stdout).expect("text");
    let lines = stdout
        .strip_suffix("done\n")
        .expect("the last line is `done`");
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in lines.lines() {
        let (series, value) = line.split_once(' ').expect("a series and a value");
        found
            .entry(series.into())
            .or_default()
            .push(value.parse().expect("a number"));
    }
    Some(found)
}

fn check_samples(words: &[&str], count: usize) {
    if let Some(found) = figures(words) {
        assert_eq!(found["ns"].len(), count, "{words:?}");
        assert!(
            found["ns"].iter().all(|ns| *ns > 0.0),
            "{words:?}: {found:?}"
        );
    }
}

#[test]
fn starts_of_programs() {
    for what in ["what=nothing", "what=thread"] {
        check_samples(&["start", what, "samples=2"], 2);
    }
}

#[test]
fn costs_of_operations() {
    for name in [
        "create_join",
        "semaphore",
        "signal_wait",
        "yield",
        "pipe_exchange",
    ] {
        check_samples(&[name, "samples=3", "operations=50"], 3);
    }
}

/// What the N-body program reports.
const NBODY: &[&str] = &[
    "begin",
    "end",
    "lookups",
    "misses",
    "ns",
    "sequential",
    "threads",
];

/// What needs nothing but threads, with the parameters that make it short, and its series.
const COMMON: &[(&str, &[&str], &[&str])] = &[
    ("blocked", &["threads=50"], &["ns", "bytes"]),
    ("computation", &["samples=3", "n=20"], &["ns"]),
    ("counted", &["operation=critical"], &["operations"]),
    ("counted", &["operation=flagged_fork"], &["operations"]),
    ("counted", &["operation=flagged_wait"], &["operations"]),
    ("counted", &["operation=mutex"], &["operations"]),
    ("counted", &["operation=signal_wait"], &["operations"]),
    ("counted", &["operation=yield"], &["operations"]),
    (
        "critical_sections",
        &["samples=3", "operations=50", "marks=1"],
        &["Mops/s"],
    ),
    ("fib", &["samples=3", "n=10"], &["ns"]),
    ("fork_batch", &["samples=3", "batches=1"], &["ns"]),
    ("gauss", &["samples=3", "n=30"], &["ns"]),
    ("interruption", &["how=return", "samples=3"], &["ns"]),
    ("interruption", &["how=signal", "samples=3"], &["ns"]),
    ("interruption", &["how=upcall", "samples=3"], &["ns"]),
    (
        "kernel_signal_wait",
        &["between=threads", "samples=3", "operations=50"],
        &["ns"],
    ),
    (
        "kernel_signal_wait",
        &["between=processes", "samples=3", "operations=50"],
        &["ns"],
    ),
    ("kernel_trap", &["samples=3", "operations=50"], &["ns"]),
    ("mutex_64", &["samples=3", "operations=50"], &["Mops/s"]),
    (
        "nbody",
        &["bodies=300", "steps=2", "memory=60", "miss_us=500"],
        NBODY,
    ),
    ("null_fork", &["samples=3", "operations=50"], &["ns"]),
    ("parallel_sort", &["samples=3", "n=2000"], &["ns"]),
    ("pipe_exchange", &["samples=3", "operations=50"], &["ns"]),
    ("procedure_call", &["samples=3", "operations=5000"], &["ns"]),
    ("process_fork", &["samples=3", "operations=3"], &["ns"]),
    (
        "section_flags",
        &[
            "operation=null_fork",
            "flags=1",
            "samples=3",
            "operations=50",
        ],
        &["ns"],
    ),
    (
        "section_flags",
        &[
            "operation=signal_wait",
            "flags=1",
            "samples=3",
            "operations=50",
        ],
        &["ns"],
    ),
    ("semaphore", &["samples=3", "operations=50"], &["ns"]),
    ("signal_wait", &["samples=3", "operations=50"], &["ns"]),
    ("sumtime", &["samples=3", "n=100"], &["ns"]),
    ("yield", &["samples=3", "operations=50"], &["ns"]),
];

#[test]
fn both_packages_of_threads_have_the_common_workloads() {
    let mut runs = vec![(PROGRAM, vec![])];
    if cfg!(target_arch = "x86_64") {
        let crate_runs = ["workers=1", "workers=2"].map(|workers| (CRATE_PROGRAM, vec![workers]));
        runs.extend(crate_runs);
    }
    for (program, more) in &runs {
        for (name, params, series) in COMMON {
            let words = [&[*name], *params, more].concat();
            let found = figures_of(program, &words).expect("needs nothing special");
            let names: Vec<_> = found.keys().map(String::as_str).collect();
            assert_eq!(names.len(), series.len(), "{words:?}: {names:?}");
            let samples = if ["blocked", "counted", "nbody"].contains(name) {
                1
            } else {
                3
            };
            for one in *series {
                let values = &found[*one];
                assert_eq!(values.len(), samples, "{words:?}");
                assert!(values.iter().all(|value| *value > 0.0), "{words:?}");
            }
        }
    }
}

#[test]
fn threads_beyond_the_limit_are_declined_with_the_reason() {
    // More memory than any machine has; and more processes than this limit leaves a user.
    let words = ["blocked", "threads=1000000000000"];
    let output = workload(PROGRAM, &words);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{stderr}");
    assert!(stderr.contains("are available"), "{stderr}");
    let script = format!("ulimit -v 1000000 && exec {PROGRAM} blocked threads=10000");
    let output = workload("sh", &["-c", &script]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{stderr}");
    assert!(stderr.contains("not one thread more"), "{stderr}");
}

#[test]
fn a_ready_thread_computes_while_another_blocks() {
    for how in ["how=nanosleep", "how=nanosleep_raw", "how=pipe"] {
        let words = [
            "block_to_compute",
            how,
            "samples=3",
            "warm_up=1",
            "block_us=1000",
        ];
        check_samples(&words, 3);
    }
}

#[test]
fn a_cold_file_is_a_major_fault_or_declined() {
    let path = std::env::temp_dir().join(format!("upcall-cold-{}", std::process::id()));
    let path_word = format!("path={}", path.display());
    let words = [
        "block_to_compute",
        "how=file",
        "samples=3",
        "warm_up=1",
        &path_word,
    ];
    if let Some(found) = figures(&words) {
        assert!((1..=3).contains(&found["ns"].len()), "{found:?}");
    }
    std::fs::remove_file(path).expect("the cold file was made");
}

#[test]
fn a_woken_thread_runs() {
    for how in ["how=pipe", "how=flock", "how=fault"] {
        for equals in ["equals=points", "equals=compute"] {
            check_samples(
                &["unblock_to_run", how, equals, "samples=5", "warm_up=1"],
                5,
            );
        }
    }
}

#[test]
fn a_woken_thread_runs_beside_others() {
    for how in ["how=pipe", "how=flock", "how=fault"] {
        for equals in ["equals=points", "equals=compute"] {
            let words = [
                "unblock_to_run",
                how,
                equals,
                "others=3",
                "samples=3",
                "warm_up=1",
            ];
            check_samples(&words, 3);
        }
    }
}

/// Runs `reactivity` at one end of a socket, and `events` at the other.
fn reactivity(program: &str, words: &[&str], events: impl FnOnce(UnixStream)) -> Output {
    let (ours, theirs) = UnixStream::pair().expect("two sockets");
    let started = Command::new(program)
        .arg("reactivity")
        .args(words)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    events(ours);
    let ended = started.expect("the workload program").wait_with_output();
    ended.expect("its output")
}

#[test]
fn each_event_from_another_process_is_a_figure() {
    let native = |ours| {
        let mut events = Command::new(PROGRAM);
        events.arg("events").stdin(OwnedFd::from(ours));
        let status = events.stdout(Stdio::null()).status();
        assert!(status.expect("the process of events").success());
    };
    for load in ["load=0", "load=50", "load=100"] {
        let words = [load, "threads=3", "samples=5", "limit_ms=60000"];
        let mut programs = vec![PROGRAM];
        if cfg!(target_arch = "x86_64") {
            programs.push(CRATE_PROGRAM);
        }
        for program in programs {
            let output = reactivity(program, &words, native);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program}: {words:?}: {said}");
            let found = String::from_utf8(output.stdout).expect("text");
            let figures = found.lines().filter(|line| line.starts_with("ns "));
            assert!(figures.count() >= 5, "{program}: {words:?}: {found}");
        }
    }
}

#[test]
fn an_event_that_is_not_the_next_one_is_a_failure() {
    let output = reactivity(PROGRAM, &["threads=1", "load=0"], |mut ours| {
        ours.read_exact(&mut [0]).expect("it waits");
        let event = [1_u64, 1].map(u64::to_le_bytes).concat();
        ours.write_all(&event).expect("it reads");
    });
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("in place of event 0"), "{said}");
}

#[test]
fn without_a_process_of_events_it_says_so() {
    let output = Command::new(PROGRAM)
        .args(["reactivity", "threads=1"])
        .stdin(Stdio::null())
        .output()
        .expect("the workload program");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("a socket to `upcall-workload events`"),
        "{said}"
    );
}

#[test]
fn blockers_block_and_work_is_done() {
    for blockers in ["blockers=0", "blockers=3"] {
        let words = [
            "blockers",
            blockers,
            "duration_ms=40",
            "warm_up_ms=5",
            "block_us=1000",
        ];
        let found = figures(&words).expect("needs nothing special");
        assert!(found["work"][0] > 0.0);
        assert_eq!(
            found["blocks"][0] > 0.0,
            blockers == "blockers=3",
            "{found:?}"
        );
    }
}

#[test]
fn fixed_work_is_timed_for_each_thread() {
    let words = ["never_blocks", "slices=2", "threads=2", "iterations=100000"];
    let found = figures(&words).expect("needs nothing special");
    assert_eq!((found["wall"].len(), found["cpu"].len()), (4, 1));
    assert!(found.values().flatten().all(|value| *value > 0.0));
}

#[test]
fn share_reports_the_processor_time_that_it_got() {
    if let Some(found) = figures(&["share", "threads=2", "duration_ms=50"]) {
        assert_eq!(found["cpu"].len(), 1);
        assert!(found["cpu"][0] > 0.0, "{found:?}");
    }
}

#[test]
fn copies_that_spin_tell_begin_and_end() {
    for name in ["pair_spin", "pair_ticket", "pair_barrier"] {
        let found = figures(&[name, "operations=20"]).expect("needs nothing special");
        assert!(found["begin"][0] < found["end"][0]);
    }
    for program in [PROGRAM, CRATE_PROGRAM] {
        let words = ["critical_sections", "gate=1", "threads=2", "operations=20"];
        // At the end of its input it was not let go.
        let output = workload(program, &words);
        assert!(!output.status.success(), "{output:?}");
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the workload program starts");
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(b"x")
            .expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8(output.stdout).expect("text");
        let series: Vec<_> = text
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(series, ["begin", "end", "done"]);
    }
}

#[test]
fn each_round_of_a_crowded_barrier_is_a_figure() {
    let found =
        figures(&["spin_barrier", "threads=3", "samples=4"]).expect("needs nothing special");
    assert_eq!(found["ns"].len(), 4);
}

#[test]
fn all_that_pairs_with_rings_do_is_a_figure() {
    let found = figures(&["spin_ring", "pairs=2", "samples=3", "operations=50"])
        .expect("needs nothing special");
    assert_eq!(found["ns"].len(), 3);
}

#[test]
fn bad_command_lines_are_refused_with_a_reason() {
    for (words, reason) in [
        (vec!["nothing"], "create_join"),
        (vec![], "create_join"),
        (
            vec!["yield", "operation=3", "operations=3", "samples=1"],
            "no parameter operation",
        ),
        (vec!["yield", "operations=x"], "not a number"),
        (vec!["block_to_compute", "how=dance"], "how=dance"),
        (vec!["unblock_to_run", "equals=none"], "equals=none"),
        (vec!["interruption", "how=dance"], "how=dance"),
        (vec!["kernel_signal_wait", "between=us"], "between=us"),
        (vec!["reactivity", "load=101"], "load=101"),
    ] {
        let output = workload(PROGRAM, &words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(reason), "{words:?}: {stderr}");
    }
}

/// A command that stands where `upcall` will: `run -p N -- PROGRAM ...` runs PROGRAM.
fn stand_in(scratch: &Scratch, before: &str) -> PathBuf {
    let path = scratch.0.join("upcall");
    // As the harness calls it, and as a user does.
    let check = r#"case "$1 $2 $4" in "run -p --") shift 4;; "run /"*) shift;;
        "trace -o --") touch "$3"; shift 4;;
        "trace -o -p") touch "$3"; trap 'exit 0' INT; while :; do sleep 0.05; done;; *) exit 125;; esac"#;
    let script = format!("#!/bin/sh\n{check}\n{before}\nexec \"$@\"\n");
    std::fs::write(&path, script).expect("a script");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("executable");
    path
}

fn quick(scratch: &Scratch, workloads: &[&str], runtime: &[RuntimeName]) -> BenchArgs {
    BenchArgs {
        upcall: Some(stand_in(scratch, "")),
        cache: Some(scratch.0.join("cache")),
        ..common::quick(scratch, workloads, runtime)
    }
}

#[test]
fn the_harness_runs_every_workload_and_prints_a_line_for_each_runtime() {
    let scratch = Scratch::new("all");
    let all = [RuntimeName::Upcall, RuntimeName::Crate, RuntimeName::Nptl];
    let (fine, lines) = lines(&quick(&scratch, &[], &all));
    assert!(fine, "a program failed; see above");
    for line in &lines {
        assert_eq!(line["v"], 1);
        assert!(line["n"].as_u64().is_some_and(|n| n > 0), "{line}");
        assert!(
            line["min"].is_number() && line["median"].is_number(),
            "{line}"
        );
    }
    // What needs neither two processors, a compiler nor userfaultfd is there everywhere.
    for name in [
        "block_to_compute",
        "unblock_to_run",
        "never_blocks",
        "create_join",
        "semaphore",
    ] {
        for runtime in ["upcall", "nptl"] {
            let found = |line: &&serde_json::Value| {
                line["workload"] == name && line["runtime"] == runtime && line["workers"] == 1
            };
            assert!(lines.iter().any(|line| found(&line)), "{name} on {runtime}");
        }
    }
    // One and two processors, and other units.
    for (name, variant, unit) in [
        ("null_fork", "", "ns"),
        ("fib_30", "1", "ns"),
        ("blocked_rss", "30000", "bytes"),
        ("nbody_speedup", "1", "ratio"),
    ] {
        for runtime in ["upcall", "crate", "nptl"] {
            let found = |line: &&serde_json::Value| {
                line["workload"] == name
                    && line["variant"].as_str().unwrap_or_default() == variant
                    && line["runtime"] == runtime
                    && line["unit"] == unit
            };
            assert!(lines.iter().any(|line| found(&line)), "{name} on {runtime}");
        }
    }
}

#[test]
fn the_go_peer_has_the_same_workloads() {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("SKIPPED: go is not installed");
        return;
    }
    let scratch = Scratch::new("go");
    let names = [
        "block_to_compute",
        "fault_to_compute",
        "unblock_to_run",
        "create_join",
    ];
    let more = ["semaphore", "signal_wait", "yield", "pipe_exchange"];
    let forks = [
        "null_fork",
        "fork_batch",
        "fib_30",
        "sumtime_2000",
        "blocked_rss",
        "mutex_64",
    ];
    let all = [&names[..], &more[..], &forks[..]].concat();
    let two_processors = |name: &str| name == "mutex_64";
    let one_processor = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
    let (fine, lines) = lines(&quick(&scratch, &all, &[RuntimeName::Go]));
    assert!(fine, "a program failed; see above");
    let not_here = |name: &str| one_processor && two_processors(name);
    let expected = |name: &&&str| **name != "fault_to_compute" && !not_here(name);
    for name in all.iter().filter(expected) {
        let line = lines.iter().find(|line| line["workload"] == *name);
        let line = line.unwrap_or_else(|| panic!("{name} is missing"));
        assert!(
            line["version"]
                .as_str()
                .is_some_and(|version| version.starts_with("go"))
        );
        assert!(line["min"].as_f64().is_some_and(|min| min > 0.0), "{line}");
    }
}

#[test]
fn another_build_is_measured_in_the_same_rounds() {
    let scratch = Scratch::new("before");
    let mut args = quick(&scratch, &["yield", "create_join"], &[RuntimeName::Upcall]);
    args.before = args.upcall.clone();
    let (fine, lines) = lines(&args);
    assert!(fine, "a program failed; see above");
    for name in ["yield", "create_join"] {
        let of = lines.iter().filter(|line| line["workload"] == name);
        let runtimes: Vec<_> = of.map(|line| line["runtime"].clone()).collect();
        assert_eq!(runtimes, ["upcall", "before"]);
    }
}

#[test]
fn a_program_is_measured_without_a_timeline_and_with_one() {
    let scratch = Scratch::new("traced");
    let args = quick(
        &scratch,
        &["trace_cost/yield", "trace_cost/null_fork"],
        &[RuntimeName::Upcall],
    );
    let (fine, lines) = lines(&args);
    assert!(fine, "a program failed; see above");
    assert_eq!(lines.len(), 2);
    for line in lines {
        assert_eq!((&line["unit"], &line["n"]), (&"%".into(), &2.into()));
        assert!(
            line["min"].as_f64().is_some_and(|lost| lost < 100.0),
            "{line}"
        );
    }
    // Timelines are not kept.
    let left = std::fs::read_dir(scratch.0.join("cache")).expect("the cache");
    assert_eq!(left.count(), 0);
}

#[test]
fn a_failing_program_is_reported_and_fails_the_run() {
    let scratch = Scratch::new("failing");
    let mut args = quick(
        &scratch,
        &["yield"],
        &[RuntimeName::Upcall, RuntimeName::Nptl],
    );
    args.upcall = Some(stand_in(&scratch, "echo broken >&2; exit 9"));
    let (fine, lines) = lines(&args);
    assert!(!fine);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["runtime"], "nptl");
}

#[test]
fn results_are_kept_with_what_is_to_be_known_of_them() {
    let scratch = Scratch::new("kept");
    let both = [RuntimeName::Upcall, RuntimeName::Nptl];
    let path = scratch.0.join("more/results.jsonl");
    let mut args = quick(&scratch, &["semaphore", "yield"], &both);
    args.upcall = Some(stand_in(&scratch, "echo broken >&2; exit 9"));
    args.output = Some(path.clone());
    let (fine, printed) = lines(&args);
    assert!(!fine);
    let kept = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&path).expect("the results");
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("a JSON object"))
            .collect()
    };
    let all = kept();
    let records: Vec<_> = all
        .iter()
        .filter(|line| line.get("workload").is_some())
        .cloned()
        .collect();
    assert_eq!(
        records, printed,
        "a program that fails costs no other figure"
    );
    assert_eq!(all[0]["head"]["quick"], true);
    assert_eq!(
        all[0]["head"]["options"],
        serde_json::json!([
            "--runtime",
            "upcall,nptl",
            "--rounds",
            "1",
            "--quick",
            "--slice",
            "5000us"
        ])
    );
    let failed = all.iter().filter_map(|line| line.get("left_out"));
    let failed: Vec<_> = failed
        .map(|one| (&one["workload"], &one["failed"]))
        .collect();
    assert_eq!(failed.len(), 2);
    assert!(failed.iter().all(|one| one.1 == true), "{failed:?}");
    assert!(all.last().is_some_and(|last| last.get("end").is_some()));
    let text = std::fs::read_to_string(&path).expect("the results");
    assert!(!text.contains(scratch.0.to_str().expect("text")), "{text}");
    // Another run is added.
    let (count, _) = (all.len(), lines(&args));
    assert_eq!(kept().len(), 2 * count);
}

#[test]
fn a_place_that_takes_no_results_is_named() {
    let scratch = Scratch::new("not-kept");
    let place = |path: &str| BenchArgs {
        output: Some(path.into()),
        ..quick(&scratch, &["yield"], &[RuntimeName::Nptl])
    };
    for path in ["/proc/none/results.jsonl", "/dev/full"] {
        let problem = upcall_bench::run(&place(path), &mut Vec::new()).expect_err("no place");
        let text = problem.to_string();
        assert!(text.contains(path) && text.contains("try: "), "{text}");
    }
}

#[test]
fn check_fails_where_a_bound_does_not_hold() {
    let scratch = Scratch::new("check");
    // The stand-in is the native run, which cannot take a seventh of its own time.
    let mut args = quick(
        &scratch,
        &["signal_wait"],
        &[RuntimeName::Upcall, RuntimeName::Nptl],
    );
    args.check = true;
    let (fine, lines) = lines(&args);
    assert_eq!(lines[0]["holds"], false);
    assert!(!fine);
}

#[test]
fn what_cannot_be_had_is_a_problem_with_a_remedy() {
    let scratch = Scratch::new("problems");
    let native = [RuntimeName::Nptl];
    let fails = |change: &dyn Fn(&mut BenchArgs), evidence: &str| {
        let mut args = quick(&scratch, &["yield"], &native);
        change(&mut args);
        let problem = upcall_bench::run(&args, &mut Vec::new()).expect_err(evidence);
        assert!(problem.to_string().contains(evidence), "{problem}");
    };
    fails(&|args| args.workloads = vec!["yeild".into()], "pair_openmp");
    fails(&|args| args.workers = Some(0), "may use");
    fails(&|args| args.rounds = 0, "--rounds");
    fails(&|args| args.before = Some("/nowhere".into()), "--before");
    fails(&|args| args.check = true, "--runtime");
    fails(
        &|args| args.workload_program = Some("/no/such".into()),
        "/no/such",
    );
    fails(
        &|args| args.cache = Some("/proc/no/such".into()),
        "/proc/no/such",
    );
    let no_upcall = |args: &mut BenchArgs| {
        args.runtime = vec![RuntimeName::Upcall];
        args.upcall = Some("/no/such/upcall".into());
    };
    fails(&no_upcall, "/no/such/upcall");
}
