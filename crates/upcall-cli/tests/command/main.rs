//! The `upcall` command from outside: exit statuses, streams, what it passes on.

mod bench;
mod common;
mod doctor;
mod ps;
#[cfg(front)]
mod remembered;
mod report;
mod run;
mod show;
mod stacks;
#[cfg(target_arch = "x86_64")]
mod top;
