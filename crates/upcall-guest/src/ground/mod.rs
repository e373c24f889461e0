//! What everything else stands on: registers and frames, the entry, raw system calls, access to the program's memory,
//! memory of its own, the process-wide state, and who makes a call.

pub mod access;
pub mod arch;
pub mod caller;
pub mod entry;
pub mod heap;
pub mod identity;
pub mod memory;
pub mod obstacle;
pub mod state;
pub mod text;
