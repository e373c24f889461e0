//! What a run is given: the kind of machine, and how much of what its seed gives happens.

pub(crate) mod plan;
pub(crate) mod style;
