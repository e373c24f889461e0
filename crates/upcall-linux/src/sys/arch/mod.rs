//! What depends on the processor: its system-call instruction, how a kernel thread begins, and the names under which the
//! kernel publishes things. The pseudo-register, which also depends on it, is [`base`](crate::state::base).

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::VDSO_CLOCK;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{NAME, RSEQ_SIGNATURE, call, clone, own_syscalls};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::VDSO_CLOCK;
#[cfg(target_arch = "aarch64")]
pub use aarch64::{NAME, RSEQ_SIGNATURE, call, clone};

/// Whether unmodified programs can be served on this processor: the guest rewrites their
/// system-call instructions, and only those of x86-64 so far.
pub const SERVES_PROGRAMS: bool = cfg!(target_arch = "x86_64");
