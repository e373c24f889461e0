//! Serving system calls: the table of all calls, and the functions that it names.

pub mod again;
pub mod attributes;
pub mod capabilities;
pub mod credentials;
pub mod direct;
pub mod futex_calls;
pub mod helpers;
pub mod ids;
pub mod io;
pub mod keyrings;
pub mod kill;
pub mod of_bound;
pub mod pi;
pub mod poll;
pub mod procfs;
pub mod segments;
pub mod select;
pub mod serve;
pub mod table;
pub mod time;
pub mod uring;
pub mod wait;
