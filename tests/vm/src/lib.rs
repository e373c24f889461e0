//! What the programs of `tests/vm` share: system calls by name, a block of memory in which
//! a load counts its progress, and reports.
//!
//! Each program prints JSON lines on stdout and a table for people on stderr, and exits
//! with 1 when a bound that it was given is violated.

pub mod progress;
pub mod report;
pub mod sys;
