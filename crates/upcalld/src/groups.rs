//! The groups in which the kernel's scheduler compares weights: control groups with the controller `cpu`, and within the root of these
//! autogroups, one for each session.
//!
//! A group is named by a text that two processes have in common if, and only if, they are in the same one. Where the files of control
//! groups cannot be found, it is the whole path of the process: groups are told apart then that are none of the scheduler's.

use std::fs;
use std::path::Path;

/// Where control groups are.
const MOUNTED: &str = "/sys/fs/cgroup";
/// Where it is in version 2, beside hierarchies of version 1.
const UNIFIED: &str = "/sys/fs/cgroup/unified";

/// The group of this process; `None`: it has ended.
pub fn of(pid: i32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let group = path_of(&groups, |path| {
        [MOUNTED, UNIFIED]
            .iter()
            .any(|root| Path::new(&format!("{root}{path}/cpu.weight")).exists())
    });
    if group != "/" {
        return Some(group);
    }
    let setting = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    if setting.is_ok_and(|text| text.trim() == "1")
        && let Ok(text) = fs::read_to_string(format!("/proc/{pid}/autogroup"))
    {
        return Some(text.split_whitespace().next().unwrap_or("/").into());
    }
    Some(group)
}

/// The path of the group of `cpu` in the lines of `/proc/PID/cgroup`. `is_weighed` says if a group of version 2 has a weight.
fn path_of(lines: &str, is_weighed: impl Fn(&str) -> bool) -> String {
    let mut unified = "/";
    for line in lines.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if names.split(',').any(|name| name == "cpu") {
            return path.into();
        }
        if (number, names) == ("0", "") {
            unified = path;
        }
    }
    let mut group = unified;
    loop {
        if group.is_empty() || group == "/" {
            return "/".into();
        }
        if is_weighed(group) {
            return group.into();
        }
        group = &group[..group.rfind('/').unwrap_or(0)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_version_1_it_is_that_of_the_controller() {
        let lines = "9:name=systemd:/a\n4:memory:/b\n2:cpu,cpuacct:/c/d\n0::/e\n";
        assert_eq!(path_of(lines, |_| panic!("not asked")), "/c/d");
    }

    #[test]
    fn in_version_2_it_is_the_nearest_that_has_a_weight() {
        let lines = "0::/user.slice/user-1000.slice/session-1.scope\n";
        let group = |weighed: &'static str| path_of(lines, |path| path == weighed);
        assert_eq!(
            group("/user.slice/user-1000.slice"),
            "/user.slice/user-1000.slice"
        );
        assert_eq!(group("/user.slice"), "/user.slice");
        assert_eq!(group("/system.slice"), "/");
    }

    #[test]
    fn nonsense_is_the_root() {
        for lines in ["", "0::", "x", "0::/\n", "::"] {
            assert_eq!(path_of(lines, |_| false), "/", "{lines}");
        }
    }

    #[test]
    fn a_child_is_in_its_parents_group() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("it starts");
        let both = [std::process::id(), child.id()].map(|pid| of(pid as i32));
        let _ = child.kill();
        let _ = child.wait();
        assert!(both[0].is_some());
        assert_eq!(both[0], both[1]);
    }
}
