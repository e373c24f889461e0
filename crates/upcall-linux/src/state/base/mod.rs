//! The activation's pseudo-register. Code of the runtime finds its activation through
//! it, whatever stack it runs on and whatever thread's storage is installed; every processor has
//! the same functions, and says by what means:
//!
//! - [`set`]: from now on the calling kernel thread is this activation;
//! - [`rest`]: the activation has no thread any more, and gives up its thread pointer;
//! - `set_thread_pointer`: the activation runs the thread with this one;
//! - [`current`], [`current_thread`], [`is_inside`], [`set_inside`], [`clear_inside`]: read and write the
//!   activation's own words so that a thread that is moved at that very moment never mixes two activations;
//! - [`program_thread`]: the same where code of the program has run, which may write the register itself;
//!   [`read`], [`write()`] and [`of_program`] are about the program's value.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
