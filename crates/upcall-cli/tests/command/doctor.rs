//! `upcall doctor` and the other commands that only tell.

use std::process::Output;

use crate::common::{stderr, stdout, upcall};
use serde_json::Value;

fn told(words: &[&str]) -> Output {
    upcall().args(words).output().expect("upcall starts")
}

#[test]
fn the_report_is_one_object_with_a_version() {
    let done = told(&["doctor", "--json"]);
    let text = stdout(&done);
    assert_eq!(text.lines().count(), 1);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["v"], 1);
    let auto = &report["auto"];
    assert_eq!(done.status.code(), Some(i32::from(auto.is_null())));
    for list in ["backends", "features"] {
        let entries = report[list].as_array().expect("a list");
        assert!(!entries.is_empty());
        for entry in entries {
            assert!(entry["name"].is_string() && entry["evidence"].is_string());
            // What does not work says what is used instead and what would change it.
            let works = entry["works"].as_bool().expect("a verdict");
            assert_eq!(entry["remedy"].is_string(), !works, "{entry}");
            assert_eq!(entry["without"].is_string(), !works, "{entry}");
        }
    }
    assert!(
        !report["limits"]["processors_allowed"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
}

#[test]
fn the_table_names_every_feature_of_the_report() {
    let table = stdout(&told(&["doctor"]));
    let report: Value = serde_json::from_str(&stdout(&told(&["doctor", "--json"]))).expect("JSON");
    for list in ["backends", "features"] {
        for entry in report[list].as_array().expect("a list") {
            let name = entry["name"].as_str().expect("a name");
            assert!(table.contains(name), "{name}");
        }
    }
    assert!(!table.contains('\x1b'), "no colour outside a terminal");
}

#[test]
fn one_feature_answers_by_exit_status() {
    let done = told(&["doctor", "sched_ext", "-q"]);
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(
        (stdout(&done), stderr(&done)),
        (String::new(), String::new())
    );

    let done = told(&["doctor", "glibc", "-q"]);
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(
        (stdout(&done), stderr(&done)),
        (String::new(), String::new())
    );

    let done = told(&["doctor", "glibc", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
    assert_eq!(
        (&report["v"], &report["name"]),
        (&1.into(), &"glibc".into())
    );
}

#[test]
fn an_unknown_feature_is_our_error_and_names_the_known() {
    let done = told(&["doctor", "telepathy", "-q"]);
    assert_eq!(done.status.code(), Some(125));
    assert_eq!(stderr(&done).lines().count(), 4);
    assert!(stderr(&done).contains("perf-switch-ring"));
}

#[test]
fn an_affinity_mask_is_seen() {
    let done = std::process::Command::new("taskset")
        .args(["-c", "0", env!("CARGO_BIN_EXE_upcall"), "doctor", "--json"])
        .output();
    let Ok(done) = done else {
        println!("skipped: no taskset here");
        return;
    };
    if !stderr(&done).is_empty() {
        println!(
            "skipped: processor 0 is not allowed here: {}",
            stderr(&done)
        );
        return;
    }
    let report: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
    assert_eq!(
        report["limits"]["processors_allowed"],
        serde_json::json!([0])
    );
    assert_eq!(report["auto"], "standby");
}

#[test]
fn help_and_version_are_data() {
    let version = told(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert_eq!(
        stdout(&version),
        concat!("upcall ", env!("CARGO_PKG_VERSION"), "\n")
    );
    let help = told(&["help", "run"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(stdout(&help).contains("125"));
    let nothing = told(&[]);
    assert_eq!(nothing.status.code(), Some(125));
    assert!(stdout(&nothing).is_empty());
}

#[test]
fn pages_and_completions_are_printed() {
    assert!(stdout(&told(&["man"])).contains(".TH upcall 1"));
    assert!(stdout(&told(&["man", "run"])).contains(".TH upcall-run 1"));
    assert_eq!(told(&["man", "dance"]).status.code(), Some(125));
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            stdout(&told(&["completions", shell])).contains("doctor"),
            "{shell}"
        );
    }
    assert_eq!(told(&["completions", "tcsh"]).status.code(), Some(125));
}
