//! The BPF half of the daemon: programs that write what the kernel's scheduler does with the kernel threads of observed
//! processes into pages which those processes map read-only ([`upcall_abi::Observed`]).
//!
//! 1. [`Observatory::start`] loads the programs, attaches them, and makes sure that they see this process.
//! 2. [`Observatory::observe`] makes a page for a process. Its descriptor is for that process.
//! 3. Dropping the [`Page`] ends it. So does the end of this process, however it comes: the kernel takes the programs away.
//!
//! The feature `bpf` links libbpf. Without it, or if no compiler was there for the BPF object, [`Observatory::start`] says so.
//! What is decided, and why, is in ADR 43.

#[cfg(with_object)]
mod load;
#[cfg(with_object)]
mod map;
mod trouble;
#[cfg(not(with_object))]
mod without;

#[cfg(with_object)]
pub use load::{Observatory, Page};
pub use trouble::Trouble;
#[cfg(not(with_object))]
pub use without::{Observatory, Page};

/// The BPF object, for tests of its layout; `None`: this build has none.
pub const OBJECT: Option<&[u8]> = object();

#[cfg(with_object)]
const fn object() -> Option<&'static [u8]> {
    Some(load::OBJECT)
}

#[cfg(not(with_object))]
const fn object() -> Option<&'static [u8]> {
    None
}
