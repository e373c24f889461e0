//! A simulated machine, driven by a seed, on which [`upcall_core`] runs as it is.
//!
//! The runtime knows the kernel by one trait. Here that trait is [`Sim`], on a [`Machine`] of simulated
//! processors inside one kernel thread: vessels (simulated kernel threads) that are switched at
//! *points*, system calls and page faults that take their time, preemption, interruptions, a
//! kernel that gives no more threads. Nothing else is random, so a seed decides everything, and a
//! failing run is replayed by its seed.
//!
//! | part | what |
//! |---|---|
//! | [`machine`] | vessels, points, memory, the loop |
//! | [`space`](mod@space) | what the kernel keeps with one address space |
//! | [`sim`] | [`upcall_core::Kernel`] on it |
//! | [`policy`] | who runs next and what a step costs: the part that is replaced |
//! | [`mod@explore`] | the policy that looks for bugs: anything may happen at any point |
//! | [`threads`] | the threads of a run, and what they can do |
//! | [`advice`] | a policy of the program's own: what its adviser is told, beside what has happened |
//! | [`outside`] | what others decide: the end of a call, processors taken, no more kernel threads |
//! | [`style`] | what kind of machine a seed gives, and how badly it behaves |
//! | [`invariants`] | what must hold |
//! | `daemon` | which of several address spaces has which processor |
//! | `stepping` | preemption at any instruction |
//! | `bound` | an end to loops that reach no point |
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

pub mod advice;
mod arena;
mod bound;
mod daemon;
pub mod drive;
pub mod explore;
pub mod futexes;
pub mod invariants;
pub mod machine;
pub mod outside;
pub mod plan;
pub mod policy;
mod report;
mod rounds;
mod run;
mod shared;
mod shrink;
pub mod sim;
pub mod space;
mod stepping;
pub mod style;
pub mod threads;
mod turns;

pub use advice::Told;
pub use drive::{Program, Scenario, explore, explore_less, explore_together};
pub use explore::Explore;
pub use machine::{Doing, Machine, Thread};
pub use outside::Gate;
pub use plan::Plan;
pub use policy::{Call, Policy};
pub use sim::Sim;
pub use space::{Descriptor, Space};
pub use style::Style;
pub use threads::{Handle, KernelThread, Me, boot};
