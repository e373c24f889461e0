//! The poller's descriptors: an epoll instance with an eventfd and a timerfd in it.
//!
//! A program may install a seccomp filter that forbids the calls which make them, and create its first thread afterwards.
//! So [`open`] makes them before the program installs a filter, and the runtime takes them when it starts.

use core::sync::atomic::{AtomicI32, Ordering};

use upcall_core::Errno;

use super::{ALARM, EPOLL_CTL_ADD, EPOLLIN, KICK, control};
use crate::sys::{self, descriptors, error};

/// What was made before; -1: nothing.
static PREPARED: [AtomicI32; 3] = [const { AtomicI32::new(-1) }; 3];

/// Makes them, if they are not there. The process has one kernel thread, and no runtime.
pub fn open() {
    if PREPARED[0].load(Ordering::Relaxed) >= 0 {
        return;
    }
    // Without them the start of a runtime fails later, as it would now.
    if let Ok(made) = make() {
        for (own, descriptor) in PREPARED.iter().zip(made) {
            own.store(descriptor, Ordering::Relaxed);
        }
    }
}

/// The process is the child of a fork: what was made is its parent's.
// Beside what else a fork runs (ADR 32).
#[unsafe(link_section = ".text.forks")]
pub fn forget() {
    for own in &PREPARED {
        let descriptor = own.load(Ordering::Relaxed);
        // Where there is none the child writes nothing, which would copy a page.
        if descriptor >= 0 {
            own.store(-1, Ordering::Relaxed);
            descriptors::give_back(descriptor);
        }
    }
}

/// What was made before, or new ones.
pub(super) fn take() -> Result<[i32; 3], Errno> {
    let prepared = PREPARED
        .each_ref()
        .map(|own| own.swap(-1, Ordering::Relaxed));
    if prepared[0] >= 0 {
        return Ok(prepared);
    }
    make()
}

fn make() -> Result<[i32; 3], Errno> {
    // SAFETY: new descriptors.
    let (epoll, kick, alarm) = unsafe {
        let epoll = descriptors::keep(sys!(sys::SYS_epoll_create1, libc::EPOLL_CLOEXEC))?;
        let kick = descriptors::keep(sys!(
            sys::SYS_eventfd2,
            0,
            libc::EFD_CLOEXEC | libc::EFD_NONBLOCK
        ))?;
        let alarm = descriptors::keep(sys!(
            sys::SYS_timerfd_create,
            libc::CLOCK_MONOTONIC,
            libc::TFD_CLOEXEC | libc::TFD_NONBLOCK
        ))?;
        (epoll, kick, alarm)
    };
    for (descriptor, data) in [(kick, KICK), (alarm, ALARM)] {
        let answer = control(epoll, EPOLL_CTL_ADD, descriptor, EPOLLIN, data);
        if let Some(number) = error(answer) {
            return Err(Errno(number));
        }
    }
    Ok([epoll, kick, alarm])
}
