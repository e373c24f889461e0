//! Knows which processors the program may use, how busy they are, and where activations are bound.

pub(crate) mod affinity;
pub(crate) mod asked;
pub(crate) mod binding;
pub(crate) mod load;
pub mod placement;
pub mod quota;
pub(crate) mod slice;
