//! The BPF half of the daemon: programs that write what the kernel's scheduler does with the kernel threads of observed
//! processes into pages which those processes map read-only ([`upcall_abi::Observed`]), and a scheduler of sched_ext.
//!
//! 1. [`Observatory::start`] loads the programs, attaches them, and makes sure that they see this process.
//! 2. [`Observatory::observe`] makes a page for a process. Its descriptor is for that process.
//! 3. Dropping the [`Page`] ends it. So does the end of this process, however it comes: the kernel takes the programs away.
//!
//! [`Scheduler::start`] puts the scheduler in force for the whole machine. It ends when it is dropped, with this process, and when the
//! kernel ends it ([`Ended`]): then the kernel's own scheduler has all kernel threads again.
//!
//! The feature `bpf` links libbpf. Without it, or if no compiler was there for the BPF object, [`Observatory::start`] says so.
//! What is decided, and why, is in ADR 43 and ADR 55.

mod ended;
#[cfg(with_object)]
mod load;
#[cfg(with_object)]
mod map;
#[cfg(with_object)]
mod object;
#[cfg(with_object)]
mod scheduler;
mod trouble;
#[cfg(not(with_object))]
mod without;

pub use ended::{Counts, Ended, Then};
#[cfg(with_object)]
pub use load::{Observatory, Page};
#[cfg(with_object)]
pub use scheduler::Scheduler;
pub use trouble::Trouble;
#[cfg(not(with_object))]
pub use without::{Observatory, Page, Scheduler};

/// The BPF objects that observe and that schedule, for tests of their layout; `None`: this build has none.
pub const OBJECTS: Option<[&[u8]; 2]> = objects();

#[cfg(with_object)]
const fn objects() -> Option<[&'static [u8]; 2]> {
    Some([load::OBJECT, scheduler::OBJECT])
}

#[cfg(not(with_object))]
const fn objects() -> Option<[&'static [u8]; 2]> {
    None
}
