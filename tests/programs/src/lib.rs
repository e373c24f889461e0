//! Real programs under `upcall run`, each compared with a native run.
//!
//! The protocol of a case:
//!
//! 1. [`source`] compiles a small program (or [`provision`] finds an installed one, installs it,
//!    or skips aloud with the line that would install it).
//! 2. [`case::Case::parity`] runs it natively once, then under the [`launcher`] as often as
//!    `UPCALL_TEST_REPEAT` says, each time in a fresh directory.
//! 3. Bytes on stdout, every produced file and the exit status must be the native run's.
//! 4. [`guard`] bounds each run; a program that hangs is described by [`diagnosis`] (every kernel
//!    thread's system call, kernel stack, and gdb's backtrace) before it is killed by its id.
//!
//! Invariant: a verdict never depends on how long something took. The guard is not an assertion:
//! it only turns a hang into a report.
//!
//! Rejected: recorded expected output. Versions of the real programs differ between machines; the
//! native run beside it is the truth on this one.

pub mod case;
pub mod corpus;
pub mod diagnosis;
pub mod group;
pub mod guard;
pub mod launcher;
pub mod program;
pub mod provision;
pub mod server;
pub mod source;
