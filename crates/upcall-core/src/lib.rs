//! Scheduler activations: user-level threads that never lose a processor.
//!
//! The crate holds what the papers call the runtime: threads, virtual processors, activations,
//! ready lists, the user-level futex and its deadlines. It knows the kernel by one trait,
//! [`Kernel`], in the words of Anderson, Bershad, Lazowska and Levy (TOCS 1992, Tables 2 and 3);
//! it has no clock, no randomness, no system call and no global state of its own, so that the
//! same code runs on Linux and on a simulated kernel.
//!
//! Where to start reading: [`Vp`] (which activation may run on a processor, one word), then [`Runtime`]
//! (what happens at each upcall and downcall), then `runtime/futex.rs` (how threads wait).
//!
//! # Invariants
//!
//! 1. A processor has one owner: the activation that [`Vp`]'s word names. Only the owner runs
//!    threads. An activation that learns that it is not the owner gives its thread to the ready list
//!    or takes the processor by the same word.
//! 2. A thread is in one place: running on one activation, in one ready list, parked, or stopped
//!    inside an activation that the kernel preempted.
//! 3. A stopped owner inside the runtime (state [`State::Runtime`]) is never replaced: it is
//!    continued first (critical-section recovery, Anderson §3.3).
//! 4. No thread waits while a less urgent one runs, beyond the way of a call ([`rank`]).
//! 5. Nothing here allocates from a heap or calls libc: memory comes from [`Machine::map`].

#![no_std]

#[cfg(any(test, loom, shuttle))]
extern crate std;

mod accepted;
pub mod arch;
mod edges;
pub mod ending;
pub mod event;
pub mod kernel;
pub mod list;
mod lock;
pub mod machine;
mod memory;
pub mod numbered;
pub mod rank;
pub mod runtime;
mod slot;
pub mod stack;
mod state;
pub mod stats;
pub mod sync;
#[cfg(test)]
mod testing;
mod timer;
mod turnstile;
mod vp_set;

pub use accepted::Accepted;
pub use edges::Edges;
pub use kernel::{Kernel, Waiting};
pub use lock::{Guard, SpinLock};
pub use machine::{Errno, Machine};
pub use numbered::{AtomicEnum, Numbered};
pub use rank::Rank;
pub use runtime::{LONE, Lone, Runtime, Waited};
pub use slot::Slot;
pub use state::activation::{Activation, Activity};
pub use state::inside::{Entered, Inside};
pub use state::thread::{Claim, Standing, Thread, ThreadList, WakeReason};
pub use state::vp::{State, Vp, Word};
pub use turnstile::Turnstile;
