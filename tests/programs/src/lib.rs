//! Real programs under `upcall run`, each compared with a native run.
//!
//! The protocol of a case:
//!
//! 1. [`source`] compiles a test program. For an installed program, [`provision`] finds it or installs it; where it can do
//!    neither, it prints the line that would install it, and the case is skipped.
//! 2. [`case::Case::parity`] runs the program natively once, then under the [`launcher`] as often as
//!    `UPCALL_TEST_REPEAT` says, each time in a fresh directory.
//! 3. The launched run must give the same bytes on stdout, the same files and the same exit status.
//! 4. [`guard`] bounds each run. If a program hangs, [`diagnosis`] describes it (every kernel
//!    thread's system call and kernel stack, and gdb's backtrace) and kills it by its id.
//!
//! Invariant: a verdict never depends on how long something took. The guard is not an assertion:
//! it only turns a hang into a report.
//!
//! Rejected: recorded expected output. Versions of the real programs differ between machines, so the native run on the
//! same machine is the reference.

pub mod case;
pub mod corpus;
pub mod diagnosis;
pub mod group;
pub mod guard;
pub mod launcher;
pub mod program;
pub mod provision;
pub mod release;
pub mod server;
pub mod source;
