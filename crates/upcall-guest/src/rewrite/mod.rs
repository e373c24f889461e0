//! The program's code: where its system calls are, and how each becomes a jump to a stub.

pub mod arena;
pub mod cfi;
pub mod code;
pub mod finder;
pub mod kept;
pub mod object;
pub mod patch;
pub mod reaching;
pub mod relocations;
pub mod site;
pub mod stub;
pub mod sud;
pub mod unwind;
