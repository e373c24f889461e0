//! Unmodified programs: libc as the guest of the runtime.
//!
//! The crate takes the place of the kernel under libc. It finds the `syscall` instructions of
//! every loaded object at start ([`site`]), moves each into a stub ([`stub`]) and overwrites it
//! with a jump there ([`patch`]); the stub enters the runtime with a complete [`entry::Frame`].
//! What cannot be rewritten is refused with a reason and left to [`sud`]; [`dispatch`] says when.
//!
//! On another processor than x86-64 the library is empty and `upcall run` refuses
//! (`upcall_linux::arch::SERVES_PROGRAMS`). One more processor is a folder beside `arch::x86_64`
//! (entry, search, raw calls), its decoder in [`site`] and [`code`], its jumps in [`stub`] and
//! [`patch`], and its signal frames in [`signal`].
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

/// The calls that wait for descriptors, as a pattern.
macro_rules! descriptor_waits {
    () => {
        libc::SYS_poll
            | libc::SYS_ppoll
            | libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
    };
}

pub mod access;
pub mod again;
pub mod agents;
pub mod alone;
pub mod arch;
pub mod arena;
pub mod attributes;
pub mod backtrace;
pub mod bound;
pub mod caller;
pub mod carried;
pub mod cfi;
pub mod code;
pub mod credentials;
pub mod deadlines;
pub mod direct;
pub mod dispatch;
pub mod entry;
pub mod futex;
pub mod guest;
pub mod heap;
mod helpers;
pub mod identity;
pub mod ids;
pub mod io;
pub mod keyrings;
pub mod kill;
pub mod lists;
pub mod loads;
pub mod masks;
pub mod memory;
pub mod names;
pub mod object;
mod obstacle;
pub mod outside;
pub mod patch;
pub mod pending;
pub mod pi;
pub mod poll;
pub mod preload;
pub mod process;
pub mod procfs;
pub mod receivers;
pub mod robust;
pub mod scheduling;
pub mod segments;
pub mod select;
pub mod settled;
pub mod shell;
pub mod signal;
pub mod site;
pub mod start;
pub mod stats;
pub mod stub;
pub mod stuck;
pub mod sud;
pub mod table;
mod text;
pub mod threads;
pub mod time;
pub mod timers;
pub mod unwind;
pub mod urgency;
pub mod uring;
pub mod user_dispatch;
