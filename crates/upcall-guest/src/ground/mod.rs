//! What all other rooms use: registers and frames, the entry, raw system calls, access to the program's memory, memory of
//! its own, what is kept with the process and with each thread, and who makes a call.

pub mod access;
pub mod arch;
pub mod attributes;
pub mod caller;
pub mod command;
pub mod entry;
pub mod file;
pub mod heap;
pub mod hooks;
pub mod identity;
pub mod kernel_futex;
pub mod mask;
pub mod memory;
pub mod obstacle;
pub mod record;
pub mod state;
pub mod text;
mod unwinder;
