//! Code that is a critical section: a thread that is stopped in it is in one (Anderson et al. 1991, section 4.3).
//!
//! A range of code makes no store where a thread enters or leaves it. So the runtime looks where the thread *is*, in the handler
//! that has stopped it, before it decides if another one runs:
//!
//! 1. Stopped in such code, the thread enters a section on its own behalf ([`Thread::enter_section`]), and goes on. A timer of real
//!    time stops it again soon, and again, because the end of its slice is overdue.
//! 2. Stopped outside, it leaves that section. If others were to run meanwhile, its slice is over now.
//!
//! The timer belongs to the activation, is made when it is needed first, and rests as soon as its activation is stopped with a
//! thread that is in no such code. A thread that blocks in the code, and leaves it on another activation, is in the section
//! until it is stopped the next time: at the end of a slice.
//!
//! Where a thread is nearly always in such code it may be met there each time, as if it had never left: the bound holds.
//!
//! Without a timer (the kernel refuses one) the ends of slices decide, and end the section after some of them, as they do for
//! every section that does not end.
//!
//! Approaches rejected: to copy the code and continue in the copy, as the paper does, needs a post-processor for each compiler;
//! to step through the code with the trap flag takes a signal for each instruction, and a debugger would see each.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use upcall_core::Errno;

use crate::activation::preempt;
use crate::state::{Activation, Thread};

/// So many ranges can be registered.
pub const MOST: usize = 16;
/// How often a thread is stopped that is to leave the code, in nanoseconds.
const WATCH_NS: u64 = 50_000;

/// The beginning and the end of each range.
static RANGES: [[AtomicUsize; 2]; MOST] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; MOST];
/// How many are being registered, or are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Makes a range of code a critical section, for as long as the process lives.
///
/// # Errors
///
/// - `EINVAL`: it is empty.
/// - `ENOSPC`: there are [`MOST`] already.
pub fn register(range: Range<usize>) -> Result<(), Errno> {
    if range.is_empty() {
        return Err(Errno(libc::EINVAL));
    }
    let is_there = |[begin, end]: &[AtomicUsize; 2]| {
        end.load(Ordering::Acquire) == range.end && begin.load(Ordering::Relaxed) == range.start
    };
    if RANGES.iter().any(is_there) {
        return Ok(());
    }
    let more = |count| (count < MOST).then_some(count + 1);
    let place = COUNT
        .try_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .map_err(|_| Errno(libc::ENOSPC))?;
    RANGES[place][0].store(range.start, Ordering::Relaxed);
    // Release: who sees the end sees the beginning.
    RANGES[place][1].store(range.end, Ordering::Release);
    Ok(())
}

/// Returns true if a range is registered that has this address.
fn holds(pc: usize) -> bool {
    let count = COUNT.load(Ordering::Relaxed);
    RANGES.iter().take(count).any(|[begin, end]| {
        let end = end.load(Ordering::Acquire);
        pc < end && begin.load(Ordering::Relaxed) <= pc
    })
}

/// The thread of `activation`, the calling one, was stopped at `pc`, in its own code. Returns true if it has left such code
/// where it kept others from running: its time slice is over.
#[inline]
pub fn stopped_at(activation: &Activation, thread: &Thread, pc: usize) -> bool {
    COUNT.load(Ordering::Relaxed) != 0 && look(activation, thread, pc)
}

#[cold]
fn look(activation: &Activation, thread: &Thread, pc: usize) -> bool {
    let within = &thread.kernel.in_critical_code;
    let was_inside = within.load(Ordering::Relaxed);
    if !holds(pc) {
        rest(activation);
        within.store(false, Ordering::Relaxed);
        return was_inside && thread.leave_section();
    }
    if !was_inside {
        within.store(true, Ordering::Relaxed);
        thread.enter_section();
    }
    false
}

/// The thread that was stopped goes on, on `activation`, the calling one, with all signals blocked. Not before: the runtime may take
/// longer than the timer, which rests when it meets that.
#[inline]
pub fn goes_on(activation: &Activation, thread: &Thread) {
    let within = &thread.kernel.in_critical_code;
    // A section that has lasted too long protects no more.
    if within.load(Ordering::Relaxed) && thread.is_in_section() {
        preempt::watch(activation, WATCH_NS);
    }
}

/// The calling activation was stopped where its thread is in no code of its own.
#[inline]
pub fn rest(activation: &Activation) {
    preempt::end_watch(activation);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_registered_once_and_until_there_is_no_room() {
        assert_eq!(register(70..70), Err(Errno(libc::EINVAL)));
        for _ in 0..2 {
            for begin in 0..MOST {
                assert_eq!(register(begin * 100 + 10..begin * 100 + 20), Ok(()));
            }
        }
        assert_eq!(register(5000..5001), Err(Errno(libc::ENOSPC)));
        assert!(holds(10) && holds(19) && holds(1510) && !holds(20) && !holds(9) && !holds(5000));
    }
}
