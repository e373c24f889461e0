//! The daemon as it is, with programs under `upcall run` and with clients that do what they like.
//!
//! Nothing here asserts how long something takes. What does not come to pass is a hang, and ends the test after the
//! time of `program_tests::guard::limit`.

mod client;
mod clients;
mod configuration;
mod daemon;
mod impostor;
mod manager;
mod metrics;
mod observed;
mod place;
mod programs;
mod system;
