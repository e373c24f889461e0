//! What helpers (kernel threads that libc starts for itself, and what a program's function does on one) do with what the
//! runtime keeps: actions of signals, what it knows of descriptors, threads that they signal or name. They have no activation, so nothing here
//! enters the runtime. While one holds a lock of the poller's no signal meets it, whose handler might want that lock.

use upcall_linux::Runtime;
use upcall_linux::descriptors;
use upcall_linux::poller::When;

use crate::entry::Frame;
use crate::guest::GUEST;
use crate::{attributes, ids, names, poll, signal};

const EBADF: i64 = -(libc::EBADF as i64);
/// The ioctl that sets or clears O_NONBLOCK.
const FIONBIO: u64 = 0x5421;

/// Makes the call as it stands.
fn raw(frame: &Frame) -> i64 {
    // SAFETY: the program's own call, as it made it.
    (unsafe { frame.raw() }) as i64
}

/// Serves a call of a helper; `None`: it is the kernel's.
pub fn serve(frame: &Frame) -> Option<i64> {
    let runtime = GUEST.runtime()?;
    let (first, second) = (frame.rdi as i32, frame.rsi as i32);
    Some(match frame.rax as i64 {
        libc::SYS_rt_sigaction => signal::sigaction(frame),
        libc::SYS_open | libc::SYS_openat => names::open(runtime, frame)?,
        libc::SYS_tgkill => {
            let group = Some(first);
            attributes::kill_thread(runtime, frame, second, frame.rdx as i32, group)
        }
        libc::SYS_tkill => attributes::kill_thread(runtime, frame, first, second, None),
        libc::SYS_rt_tgsigqueueinfo => attributes::queue_signal(runtime, frame),
        libc::SYS_signalfd | libc::SYS_signalfd4 => signal::signalfd(frame),
        ids::process_calls!() | libc::SYS_kill | libc::SYS_rt_sigqueueinfo => {
            ids::serve_outside(frame)
        }
        libc::SYS_close if descriptors::is_ours(first) => EBADF,
        libc::SYS_dup2 | libc::SYS_dup3
            if descriptors::is_ours(first) || descriptors::is_ours(second) =>
        {
            EBADF
        }
        libc::SYS_dup2 if first == second => raw(frame),
        libc::SYS_close => forgetting(runtime, frame.rdi as u32..=frame.rdi as u32, || raw(frame)),
        libc::SYS_dup2 | libc::SYS_dup3 => {
            forgetting(runtime, frame.rsi as u32..=frame.rsi as u32, || raw(frame))
        }
        libc::SYS_close_range if attributes::is_closing(frame) => {
            forgetting(runtime, frame.rdi as u32..=frame.rsi as u32, || {
                attributes::close_ranges(frame)
            })
        }
        libc::SYS_close_range => attributes::close_ranges(frame),
        _ => return change_flags(frame),
    })
}

/// A call that may change a description's flags or time limits, by a kernel thread that is no activation; `None`: it is
/// another one.
pub fn change_flags(frame: &Frame) -> Option<i64> {
    let may_change = match frame.rax as i64 {
        libc::SYS_fcntl => frame.rsi as i32 == libc::F_SETFL,
        libc::SYS_ioctl => frame.rsi == FIONBIO,
        libc::SYS_setsockopt => true,
        _ => false,
    };
    let runtime = GUEST.runtime().filter(|_| may_change)?;
    let answer = raw(frame);
    runtime.kernel().poller().flags_change();
    if frame.rax as i64 == libc::SYS_setsockopt {
        poll::note_option(frame);
    }
    Some(answer)
}

/// Makes a call that closes these descriptors, which may wait.
fn forgetting(
    runtime: &'static Runtime,
    closed: core::ops::RangeInclusive<u32>,
    call: impl FnOnce() -> i64,
) -> i64 {
    let forget = |when: When| {
        let before = signal::change_kernel_mask(signal::ALL);
        let poller = runtime.kernel().poller();
        poller.forget_range(runtime, *closed.start(), *closed.end(), when);
        signal::set_kernel_mask(before);
    };
    names::closes(runtime, *closed.start(), *closed.end());
    forget(When::Before);
    let answer = call();
    forget(When::After);
    answer
}
