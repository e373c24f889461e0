//! The Linux kernel interface of Upcall, for unprivileged processes on stock kernels.
//!
//! [`Linux`] implements [`upcall_core::Kernel`] with the `standby` backend: each busy virtual
//! processor has one runnable standby activation that yields; when the running activation blocks,
//! the kernel switches to it, and that context switch is the upcall.
//!
//! Nothing here calls libc while the runtime runs: system calls are made by [`mod@sys`], because the
//! instructions of libc may have been rewritten to enter the runtime, and because an activation
//! has no thread-local storage of its own.

#[macro_use]
pub mod sys;

pub mod activations;
pub mod affinity;
pub mod arch;
pub mod asked;
pub mod cpu_time;
pub mod descriptors;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod gang;
#[cfg(feature = "inject")]
pub mod inject;
pub mod kernel;
pub mod limits;
mod load;
pub mod memory;
pub mod observe;
mod pace;
pub mod placement;
pub mod poller;
pub mod preempt;
pub mod probe;
mod procfs;
mod resting;
pub mod slack;
pub mod spawn;
pub mod state;
pub mod statistics;
pub mod variables;
mod vdso;
pub mod vp_range;
mod watch;

pub use arch::base;
pub use kernel::{Hooks, Linux, Settings};
pub use procfs::own_pending;
pub use state::{Inbox, Job, LinuxActivation, LinuxThread, Noted, UserDispatch};
pub use vp_range::VpRange;

/// Nanoseconds of a clock (`CLOCK_MONOTONIC`, `CLOCK_REALTIME`), without libc.
pub fn clock(id: i32) -> u64 {
    vdso::clock_ns(id)
}

/// An activation on Linux.
pub type Activation = upcall_core::Activation<Linux>;
/// A virtual processor on Linux.
pub type Vp = upcall_core::Vp<Linux>;
/// A thread on Linux.
pub type Thread = upcall_core::Thread<Linux>;
/// A runtime on Linux.
pub type Runtime = upcall_core::Runtime<Linux>;
