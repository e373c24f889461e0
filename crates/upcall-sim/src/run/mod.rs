//! Runs: the machine's loop, many seeds one after the other, and what is told of one that fails.

mod bound;
pub mod drive;
mod events;
pub(crate) mod explore;
mod report;
mod shared;
mod shrink;
