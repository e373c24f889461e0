//! The command's first instruction: most runs need no more than what is remembered of the program.
//!
//! A dynamic program pays half a millisecond before its first line. So the kernel finds no dynamic linker named in this
//! command (`build.rs`), and starts it at `upcall_front`:
//!
//! 1. If a dynamic linker has been here (it was asked to run this command as a program), libc's start-up is next.
//! 2. If the words are `upcall run PROGRAM ARGS`, what is remembered of the program may do ([`serve`]): it is executed.
//! 3. Otherwise the dynamic linker is mapped, and goes on as if the kernel had done that (`interpreter`). What follows is
//!    the complete command, which remembers (`remember`).
//!
//! Nothing is relocated before step 3. So the code up to there calls nothing of libc, and uses no constant that holds an
//! address. Where the front cannot be (another architecture, a debug build, a sanitizer), the command is a dynamic program
//! as any other. See docs/adr/0032.

pub mod call;
#[cfg(front)]
mod entry;
#[cfg(front)]
mod interpreter;
pub mod serve;
pub mod stack;
pub mod verdict;

/// Where verdicts are kept, under the directory of the user's own.
pub const DIRECTORY: &str = "upcall/programs";
