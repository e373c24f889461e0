//! Reads what the user asked for: variables and the number of virtual processors. Names the counters.

pub mod own_files;
pub mod statistics;
pub mod variables;
pub mod vp_range;
