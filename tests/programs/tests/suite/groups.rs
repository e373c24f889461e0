//! Control groups that leave a program one processor: a quota of processor time, and a set of
//! processors. Skipped where groups cannot be made (cgroups(7); as root, as a rule).

use crate::case;
use program_tests::program::Program;
use program_tests::{guest, provision};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// A control group of one test, removed at the end.
struct Group {
    directory: PathBuf,
    /// The file into which a process writes its id to enter.
    entry: PathBuf,
}

impl Group {
    /// A new group under `controller`, with these files written.
    fn new(controller: &str, first: &[(&str, &str)], second: &[(&str, &str)]) -> io::Result<Self> {
        let root = Path::new(ROOT);
        let name = format!("upcall-test-{}-{controller}", std::process::id());
        let one_hierarchy = root.join("cgroup.controllers").exists();
        let (directory, entry, settings) = if one_hierarchy {
            fs::write(
                root.join("cgroup.subtree_control"),
                format!("+{controller}"),
            )?;
            (root.join(name), "cgroup.procs", second)
        } else {
            (root.join(controller).join(name), "tasks", first)
        };
        fs::create_dir(&directory)?;
        let group = Group {
            entry: directory.join(entry),
            directory,
        };
        for (file, value) in settings {
            fs::write(group.directory.join(file), value)?;
        }
        Ok(group)
    }

    /// `path`, started inside of the group.
    fn enter(&self, path: &Path) -> Program {
        Program::new("/bin/sh")
            .args(["-c", "echo $$ > \"$1\" && exec \"$2\"", "sh"])
            .arg(&self.entry)
            .arg(path)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails while a process that hung is in it, and that is reported already.
        let _ = fs::remove_dir(&self.directory);
    }
}

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
        let Some(path) = guest::compile(case.name(), case.scratch(), source) else {
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
