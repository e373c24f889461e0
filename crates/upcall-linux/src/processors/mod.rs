//! Where virtual processors are: which processors the program may use, and what else runs on them.

pub(crate) mod affinity;
pub(crate) mod asked;
pub(crate) mod binding;
pub(crate) mod load;
pub mod placement;
pub(crate) mod slice;
