//! Control groups (cgroups(7)) that bound a program. As a rule only root can make them.

use crate::program::Program;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where control groups are.
pub const ROOT: &str = "/sys/fs/cgroup";

/// A control group of one test, removed at the end.
#[derive(Debug)]
pub struct Group {
    directory: PathBuf,
    /// The file into which a process writes its id to enter.
    entry: PathBuf,
}

impl Group {
    /// A new group under `controller`, with these files written: the first in the older hierarchies, one
    /// for each controller, the second in the one of version 2.
    ///
    /// # Errors
    ///
    /// When this user may not, or the controller is missing.
    pub fn new(
        controller: &str,
        first: &[(&str, &str)],
        second: &[(&str, &str)],
    ) -> io::Result<Self> {
        let root = Path::new(ROOT);
        // Tests of one process may have groups at once.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("upcall-test-{}-{controller}-{count}", std::process::id());
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
    pub fn enter(&self, path: &Path) -> Program {
        Program::new("/bin/sh")
            .args(["-c", "echo $$ > \"$1\" && exec \"$2\"", "sh"])
            .arg(&self.entry)
            .arg(path)
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails while a process that hung is in it, and that is reported already.
        let _ = fs::remove_dir(&self.directory);
    }
}
