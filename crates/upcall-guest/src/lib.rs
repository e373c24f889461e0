//! The library inside an unmodified program. It takes the place of the kernel under libc.
//!
//! At start the library finds the `syscall` instructions of every loaded object ([`rewrite::site`]), moves each into
//! a stub ([`rewrite::stub`]) and overwrites it with a jump to that stub ([`rewrite::patch`]). The stub enters the
//! library with a complete [`entry::Frame`]. An instruction that cannot be rewritten is left to Syscall User Dispatch
//! ([`rewrite::sud`]); `signal::dispatch` decides when that is switched on.
//!
//! The modules are rooms on floors, here from the roof down. A room imports from the floors below it, never from
//! those above.
//!
//! | room | what is in it |
//! |---|---|
//! | [`start`] | start-up: of the library, and of the runtime with the program's first thread |
//! | `call` | the table of system calls, and what serves each of them |
//! | `process` | fork, exec, loaded libraries: what belongs to a process and not to a thread |
//! | `report` | deadlocks, backtraces, counters |
//! | `thread` | how threads begin and end, and what the kernel would keep for each |
//! | `signal` | delivery, masks, pending signals, timers |
//! | [`rewrite`] | where system calls are in the code, and how each becomes a jump |
//! | `ground` | registers and frames, raw system calls, the program's memory, the process-wide state, who makes a call |
//!
//! On another processor than x86-64 the library is empty and `upcall run` refuses
//! (`upcall_linux::arch::SERVES_PROGRAMS`). One more processor is a folder beside `ground::arch::x86_64`
//! (entry, search, raw calls), its decoder in [`rewrite::site`] and [`rewrite::code`], its jumps in [`rewrite::stub`]
//! and [`rewrite::patch`], and its signal frames in `signal`.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod call;
mod ground;
mod process;
mod report;
pub mod rewrite;
mod signal;
pub mod start;
mod thread;

pub use call::direct;
pub use ground::{attributes, entry, mask, state};
pub use report::stuck;
pub use thread::{lending, shell};
