//! Finds out by trying what this machine's kernel and C library can do for the runtime.
//!
//! Each probe performs the operation that the runtime would perform, and looks at the result. No probe infers a feature
//! from a version number: distributions backport, containers filter system calls, and a version says nothing about either.
//!
//! Invariants:
//! - A probe leaves the calling process as it was. What could kill, stop or change it happens in a child process that
//!   has a time limit of its own.
//! - A probe that cannot reach a verdict says *does not work*, with the error as evidence. The slower path is always
//!   right.

mod calls;
mod cgroup;
mod child;
mod choice;
mod cpu;
mod files;
mod libc_found;
mod limits;
mod memory;
mod perf;
mod standby;
mod traps;
mod turns;

pub use calls::calls;
pub use cgroup::CpuQuota;
pub use choice::{BOOT, Choice, NO_SCHEDULER, SCHEDULER, Source, choose, choose_unmeasured};
pub use cpu::{fsgsbase, membarrier, processor};
pub use files::rwf_nowait_pipe;
pub use libc_found::glibc;
pub use limits::{Limits, limits, quota_files, soft_limit};
pub use memory::{guard_install, userfaultfd};
pub use perf::perf_switch_ring;
pub use standby::{StandbyMode, measure_mode, standby};
pub use traps::syscall_user_dispatch;
pub use turns::turns;

/// What one probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The feature's name, as the user types it.
    pub name: &'static str,
    /// Whether the runtime can use it here.
    pub works: bool,
    /// Which variant works, where there is more than one (`nice0`, `sentinel`).
    pub mode: Option<&'static str>,
    /// What was done and what came of it, in one line.
    pub evidence: String,
    /// What would change a negative finding; `None` where it works.
    pub remedy: Option<String>,
}

impl Finding {
    pub(crate) fn works(name: &'static str, evidence: impl Into<String>) -> Self {
        Self {
            name,
            works: true,
            mode: None,
            evidence: evidence.into(),
            remedy: None,
        }
    }

    /// A feature that does not work, and what would change that.
    pub(crate) fn fails(
        name: &'static str,
        evidence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name,
            works: false,
            mode: None,
            evidence: evidence.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// Whether an entry of [`FEATURES`] is a whole backend or one of the features it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A way of learning what the kernel does with activations.
    Backend,
    /// Something that makes a backend or the guest faster or complete.
    Feature,
}

/// One thing that can be asked about.
pub struct Feature {
    /// The name, as the user types it.
    pub name: &'static str,
    /// Backend or feature.
    pub kind: Kind,
    /// What the runtime uses it for.
    pub purpose: &'static str,
    /// What happens without it.
    pub without: &'static str,
    probe: fn() -> Finding,
}

impl Feature {
    /// Runs the probe. Takes milliseconds; `standby` up to a fifth of a second of processor
    /// time.
    #[must_use]
    pub fn probe(&self) -> Finding {
        (self.probe)()
    }
}

/// Everything that `upcall doctor` knows, in the order in which it is shown.
pub static FEATURES: [Feature; 16] = [
    Feature {
        name: "standby",
        kind: Kind::Backend,
        purpose: "a standby activation on each virtual processor; the default backend",
        without: "programs cannot run on activations; --or-native runs them as they are",
        probe: standby::standby,
    },
    Feature {
        name: "observed",
        kind: Kind::Backend,
        purpose: "the kernel's own record of each activation's state, from the upcalld of root",
        without: "the standby backend asks procfs",
        probe: turns::observer,
    },
    Feature {
        name: "sched_ext",
        kind: Kind::Backend,
        purpose: "the scheduler of upcalld, by which a standby runs when the owner blocks, and not before",
        without: "the kernel's own scheduler has all kernel threads",
        probe: turns::scheduler,
    },
    Feature {
        name: "processor",
        kind: Kind::Feature,
        purpose: "the system calls of programs for this processor are rewritten",
        without: "programs cannot run on activations; --or-native runs them as they are",
        probe: cpu::processor,
    },
    Feature {
        name: "calls",
        kind: Kind::Feature,
        purpose: "the system calls by which threads wait for descriptors, times and signals",
        without: "programs cannot run on activations; --or-native runs them as they are",
        probe: calls::calls,
    },
    Feature {
        name: "proc-syscall",
        kind: Kind::Feature,
        purpose: "tells a blocked activation from a preempted one; it is asked first",
        without: "the perf switch ring is read; without both, a standby yields a few times to find out",
        probe: files::proc_syscall,
    },
    Feature {
        name: "perf-switch-ring",
        kind: Kind::Feature,
        purpose: "tells a blocked activation from a preempted one where /proc cannot be read",
        without: "/proc is read; without both, a standby yields a few times to find out",
        probe: perf::perf_switch_ring,
    },
    Feature {
        name: "fsgsbase",
        kind: Kind::Feature,
        purpose: "switches thread-local storage in user mode, in 4 ns",
        without: "each switch of threads makes a system call (0.1 us)",
        probe: cpu::fsgsbase,
    },
    Feature {
        name: "guard-install",
        kind: Kind::Feature,
        purpose: "guard pages that need no mapping each: a million stacks fit",
        without: "guards by mprotect, limited by vm.max_map_count",
        probe: memory::guard_install,
    },
    Feature {
        name: "userfaultfd",
        kind: Kind::Feature,
        purpose: "page faults on demand, for upcall bench only",
        without: "the benchmark's fault_to_compute uses a cold file mapping",
        probe: memory::userfaultfd,
    },
    Feature {
        name: "syscall-user-dispatch",
        kind: Kind::Feature,
        purpose: "catches system calls at sites that cannot be rewritten",
        without: "such calls go to the kernel as they are: they do not meet libc's futexes and signals",
        probe: traps::syscall_user_dispatch,
    },
    Feature {
        name: "rwf-nowait-pipe",
        kind: Kind::Feature,
        purpose: "tries a pipe read without changing the file's flags",
        without: "the descriptor is polled before each read",
        probe: files::rwf_nowait_pipe,
    },
    Feature {
        name: "membarrier",
        kind: Kind::Feature,
        purpose: "makes all processors fetch rewritten code anew",
        without: "the change of the code's protection interrupts the processors that run it",
        probe: cpu::membarrier,
    },
    Feature {
        name: "turns",
        kind: Kind::Feature,
        purpose: "programs of one user that compute take turns, so that spinning ones go on",
        without: "the kernel slices each processor by itself, and programs that spin slow down",
        probe: turns::turns,
    },
    Feature {
        name: "daemon",
        kind: Kind::Feature,
        purpose: "upcalld --user decides whose turn it is, and upcall ps shows it",
        without: "programs decide among themselves whose turn it is",
        probe: turns::daemon,
    },
    Feature {
        name: "glibc",
        kind: Kind::Feature,
        purpose: "the C library whose system calls are served",
        without: "unmodified programs cannot be served",
        probe: libc_found::glibc,
    },
];

/// The entry of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.name == name)
}

/// `errno` of the call that just failed, as the system's own words.
pub(crate) fn os_error() -> std::io::Error {
    std::io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_answers_to_its_own_name() {
        for feature in &FEATURES {
            let finding = feature.probe();
            assert_eq!(finding.name, feature.name);
            assert!(!finding.evidence.is_empty(), "{}", feature.name);
            assert_eq!(finding.remedy.is_none(), finding.works, "{finding:?}");
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for feature in &FEATURES {
            let same = FEATURES.iter().filter(|f| f.name == feature.name).count();
            assert_eq!(same, 1, "{}", feature.name);
            assert!(find(feature.name).is_some());
        }
        assert!(find("no-such-feature").is_none());
    }
}
