//! Any bytes as what procfs, sysfs and control groups say.
#![no_main]

#[allow(dead_code, reason = "not all of it is asked")]
#[path = "../../crates/upcall-linux/src/probe/cgroup.rs"]
mod cgroup;

use cgroup::Groups;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    upcall_linux::fuzzing::files(bytes);
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let mut parts = text.splitn(3, '\0');
    let mut part = || parts.next().unwrap_or("");
    let (membership, mounts, file) = (part(), part(), part());
    let groups = Groups {
        membership,
        mounts,
        read: &|_| Some(file.to_owned()),
    };
    assert!(
        groups
            .cpu_quota()
            .is_none_or(|quota| quota.processors > 0.0)
    );
    groups.pids_max();
    groups.shows("cpu");
});
