//! A simulated machine, driven by a seed, on which [`upcall_core`] runs as it is.
//!
//! The runtime knows the kernel by one trait. Here [`Sim`] implements that trait, on a [`Machine`] of simulated processors
//! inside one kernel thread. The machine switches between *vessels* (simulated kernel threads) at *points*. Its system
//! calls and page faults take time. It preempts vessels, interrupts them, and may refuse more of them. Nothing else is
//! random: a seed decides everything, and replays a run that fails.
//!
//! Imports run downwards, which `tests/layers` checks. From the ground up:
//!
//! | room | what it does |
//! |---|---|
//! | `setup` | says what kind of machine a seed gives, how badly it behaves, and how much of that a run shows |
//! | `machine` | holds vessels, points, memory, and what the kernel keeps with an address space; its policy, which chooses what runs next, can be replaced |
//! | `daemon` | decides which of several address spaces has which processor |
//! | [`invariants`] | says what must hold |
//! | `kernel` | implements [`upcall_core::Kernel`] on the machine |
//! | `threads` | has the threads of a run, what they can do, and what others decide for them |
//! | `run` | has the machine's loop and the policy that looks for bugs; tries seeds, replays and shrinks a run |
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
