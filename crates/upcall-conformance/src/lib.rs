//! The kernel conformance suite: what must hold on every kernel under the runtime.
//!
//! A [`Scenario`] is written once, over a [`World`]: threads, and what the kernel does to them. It
//! asserts by progress and order: a thread that must run now is one for which another waits,
//! computing, so that a scenario that fails does not end. Nothing is measured against a clock; the
//! only times are the guard of whoever runs it, and how long a call takes that ends by itself.
//! What must have happened meanwhile is asked of the [`Counters`] that `--stats` prints.
//!
//! | world | what |
//! |---|---|
//! | [`sim`] | the simulated machine of `upcall-sim`, with many seeds |
//! | [`threads`] | a program with kernel threads: under `upcall run` the backend's world; natively the check of the scenarios themselves |
//!
//! `tests/sim.rs` and `tests/standby.rs` run every scenario with 1, 2 and 4 virtual processors. A later
//! backend is one more way to start the program, or a world of its own. That each scenario can fail
//! is shown by `tests/mutants.rs`: for each a line of the runtime, or of a backend, that is changed, and
//! the scenario then fails.

pub mod scenarios;
pub mod sim;
pub mod threads;
pub mod world;

pub use scenarios::{Scenario, scenarios};
pub use world::{Counters, Kind, Slices, World};
