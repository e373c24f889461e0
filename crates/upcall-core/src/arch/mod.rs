//! The one place that another processor would touch: switching stacks.
//!
//! A saved context is the address of some words on the thread's stack; the first one is where to continue.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    BEGINNING, Control, SAVED, Saved, control, inherit_control, load_control, prefetch, prepare,
    resume, saved, saved_control, set_saved_control, switch_out,
};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::{
    Control, Saved, control, inherit_control, load_control, prefetch, prepare, resume, saved,
    saved_control, set_saved_control, switch_out,
};
