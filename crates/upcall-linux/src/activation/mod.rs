//! What the backend does to an activation: it starts its kernel thread, ends its time slices, interrupts it and sets its
//! signal mask.

mod begin;
pub mod critical_code;
pub mod preempt;
mod resting;
pub mod spawn;
