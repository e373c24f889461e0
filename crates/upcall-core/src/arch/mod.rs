//! The one place that another processor would touch: switching stacks.
//!
//! A saved context is a stack pointer; everything else lies on the stack, and the topmost word is
//! the address to continue at.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{Saved, enter, prepare, resume, saved, switch_out};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::{Saved, enter, prepare, resume, saved, switch_out};
