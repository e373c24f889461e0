//! The records that point to one another: threads, activations, virtual processors, and the lists in which they hang.

pub(crate) mod activation;
pub(crate) mod inside;
pub(crate) mod ranked;
pub(crate) mod ready;
pub(crate) mod section;
pub(crate) mod thread;
pub(crate) mod vp;
pub(crate) mod wait;
