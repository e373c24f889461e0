//! What is done with an activation: its kernel thread, its time slices, its signals, and its thread's attributes.

pub mod cpu_time;
pub mod preempt;
mod resting;
pub mod slack;
pub mod spawn;
