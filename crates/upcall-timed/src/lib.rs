//! A machine with a clock: a discrete-event kernel on which [`upcall_core`] and [`upcall_alloc`] run as
//! they are, and time is what is asked.
//!
//! Where `upcall-sim` looks for the order that breaks something, here is one order: that of the clock.
//! Simulated processors take turns on one kernel thread:
//!
//! 1. A vessel (simulated kernel thread) runs until it *spends* time: at a call of the
//!    [`upcall_core::Kernel`] trait that costs something, at a thread operation, or by computing.
//! 2. If another event is due before that time has passed, the vessel comes back, and goes on when its
//!    own time has come: the earliest event of the whole machine is always the next. What a
//!    vessel does between two spendings happens at one moment, so no event is ever late
//!    (conservative order), and a run depends on nothing but its [`Setup`].
//! 3. A preempted vessel keeps what it had not yet spent.
//!
//! | part | what |
//! |---|---|
//! | [`costs`] | what things cost: the Firefly of 1991, and a machine of today |
//! | [`machine::setup`] | what is run, and what became of it |
//! | [`machine`] | events, vessels, the loop |
//! | `machine::processors` | which vessel runs on a processor: a virtual processor's, or round robin |
//! | `machine::allocation` | processors move between address spaces, as [`upcall_alloc`] says |
//! | [`machine::kernel`] | the core's kernel trait on it |
//! | [`latency`] | the operations of the tables of 1991 |
//! | [`machine::threads`] | what a simulated program can do, the same for every kind of thread |
//! | [`nbody`] | the application of 1991, and its experiments |
//!
//! An address space is one of three ([`Kind`]): threads of the core over activations, threads of
//! the core over kernel threads that give no upcalls, or plain kernel threads. Without upcalls means:
//! the kernel refuses every kernel thread beyond one a virtual processor, so that the core, which
//! works on without standbys, loses a processor with each thread that blocks; and an idle virtual
//! processor spins, as that of the original FastThreads.

pub mod costs;
pub mod latency;
pub mod machine;
pub mod nbody;

pub use costs::Costs;
pub use machine::setup::{Kind, Outcome, Program, Report, Scheduling, Setup};
pub use machine::simulate;
pub use machine::threads::{Me, Mutex, Word};
