//! What is reported about the program: deadlocks, backtraces, the counters at its end, and to debuggers where everything
//! is.

pub mod backtrace;
pub mod description;
pub mod stats;
pub mod stuck;
mod text;
