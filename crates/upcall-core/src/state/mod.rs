//! The records that point to one another: threads, activations, virtual processors, and the lists in which they hang.

pub mod activation;
pub mod inside;
pub(crate) mod ranked;
pub(crate) mod ready;
pub mod thread;
pub mod vp;
pub(crate) mod wait;
