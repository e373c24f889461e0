//! Time limits: moments of CLOCK_MONOTONIC.

use std::time::{Duration, Instant};

use libc::{c_int, timespec};
use upcall::raw::Deadline;

const SECOND: u64 = 1_000_000_000;

/// The moment; `None`: beyond what the clock can say, which is never.
///
/// # Errors
///
/// EINVAL: it is not a time.
pub(crate) fn limit(time: &timespec) -> Result<Option<Deadline>, c_int> {
    if !(0..SECOND as i64).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    // Before the clock began: over.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let ns = seconds
        .checked_mul(SECOND)
        .and_then(|ns| ns.checked_add(time.tv_nsec as u64));
    Ok(ns.map(Deadline::at))
}

fn now() -> timespec {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the structure; the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time
}

/// The moment, for the crate.
fn instant(time: &timespec) -> Instant {
    let ns =
        |time: &timespec| i128::from(time.tv_sec) * i128::from(SECOND) + i128::from(time.tv_nsec);
    let ahead = u64::try_from(ns(time) - ns(&now())).unwrap_or(0);
    let clock = Instant::now();
    clock
        .checked_add(Duration::from_nanos(ahead))
        .unwrap_or(clock)
}

c_functions! {
    /// The calling thread's work must be done by then.
    fn upcall_thread_setdeadline(deadline: *const timespec) -> c_int {
        let deadline = at!(deadline);
        if let Err(number) = limit(deadline) {
            return number;
        }
        upcall::thread::set_deadline(instant(deadline));
        0
    }

    /// The moment so many nanoseconds from now.
    fn upcall_deadline(deadline: *mut timespec, ns: u64) -> c_int {
        let now = now();
        let part = now.tv_nsec as u64 + ns % SECOND;
        let seconds = (ns / SECOND + part / SECOND) as i64;
        put!(deadline, timespec {
            tv_sec: now.tv_sec.saturating_add(seconds),
            tv_nsec: (part % SECOND) as i64,
        });
        0
    }

    /// Sleeps for this time; signals do not end it.
    fn upcall_thread_sleep(ns: u64) -> () {
        let mut until = now();
        // SAFETY: a structure of ours.
        unsafe { upcall_deadline(&raw mut until, ns) };
        // SAFETY: a structure of ours. The call answers its error, and leaves errno alone.
        while unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const until,
                std::ptr::null_mut(),
            )
        } == libc::EINTR
        {}
    }
}
