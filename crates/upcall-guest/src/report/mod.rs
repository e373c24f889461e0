//! What is reported about the program: deadlocks, backtraces, and the counters at its end.

pub mod backtrace;
pub mod stats;
pub mod stuck;
