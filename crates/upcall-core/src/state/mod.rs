//! The records that point to one another: threads, activations, virtual processors, and the lists in which they hang.

pub mod activation;
pub(crate) mod activation_list;
pub mod inside;
pub(crate) mod ranked;
pub(crate) mod ready;
pub mod thread;
pub(crate) mod thread_list;
pub mod vp;
pub(crate) mod wait;
