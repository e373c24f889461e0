//! Runs: the machine's loop, many seeds one after the other, and the report of a run that fails.

mod bound;
pub mod drive;
mod events;
pub(crate) mod explore;
mod report;
mod shared;
mod shrink;
