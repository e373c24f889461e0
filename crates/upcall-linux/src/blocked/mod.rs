//! Tells whether an activation is blocked.

pub mod observe;
pub(crate) mod watch;
