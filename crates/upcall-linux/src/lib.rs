//! The Linux kernel interface of Upcall, for unprivileged processes on unmodified kernels.
//!
//! [`Linux`] implements [`upcall_core::Kernel`] with the `standby` backend. Each busy virtual processor has one standby:
//! a runnable activation that only yields. When the running activation blocks, the kernel switches to the standby. That
//! context switch is the upcall.
//!
//! No code here calls libc while the runtime runs. libc's instructions may have been rewritten to enter the runtime, and
//! an activation has no thread-local storage of its own. System calls are made by [`mod@sys`].
//!
//! Imports run downwards, which `tests/layers` checks. From the ground up:
//!
//! | room | what it does |
//! |---|---|
//! | [`mod@sys`] | makes system calls; gets memory and descriptors; reads small files of the kernel |
//! | `blocked` | tells whether an activation is blocked |
//! | `record` | notes what happens, for a timeline |
//! | `processors` | knows which processors the program may use and how busy they are |
//! | `settings` | reads what the user asked for |
//! | [`turns`] | takes turns with other programs on the same processors |
//! | `state` | holds what the backend keeps with the process, each activation and each thread |
//! | `activation` | starts activations, ends their time slices, interrupts them, sets their signal masks |
//! | [`poller`] | parks threads on descriptors |
//! | [`probe`] | finds out what this machine supports |
//! | `kernel` | implements the kernel trait; follows processors that come, go or are crowded |
//!
//! Other crates use the names that are re-exported below.

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
mod record;
mod settings;
mod state;
pub mod turns;

pub use activation::{critical_code, preempt, spawn};
pub use blocked::{observe, page};
pub use kernel::affinity;
pub use processors::load::idle_times;
pub use processors::{placement, quota};
pub use settings::vp_range::VpRange;
pub use settings::{own_files, statistics, variables, vp_range};
pub use state::{
    Activation, Entered, Hooks, Inbox, Inside, Linux, LinuxActivation, LinuxThread, Noted, Room,
    Runtime, Settings, Thread, Vp, activations, base, cpu_time, kernel_slices, slack,
};
#[cfg(feature = "inject")]
pub use sys::inject;
pub use sys::procfs::{may_be_filtered, own_pending};
pub use sys::{arch, clock, clone, descriptors, limits, live, memory};
