//! x86-64: entry and exit of stubs, raw system calls, the area for stubs in our own text.

mod bytes;
mod enter;
mod raw;
mod search;
mod signal;
mod state;

pub use enter::{Entry, entry, resume};
pub use raw::{
    NEVER, Progress, anchor, give_up, pass_through, program_call, progress, raw_syscall,
    raw_syscall_at, reserved_stub_area, signal_return,
};
pub use search::each_long_branch;
pub use signal::{Placed, below, can_return_by, components, frame_below, move_frame, signal_entry};
pub use state::setup;
