//! Control groups (cgroups(7)) that leave a program one processor: by a quota of processor time, or by a set
//! of processors. Skipped if groups cannot be made, which as a rule only root can.

use crate::{case, real_on_two};
use program_tests::group::{Group, ROOT};
use program_tests::provision;
use std::fs;
use std::io;

fn blocks_and_waits(name: &str, group: io::Result<Group>) {
    let group = match group {
        Ok(group) => group,
        Err(error) => {
            provision::skip(name, &format!("no control group can be made: {error}"));
            return;
        }
    };
    for source in [
        "sleep_many.c",
        "semaphores.c",
        "crowded_blocks.c",
        "spin_wait.c",
    ] {
        let case = case(&format!("{name}_{}", source.trim_end_matches(".c")));
        let Some(path) = case.compile(source) else {
            return;
        };
        case.verdicts(&group.enter(&path));
    }
}

#[test]
fn a_quota_leaves_one_processor() {
    let period = ("cpu.cfs_period_us", "20000");
    let group = Group::new(
        "cpu",
        &[period, ("cpu.cfs_quota_us", "20000")],
        &[("cpu.max", "20000 20000")],
    );
    blocks_and_waits("a_quota_leaves_one_processor", group);
}

#[test]
fn a_set_leaves_one_processor() {
    let memory = fs::read_to_string(format!("{ROOT}/cpuset/cpuset.mems")).unwrap_or_default();
    let group = Group::new(
        "cpuset",
        &[("cpuset.mems", memory.trim()), ("cpuset.cpus", "0")],
        &[("cpuset.cpus", "0")],
    );
    blocks_and_waits("a_set_leaves_one_processor", group);
}

/// A program that goes on with fewer virtual processors uses as many as its quota comes to, also when that changes.
#[test]
fn virtual_processors_follow_a_quota() {
    let name = "virtual_processors_follow_a_quota";
    let Some((case, path)) = real_on_two(name, "quota_followed.c") else {
        return;
    };
    let first = [
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "100000"),
    ];
    let group = match Group::new("cpu", &first, &[("cpu.max", "100000 100000")]) {
        Ok(group) => group,
        Err(error) => {
            provision::skip(name, &format!("no control group can be made: {error}"));
            return;
        }
    };
    let file = |name| group.directory().join(name);
    let (quota, lifted) = match file("cpu.max").exists() {
        true => (file("cpu.max"), "max 100000"),
        false => (file("cpu.cfs_quota_us"), "-1"),
    };
    let program = group
        .enter(&path)
        .env("UPCALL_TEST_QUOTA", quota)
        .env("UPCALL_TEST_LIFTED", lifted)
        .env("UPCALL_GANG", "0");
    let outcome = case.run_launched(&program, &["-p1..2", "--stats"]);
    let fine = outcome.status.success() && outcome.stdout == b"ok quota_followed\n";
    assert!(fine, "{}\n{}", outcome.ending(), outcome.talk());
    assert_ne!(outcome.counted("upcalls: processor taken"), 0);
}
