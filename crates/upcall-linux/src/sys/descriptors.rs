//! Keeps the runtime's own descriptors out of the program's way, at the top of the descriptor table.

use core::sync::atomic::{AtomicU64, Ordering};

use upcall_core::Errno;

use crate::sys::{self, error};

/// Below the limit by so much, to leave the program the very top; of a low limit, the upper half.
const BELOW_LIMIT: usize = 64;
/// Never above this: the kernel's table grows with the largest number.
const HIGHEST: usize = 1 << 16;
const SYS_PRLIMIT64: i64 = libc::SYS_prlimit64;
const SYS_KILL: i64 = libc::SYS_tgkill;

/// One bit for each of the 64 numbers from `base` that is ours.
static BASE: AtomicU64 = AtomicU64::new(u64::MAX);
static OURS: AtomicU64 = AtomicU64::new(0);

fn base() -> usize {
    let known = BASE.load(Ordering::Relaxed);
    if known != u64::MAX {
        return known as usize;
    }
    // The usual one, if it is not told.
    let mut limit = [1024u64; 2];
    // SAFETY: writes two words.
    unsafe { sys!(SYS_PRLIMIT64, 0, libc::RLIMIT_NOFILE, 0, limit.as_mut_ptr()) };
    let limit = limit[0].min(HIGHEST as u64) as usize;
    let base = limit.saturating_sub(BELOW_LIMIT).max(limit / 2);
    BASE.store(base as u64, Ordering::Relaxed);
    base
}

/// Moves a new descriptor to where the program does not look, closed on exec.
///
/// # Errors
///
/// `EMFILE` when there is no room.
pub fn keep(answer: sys::Answer) -> Result<i32, Errno> {
    if let Some(number) = error(answer) {
        return Err(Errno(number));
    }
    let moved = keep_copy(answer as i32);
    // SAFETY: closes a descriptor that we just opened.
    unsafe { sys!(sys::SYS_close, answer) };
    moved
}

/// Another number for a descriptor of the program, where the program does not look, closed on exec.
///
/// # Errors
///
/// `EMFILE` when there is no room, `EBADF` when it is not open.
pub fn keep_copy(descriptor: i32) -> Result<i32, Errno> {
    // SAFETY: duplicates a descriptor.
    let copy = unsafe { sys!(sys::SYS_fcntl, descriptor, libc::F_DUPFD_CLOEXEC, base()) };
    if let Some(number) = error(copy) {
        return Err(Errno(number));
    }
    let place = copy as usize - base();
    if place < 64 {
        OURS.fetch_or(1 << place, Ordering::Relaxed);
    }
    Ok(copy as i32)
}

/// Closes what [`keep_copy`] has given.
pub fn give_back(descriptor: i32) {
    let place = descriptor as usize - base();
    if place < 64 {
        OURS.fetch_and(!(1 << place), Ordering::Relaxed);
    }
    // SAFETY: a descriptor of ours that nobody uses any more.
    unsafe { sys!(sys::SYS_close, descriptor) };
}

/// Moves one of many descriptors up, beyond what [`is_ours`] answers for, when there is room.
pub(crate) fn keep_many(answer: sys::Answer) -> Result<i32, Errno> {
    keep(answer)
}

/// Whether a number is one of ours: the program sees it as closed.
#[inline]
pub fn is_ours(descriptor: i32) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    let descriptor = descriptor as i64 as u64;
    descriptor >= base
        && descriptor - base < 64
        && OURS.load(Ordering::Relaxed) & (1 << (descriptor - base)) != 0
}

/// The first and the number after the last of ours, if there are any.
pub fn range() -> Option<(u32, u32)> {
    let ours = OURS.load(Ordering::Relaxed);
    (ours != 0).then(|| {
        let base = BASE.load(Ordering::Relaxed) as u32;
        (
            base + ours.trailing_zeros(),
            base + u64::BITS - ours.leading_zeros(),
        )
    })
}

/// Closes all of ours: the child of a fork starts anew, under a limit that may be lower by then.
pub fn close_all() {
    let base = BASE.swap(u64::MAX, Ordering::Relaxed);
    let mut ours = OURS.swap(0, Ordering::Relaxed);
    while ours != 0 {
        let place = ours.trailing_zeros();
        ours &= ours - 1;
        // SAFETY: a descriptor of ours that nobody uses any more.
        unsafe { sys!(sys::SYS_close, base as usize + place as usize) };
    }
}

/// Ends the process with SIGABRT, whatever handlers the program has.
pub fn abort(pid: i32) -> ! {
    let default = [0usize; 4];
    loop {
        // SAFETY: the process ends here.
        unsafe {
            sys!(sys::SYS_rt_sigaction, libc::SIGABRT, default.as_ptr(), 0, 8);
            sys::set_signal_mask(0);
            let tid = sys!(sys::SYS_gettid);
            sys!(SYS_KILL, pid, tid, libc::SIGABRT);
            sys!(sys::SYS_exit_group, 134);
        }
    }
}
