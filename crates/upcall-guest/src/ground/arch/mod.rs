//! What depends on the processor: the assembly, and its addresses.
//!
//! The rest of the crate knows it by the names exported here; another processor adds a folder.

mod x86_64;

pub use x86_64::{
    Entry, NEVER, Placed, Progress, anchor, below, can_return_by, components, each_long_branch,
    entry, frame_below, give_up, move_frame, pass_through, program_call, progress, raw_syscall,
    raw_syscall_at, reserved_stub_area, resume, setup, signal_entry, signal_return,
};
