//! What is done with an activation: its kernel thread, its time slices, its signals, and its thread's attributes.

mod begin;
pub mod preempt;
mod resting;
pub mod spawn;
