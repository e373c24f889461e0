//! Bounds that control groups set: processor quota and number of processes.
//!
//! A group is bounded by each of its ancestors too, so every level up to the visible root is
//! read and the tightest bound counts. Version 2 has one hierarchy; version 1 has one for
//! each controller; both may be mounted at once, with the controllers in either.
//!
//! Files are read through a function that the caller gives, so that the tests can describe a
//! machine in a table.

use std::path::{Path, PathBuf};

use crate::processors::quota::quota_and_period;

/// A bound on processor time.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuQuota {
    /// Processors' worth of time that may be used (1.5: one and a half processors).
    pub processors: f64,
    /// The file that says so.
    pub file: PathBuf,
}

/// The groups of this process, as the kernel describes them.
pub(super) struct Groups<'a> {
    /// Text of `/proc/self/cgroup`.
    pub membership: &'a str,
    /// Text of `/proc/self/mountinfo`.
    pub mounts: &'a str,
    /// Reads a file; `None` where it cannot be read.
    pub read: &'a dyn Fn(&Path) -> Option<String>,
}

impl Groups<'_> {
    /// The tightest processor quota, if there is one.
    pub(super) fn cpu_quota(&self) -> Option<CpuQuota> {
        let files = self.quota_files().into_iter();
        let quotas = files.filter_map(|(file, period)| {
            let mut text = (self.read)(&file)?;
            if let Some(period) = period {
                text = format!("{text} {}", (self.read)(&period)?);
            }
            let (quota, period) = quota_and_period(&text)?;
            let processors = quota as f64 / period as f64;
            Some(CpuQuota { processors, file })
        });
        quotas.min_by(|a, b| a.processors.total_cmp(&b.processors))
    }

    /// The files that may bound processor time, each with that of its period, if it is another one.
    pub(super) fn quota_files(&self) -> Vec<(PathBuf, Option<PathBuf>)> {
        let v2 = self.levels(None).into_iter();
        let v2 = v2.map(|level| (level.join("cpu.max"), None));
        let v1 = self.levels(Some("cpu")).into_iter().map(|level| {
            let period = level.join("cpu.cfs_period_us");
            (level.join("cpu.cfs_quota_us"), Some(period))
        });
        v2.chain(v1)
            .filter(|(file, _)| (self.read)(file).is_some())
            .collect()
    }

    /// The tightest bound on processes and kernel threads, and the file that says so.
    pub(super) fn pids_max(&self) -> Option<(u64, PathBuf)> {
        [None, Some("pids")]
            .into_iter()
            .flat_map(|controller| self.levels(controller))
            .filter_map(|level| {
                let file = level.join("pids.max");
                let max = (self.read)(&file)?.trim().parse().ok()?;
                Some((max, file))
            })
            .min()
    }

    /// Whether the hierarchy that has this controller can be seen: where it is not mounted, as
    /// in a plain chroot, a bound may be in force that nothing here tells.
    pub(super) fn shows(&self, controller: &str) -> bool {
        // A version 1 hierarchy takes its controller away from version 2.
        let hierarchy = self.group(Some(controller)).map(|_| controller);
        self.group(hierarchy).is_none() || self.mount(hierarchy).is_some()
    }

    /// The directories of this process's group and of its ancestors, nearest first; of a
    /// version 1 controller, or of version 2.
    fn levels(&self, controller: Option<&str>) -> Vec<PathBuf> {
        let (Some(group), Some((root, mount_point))) =
            (self.group(controller), self.mount(controller))
        else {
            return Vec::new();
        };
        // Inside a container the mount may show a part of the hierarchy only; a group
        // outside that part is bounded by the visible root at least.
        let inside = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        let base = Path::new(mount_point);
        inside.ancestors().map(|level| base.join(level)).collect()
    }

    /// This process's path in the hierarchy.
    fn group(&self, controller: Option<&str>) -> Option<&str> {
        self.membership.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
            let right = match controller {
                None => number == "0" && names.is_empty(),
                Some(wanted) => names.split(',').any(|name| name == wanted),
            };
            // The kernel writes /../.. for a group outside the namespace; no such path exists
            // below the mount, and the visible root stands in.
            right.then_some(path)
        })
    }

    /// Which part of the hierarchy is mounted, and where.
    fn mount(&self, controller: Option<&str>) -> Option<(&str, &str)> {
        self.mounts.lines().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (root, mount_point) = (place.next()?, place.next()?);
            let mut kind = kind.split(' ');
            let (fstype, _source, options) = (kind.next()?, kind.next()?, kind.next()?);
            let right = match controller {
                None => fstype == "cgroup2",
                Some(wanted) => {
                    fstype == "cgroup" && options.split(',').any(|option| option == wanted)
                }
            };
            right.then_some((root, mount_point))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2_MOUNT: &str =
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1_MOUNTS: &str = "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                             32 24 0:28 /docker/7 /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";

    fn machine<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&Path) -> Option<String> + 'a {
        |path| {
            files
                .iter()
                .find(|(name, _)| Path::new(name) == path)
                .map(|(_, text)| (*text).to_owned())
        }
    }

    fn groups<'a>(
        membership: &'a str,
        mounts: &'a str,
        read: &'a dyn Fn(&Path) -> Option<String>,
    ) -> Groups<'a> {
        Groups {
            membership,
            mounts,
            read,
        }
    }

    #[test]
    fn the_tightest_level_counts_in_version_2() {
        let read = machine(&[
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/a/b/pids.max", "max\n"),
            ("/sys/fs/cgroup/a/pids.max", "512\n"),
        ]);
        let groups = groups("0::/a/b\n", V2_MOUNT, &read);
        let quota = groups.cpu_quota().expect("a quota");
        assert!((quota.processors - 1.5).abs() < 1e-9);
        assert_eq!(quota.file, Path::new("/sys/fs/cgroup/a/cpu.max"));
        assert_eq!(
            groups.pids_max(),
            Some((512, "/sys/fs/cgroup/a/pids.max".into()))
        );
    }

    #[test]
    fn version_1_has_a_hierarchy_for_each_controller() {
        let read = machine(&[
            ("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/pids/inner/pids.max", "100\n"),
        ]);
        let groups = groups(
            "4:cpu,cpuacct:/x\n8:pids:/docker/7/inner\n0::/\n",
            V1_MOUNTS,
            &read,
        );
        let quota = groups.cpu_quota().expect("a quota");
        assert!((quota.processors - 0.5).abs() < 1e-9);
        assert_eq!(groups.pids_max().map(|(max, _)| max), Some(100));
    }

    #[test]
    fn no_bound_is_no_bound() {
        let read = machine(&[("/sys/fs/cgroup/cpu.max", "max 100000\n")]);
        for (membership, mounts) in [("0::/\n", V2_MOUNT), ("0::/\n", ""), ("", V2_MOUNT)] {
            let groups = groups(membership, mounts, &read);
            assert_eq!(groups.cpu_quota(), None);
            assert_eq!(groups.pids_max(), None);
        }
    }

    #[test]
    fn what_is_no_number_is_no_bound() {
        for text in [
            "inf 100000",
            "nan nan",
            "0 0",
            "1e3 1",
            "-1 100000",
            "5",
            "",
        ] {
            assert_eq!(quota_and_period(text), None, "{text}");
        }
    }

    #[test]
    fn a_hierarchy_that_is_not_mounted_is_not_seen() {
        let read = machine(&[]);
        let v1 = "4:cpu,cpuacct:/x\n8:pids:/y\n0::/\n";
        let pids_only = V1_MOUNTS.lines().nth(1).expect("two lines");
        for (membership, mounts, cpu, pids) in [
            ("0::/\n", V2_MOUNT, true, true),
            ("0::/\n", "", false, false),
            (v1, V1_MOUNTS, true, true),
            (v1, V2_MOUNT, false, false),
            (v1, pids_only, false, true),
            // A kernel without control groups.
            ("", "", true, true),
        ] {
            let groups = groups(membership, mounts, &read);
            let seen = (groups.shows("cpu"), groups.shows("pids"));
            assert_eq!(seen, (cpu, pids), "{membership:?} {mounts:?}");
        }
    }

    #[test]
    fn a_group_outside_the_namespace_is_bounded_by_the_visible_root() {
        let read = machine(&[("/sys/fs/cgroup/cpu.max", "200000 100000\n")]);
        let groups = groups("0::/../../other\n", V2_MOUNT, &read);
        assert!((groups.cpu_quota().expect("a quota").processors - 2.0).abs() < 1e-9);
    }
}
