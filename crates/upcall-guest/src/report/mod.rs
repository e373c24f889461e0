//! What the program is told about itself: deadlocks, and the counters at its end.

pub mod backtrace;
pub mod stats;
pub mod stuck;
