//! The Rust peers of upcall-workload: the same protocol, and for packages of threads the same
//! workloads, from the same files.

#[path = "../../../src/workload/mod.rs"]
pub mod workload;
