//! A simulated machine, driven by a seed, on which [`upcall_core`] runs as it is.
//!
//! The runtime knows the kernel by one trait. Here that trait is [`Sim`], on a [`Machine`] of simulated
//! processors inside one kernel thread: vessels (simulated kernel threads) that are switched at
//! *points*, system calls and page faults that take their time, preemption, interruptions, a
//! kernel that gives no more threads. Nothing else is random, so a seed decides everything, and a
//! failing run is replayed by its seed.
//!
//! | room | what |
//! |---|---|
//! | `setup` | what kind of machine a seed gives, how badly it behaves, and how much of that a run shows |
//! | `machine` | vessels, points, memory, what the kernel keeps with an address space; the policy that chooses what runs next is the part that is replaced |
//! | `daemon` | which of several address spaces has which processor |
//! | `kernel` | [`upcall_core::Kernel`] on the machine |
//! | [`invariants`] | what must hold |
//! | `threads` | the threads of a run, and what they can do; what others decide for them |
//! | `run` | the machine's loop, the policy that looks for bugs, seeds, replays, shrinking |
//!
//! # Example
//!
//! ```no_run
//! upcall_sim::explore("sleepers", |me| {
//!     let sleepers: Vec<_> = (0..3).map(|_| me.spawn(|me| me.sleep(5_000))).collect();
//!     for sleeper in sleepers {
//!         me.join(sleeper);
//!     }
//! });
//! ```

mod daemon;
pub mod invariants;
mod kernel;
mod machine;
mod run;
mod setup;
mod threads;

pub use machine::policy::{Call, Policy};
pub use machine::sim::Sim;
pub use machine::space::{Descriptor, Space};
pub use machine::{Doing, Machine, Thread};
pub use run::drive::{self, Program, Scenario, explore, explore_less, explore_together};
pub use run::explore::Explore;
pub use setup::plan::Plan;
pub use setup::style::Style;
pub use threads::advice::Told;
pub use threads::outside::Gate;
pub use threads::{Handle, KernelThread, Me, boot};
