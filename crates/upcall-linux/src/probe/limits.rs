//! What bounds virtual processors and activations here: facts, not features.

use std::path::{Path, PathBuf};

use super::cgroup::{CpuQuota, Groups};

/// The bounds of this process.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Processors that this process may run on, by number, ascending.
    pub processors: Vec<usize>,
    /// Processors that are online in the machine.
    pub online: usize,
    /// Bound on processor time by control groups; `None` for none that is seen.
    pub cpu_quota: Option<CpuQuota>,
    /// Whether the control group that would set it is seen.
    pub cpu_group_seen: bool,
    /// Whether processors share cores; `None` where the kernel does not say.
    pub smt: Option<bool>,
    /// Soft RLIMIT_NPROC: kernel threads of this user; `None` for no limit, and where it
    /// does not bind (CAP_SYS_RESOURCE, CAP_SYS_ADMIN).
    pub nproc: Option<u64>,
    /// Bound on processes and kernel threads by a control group, and the file that says so;
    /// `None` for none that is seen.
    pub pids_max: Option<(u64, PathBuf)>,
    /// Whether the control group that would set it is seen.
    pub pids_group_seen: bool,
    /// Kernel threads in the whole machine; `None` where the kernel does not say.
    pub threads_max: Option<u64>,
    /// Process and kernel-thread numbers in the whole machine; `None` where the kernel does
    /// not say.
    pub pid_max: Option<u64>,
    /// Mappings of one process: bounds the number of stacks where guard-install is missing;
    /// `None` where the kernel does not say.
    pub max_map_count: Option<u64>,
    /// Soft RLIMIT_AS, bytes; `None` for no limit.
    pub address_space: Option<u64>,
    /// Whether a system-call filter is in force (seccomp mode 2); `None` where the kernel
    /// does not say.
    pub seccomp_filter: Option<bool>,
}

impl Limits {
    /// The number of activations that one program can have at most: the tightest bound.
    #[must_use]
    pub fn activations(&self) -> Option<u64> {
        [
            self.nproc,
            self.pids_max.as_ref().map(|(max, _)| *max),
            self.threads_max,
            self.pid_max,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// Reads the bounds of this process. What cannot be read is reported as unknown.
#[must_use]
pub fn limits() -> Limits {
    let membership = read(Path::new("/proc/self/cgroup"));
    let mounts = read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    let status = read(Path::new("/proc/self/status")).unwrap_or_default();
    // A kernel without control groups has no such file, and says nothing of them elsewhere.
    let groups_told = membership.is_some() || !status.is_empty();
    let groups = Groups {
        membership: membership.as_deref().unwrap_or_default(),
        mounts: &mounts,
        read: &read,
    };
    Limits {
        processors: allowed_processors(),
        // SAFETY: a plain query.
        online: usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1),
        cpu_quota: groups.cpu_quota(),
        cpu_group_seen: groups_told && groups.shows("cpu"),
        smt: number("/sys/devices/system/cpu/smt/active").map(|active| active != 0),
        nproc: soft_limit(libc::RLIMIT_NPROC).filter(|_| !exempt(&status)),
        pids_max: groups.pids_max(),
        pids_group_seen: groups_told && groups.shows("pids"),
        threads_max: number("/proc/sys/kernel/threads-max"),
        pid_max: number("/proc/sys/kernel/pid_max"),
        max_map_count: number("/proc/sys/vm/max_map_count"),
        address_space: soft_limit(libc::RLIMIT_AS),
        seccomp_filter: status_field(&status, "Seccomp:", 10).map(|mode| mode == 2),
    }
}

/// The files that may bound this process's processor time now, each with that of its period, if it is another one.
#[must_use]
pub fn quota_files() -> Vec<(PathBuf, Option<PathBuf>)> {
    let groups = Groups {
        membership: &read(Path::new("/proc/self/cgroup")).unwrap_or_default(),
        mounts: &read(Path::new("/proc/self/mountinfo")).unwrap_or_default(),
        read: &read,
    };
    groups.quota_files()
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn number(path: &str) -> Option<u64> {
    read(Path::new(path))?.trim().parse().ok()
}

/// Whether the kernel lets this process exceed RLIMIT_NPROC.
fn exempt(status: &str) -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    status_field(status, "CapEff:", 16)
        .is_some_and(|capabilities| capabilities & (CAP_SYS_ADMIN | CAP_SYS_RESOURCE) != 0)
}

fn status_field(status: &str, name: &str, radix: u32) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(value.trim(), radix).ok()
}

/// A soft resource limit of this process, if there is one (getrlimit(2)).
pub fn soft_limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is valid for the call.
    let got = unsafe { libc::getrlimit(resource, &raw mut limit) };
    (got == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Processors in this process's affinity mask. The mask is grown until the kernel's fits.
fn allowed_processors() -> Vec<usize> {
    const WORD: usize = u64::BITS as usize;
    let mut mask = vec![0u64; 1024 / WORD];
    loop {
        // SAFETY: the buffer is valid and its size is given. The raw call returns how many
        // bytes it filled, and EINVAL where the kernel's mask is larger.
        let got = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                0,
                size_of_val(mask.as_slice()),
                mask.as_mut_ptr(),
            )
        };
        if got >= 0 {
            break;
        }
        if mask.len() > 1 << 16 {
            return vec![0];
        }
        mask.resize(mask.len() * 2, 0);
    }
    (0..mask.len() * WORD)
        .filter(|number| mask[number / WORD] & (1 << (number % WORD)) != 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_may_run_somewhere() {
        let limits = limits();
        assert!(!limits.processors.is_empty());
        assert!(limits.online >= 1);
        assert!(limits.processors.is_sorted());
    }

    #[test]
    fn the_tightest_bound_on_activations_counts() {
        let mut limits = limits();
        limits.nproc = Some(5000);
        limits.pids_max = Some((300, "/x/pids.max".into()));
        limits.threads_max = Some(100_000);
        limits.pid_max = None;
        assert_eq!(limits.activations(), Some(300));
        limits.pids_max = None;
        assert_eq!(limits.activations(), Some(5000));
    }

    #[test]
    fn the_status_is_read() {
        let status = "Name:\tx\nCapEff:\t0000000001000000\nSeccomp:\t2\n";
        assert_eq!(status_field(status, "Seccomp:", 10), Some(2));
        assert_eq!(status_field("Name:\tx\n", "Seccomp:", 10), None);
        assert!(exempt(status));
        assert!(!exempt("CapEff:\t0000000000000000\n"));
        assert!(!exempt(""));
    }
}
