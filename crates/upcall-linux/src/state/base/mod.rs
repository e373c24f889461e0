//! The activation's pseudo-register. Code of the runtime finds its activation through it, on whatever stack it runs and
//! whatever thread's storage is installed. Every processor has the same functions, by means of its own:
//!
//! - [`set`]: from now on the calling kernel thread is this activation;
//! - [`rest`]: the activation has no thread any more, and gives up its thread pointer;
//! - `set_thread_pointer`: the activation runs the thread with this thread pointer;
//! - [`current`], [`current_thread`], [`is_inside`], [`set_inside`], [`clear_inside`]: read and write the activation's own
//!   words, so that a thread that is moved at that very moment never mixes two activations;
//! - [`program_thread`]: as `current_thread`, where the program's code has run, which may write the register itself;
//! - [`read`], [`write()`] and [`of_program`]: the program's own value of the register.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
