//! Tells whether an activation is blocked.

pub mod observe;
pub mod page;
pub(crate) mod watch;
