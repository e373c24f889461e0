//! What a run is given: the kind of machine, and how much of what its seed gives happens.

pub mod plan;
pub mod style;
