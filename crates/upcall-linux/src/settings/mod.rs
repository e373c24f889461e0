//! What the user says: the variables, the number of virtual processors, and the counters' names.

pub mod statistics;
pub mod variables;
pub mod vp_range;
