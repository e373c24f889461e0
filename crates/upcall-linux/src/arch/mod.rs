//! The one place that another processor would touch: its system-call instruction, how a kernel
//! thread begins, the names under which the kernel publishes things, and [`base`].
//!
//! `base` is the activation's pseudo-register. Code of the runtime finds its activation through
//! it, whatever stack it runs on and whatever thread's storage is installed; every processor has
//! the same functions, and says by what means:
//!
//! - [`base::set`]: from now on the calling kernel thread is this activation;
//! - [`base::rest`]: the activation has no thread any more, and gives up its thread pointer;
//! - [`base::set_thread_pointer`]: the activation runs the thread with this one;
//! - [`base::current`], [`base::current_thread`], [`base::is_inside`], [`base::set_inside`],
//!   [`base::clear_inside`]: read and write the activation's own words so that a thread that is
//!   moved at that very moment never mixes two activations;
//! - [`base::program_thread`]: the same where code of the program has run, which may write the register itself;
//!   [`base::read`], [`base::write`] and [`base::of_program`] are about the program's value.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{NAME, RSEQ_SIGNATURE, VDSO_CLOCK, base, call, clone, own_syscalls};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::{NAME, RSEQ_SIGNATURE, VDSO_CLOCK, base, call, clone};

/// Whether unmodified programs can be served on this processor: the guest rewrites their
/// system-call instructions, and only those of x86-64 so far.
pub const SERVES_PROGRAMS: bool = cfg!(target_arch = "x86_64");
