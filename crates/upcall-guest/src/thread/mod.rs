//! Threads of the program: how they begin and end, and what the kernel would keep for each.

pub mod affinity;
pub mod agents;
pub mod bound;
pub mod deadlines;
pub mod kept_stacks;
pub mod lending;
pub mod lifetime;
pub mod listed;
pub mod names;
pub mod outside;
pub mod robust;
pub mod scheduling;
pub mod shell;
pub mod sleep;
pub mod spin;
