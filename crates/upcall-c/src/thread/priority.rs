//! How urgent threads are: sched_setscheduler(2) and setpriority(2), which the guest answers for its threads.

use libc::c_int;

use super::is_own;
use super::record::Record;

/// UPCALL_PRIORITY_….
pub(super) const INHERITED: c_int = 0;
const NORMAL: c_int = 1;
const REALTIME: c_int = 2;
const IDLE: c_int = 3;

/// Returns true if there is such a class, with such a priority; `inherited`: or none is wanted.
pub(super) fn is_one(class: c_int, priority: c_int, inherited: bool) -> bool {
    match class {
        INHERITED => inherited && priority == 0,
        NORMAL => (-20..=19).contains(&priority),
        REALTIME => (1..=99).contains(&priority),
        IDLE => priority == 0,
        _ => false,
    }
}

/// gettid(2) of a thread; 0: the caller.
fn tid(thread: &Record) -> Result<libc::pid_t, c_int> {
    if is_own(thread) {
        return Ok(0);
    }
    let mut clock = 0;
    // SAFETY: a thread that has not ended, as the caller of the function was told.
    match unsafe { libc::pthread_getcpuclockid(thread.identity(), &raw mut clock) } {
        // The clock of a thread's processor time is named by the complement of its id, of which three bits are lost:
        // clock_getcpuclockid(3). No id has them.
        0 => Ok(!(clock >> 3) & (i32::MAX >> 2)),
        number => Err(number),
    }
}

/// The error number of a call that leaves one in errno, which becomes again what it was.
fn answer(call: impl FnOnce() -> c_int) -> Result<c_int, c_int> {
    // SAFETY: the calling thread's.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.replace(0) };
    let answer = call();
    // SAFETY: as above.
    match unsafe { errno.replace(before) } {
        0 => Ok(answer),
        libc::EACCES => Err(libc::EPERM),
        number => Err(number),
    }
}

pub(super) fn set(thread: &Record, class: c_int, priority: c_int) -> c_int {
    let set = || {
        let tid = tid(thread)?;
        let (policy, number) = match class {
            REALTIME => (libc::SCHED_RR, priority),
            IDLE => (libc::SCHED_IDLE, 0),
            _ => (libc::SCHED_OTHER, 0),
        };
        // SAFETY: asks only.
        if class != NORMAL || answer(|| unsafe { libc::sched_getscheduler(tid) })? != policy {
            // SAFETY: all zero is one.
            let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
            parameters.sched_priority = number;
            // SAFETY: reads the structure.
            answer(|| unsafe { libc::sched_setscheduler(tid, policy, &raw const parameters) })?;
        }
        if class == NORMAL {
            // SAFETY: no memory.
            answer(|| unsafe {
                libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), priority)
            })?;
        }
        Ok(())
    };
    set().err().unwrap_or(0)
}

pub(super) fn get(thread: &Record) -> Result<(c_int, c_int), c_int> {
    let tid = tid(thread)?;
    // SAFETY: asks only.
    match answer(|| unsafe { libc::sched_getscheduler(tid) })? {
        libc::SCHED_FIFO | libc::SCHED_RR => {
            // SAFETY: all zero is one.
            let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
            // SAFETY: writes the structure.
            answer(|| unsafe { libc::sched_getparam(tid, &raw mut parameters) })?;
            Ok((REALTIME, parameters.sched_priority))
        }
        libc::SCHED_IDLE => Ok((IDLE, 0)),
        _ => {
            // SAFETY: asks only.
            let nice =
                answer(|| unsafe { libc::getpriority(libc::PRIO_PROCESS, tid.cast_unsigned()) })?;
            Ok((NORMAL, nice))
        }
    }
}
