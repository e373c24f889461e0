//! Keeps the runtime's own descriptors out of the program's way, at the top of the descriptor table.
//!
//! The kernel gives a new descriptor the lowest free number. So a file that the runtime opens is for a moment where the
//! program may put one of its own: dup2(2) to that number would replace the runtime's file, and the runtime would then
//! close the program's. While program threads run, each such moment is an [`Opening`], and the program's dup2(2) is made in
//! [`place`]. Neither begins while the other is under way. Both give up waiting after a while: the other side may be
//! blocked in the kernel, or below the caller on its stack.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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

/// How many [`Opening`]s there are, and how many calls are in [`place`].
static OPENING: AtomicU32 = AtomicU32::new(0);
static PLACING: AtomicU32 = AtomicU32::new(0);
/// The largest number of yields in a wait for the other side.
const YIELDS: u32 = 1000;

fn leave(count: &AtomicU32) {
    // The child of a fork may have begun anew in between.
    let _ = count.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |count| {
        count.checked_sub(1)
    });
}

/// Yields the processor until the count is zero, or a while has passed.
fn wait_until_none(count: &AtomicU32) {
    let mut yields = 0;
    while count.load(Ordering::SeqCst) != 0 && yields < YIELDS {
        sys::yield_processor();
        yields += 1;
    }
}

/// While this lives, the runtime may have a file at a low number.
pub struct Opening(());

/// Called before the runtime opens a file while program threads may run.
#[must_use]
pub fn opening() -> Opening {
    // SeqCst, as in `place`: one of the two sees the other.
    OPENING.fetch_add(1, Ordering::SeqCst);
    wait_until_none(&PLACING);
    Opening(())
}

impl Drop for Opening {
    fn drop(&mut self) {
        leave(&OPENING);
    }
}

/// Makes a call of the program's that puts a file at a number of its choice.
pub fn place<T>(call: impl FnOnce() -> T) -> T {
    let mut yields = 0;
    PLACING.fetch_add(1, Ordering::SeqCst);
    while OPENING.load(Ordering::SeqCst) != 0 && yields < YIELDS {
        leave(&PLACING);
        sys::yield_processor();
        PLACING.fetch_add(1, Ordering::SeqCst);
        yields += 1;
    }
    let answer = call();
    leave(&PLACING);
    answer
}

/// Called before the program closes a number, or gets the lowest free one.
#[inline]
pub fn wait_for_openings() {
    wait_until_none(&OPENING);
}

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
    OPENING.store(0, Ordering::Relaxed);
    PLACING.store(0, Ordering::Relaxed);
    let base = BASE.swap(u64::MAX, Ordering::Relaxed);
    let mut ours = OURS.swap(0, Ordering::Relaxed);
    while ours != 0 {
        let place = ours.trailing_zeros();
        ours &= ours - 1;
        // SAFETY: a descriptor of ours that nobody uses any more.
        unsafe { sys!(sys::SYS_close, base as usize + place as usize) };
    }
}

/// Ends the process with SIGABRT, whatever handlers the program has. It may be a child of fork(2), with its parent's runtime.
pub fn abort() -> ! {
    let default = [0usize; 4];
    loop {
        // SAFETY: the process ends here.
        unsafe {
            sys!(sys::SYS_rt_sigaction, libc::SIGABRT, default.as_ptr(), 0, 8);
            sys::set_signal_mask(0);
            let (pid, tid) = (sys!(sys::SYS_getpid), sys!(sys::SYS_gettid));
            sys!(SYS_KILL, pid, tid, libc::SIGABRT);
            sys!(sys::SYS_exit_group, 134);
        }
    }
}
