//! Control groups (cgroups(7)) that leave a program one processor: by a quota of processor time, or by a set
//! of processors. Skipped if groups cannot be made, which as a rule only root can.

use crate::case;
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
