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

mod activation;
mod blocked;
#[cfg(fuzzing)]
pub mod fuzzing;
mod kernel;
pub mod poller;
pub mod probe;
mod processors;
mod settings;
mod state;
pub mod turns;

pub use activation::{preempt, spawn};
pub use blocked::observe;
pub use kernel::affinity;
pub use processors::placement;
pub use settings::vp_range::VpRange;
pub use settings::{statistics, variables, vp_range};
pub use state::{
    Activation, Hooks, Inbox, Job, Linux, LinuxActivation, LinuxThread, Noted, Runtime, Settings,
    Thread, UserDispatch, Vp, activations, base, cpu_time, slack,
};
#[cfg(feature = "inject")]
pub use sys::inject;
pub use sys::procfs::own_pending;
pub use sys::{arch, clock, descriptors, limits, memory};
