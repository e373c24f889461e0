//! Threads with deadlines: SCHED_DEADLINE of sched(7), where `--policy=deadline` orders the program's threads.
//!
//! A thread tells how much processor time each of its jobs takes (*runtime*), when a job must be done after its release
//! (*deadline*), and the time from one release to the next (*period*). Jobs with the earliest deadline run first (Liu and
//! Layland 1973), on all virtual processors, before threads without one. This needs no privilege: threads share only the
//! program's own processors.
//!
//! - A job is released when the thread asks for deadlines, and when it wakes a period or more after the last release.
//! - sched_yield(2) ends a job: the thread waits for the next release.
//! - A job that has had its runtime and computes on is due a period later, as if it were the next one (the constant
//!   bandwidth server of Abeni and Buttazzo 1998). It takes nothing from threads that keep to theirs. This is checked where
//!   time slices end.
//!
//! *Unlike the kernel:* nothing checks that all deadlines can be met (EBUSY). A job that has had its runtime is not stopped
//! while a processor is free. A thread with deadlines may make threads, which begin without any.
//!
//! Rejected: a rank that the core computes when a thread becomes ready. The thread itself finds that a period is over,
//! before it returns from the call in which it waited; and a thread that sleeps knows when it will wake.

use core::sync::atomic::{AtomicU64, Ordering};

use upcall_core::{Machine, Rank, SpinLock};
use upcall_linux::{Inside, Runtime, Thread, cpu_time};

use crate::ground::access;
use crate::ground::attributes::{GuestAttributes, Job};
use crate::ground::entry::Frame;
use crate::ground::state::{GUEST, Policy};
use crate::signal::pending;
use crate::thread::scheduling::at;
use crate::thread::{lending, sleep};

const EFAULT: i64 = -(libc::EFAULT as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);
const E2BIG: i64 = -(libc::E2BIG as i64);

/// Of struct sched_attr as it first was (SCHED_ATTR_SIZE_VER0).
const SIZE: u32 = 48;
/// Accepted, for they change nothing here: SCHED_FLAG_RESET_ON_FORK, SCHED_FLAG_RECLAIM.
const FLAGS: u32 = 1 | 2;

/// A lower value has no meaning, as in the kernel.
const LEAST_RUNTIME: u64 = 1024;

/// Held to change a thread's job.
static JOBS: SpinLock<()> = SpinLock::new(());

/// Called in the child of a fork: the holder of the lock stayed in the parent.
///
/// # Safety
///
/// The only thread of the process.
pub unsafe fn forget_all() {
    // SAFETY: nobody has it, and jobs are of threads that are not here.
    unsafe { JOBS.unlock() };
}

/// What a thread asks for, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted {
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Wanted {
    /// As sched_setattr(2) checks it.
    fn checked(self) -> Result<Self, i64> {
        let Wanted {
            runtime,
            deadline,
            period,
        } = self;
        let period = if period == 0 { deadline } else { period };
        let is_valid =
            (LEAST_RUNTIME..=deadline).contains(&runtime) && deadline <= period && period < 1 << 63;
        is_valid.then_some(Wanted { period, ..self }).ok_or(EINVAL)
    }
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Returns a job that is released then, of a thread that has had this much processor time before.
fn release(job: &Job, when: u64, before: u64) {
    let due = when.saturating_add(load(&job.deadline));
    let next = when.saturating_add(load(&job.period));
    job.due.store(due, Ordering::Relaxed);
    job.next.store(next, Ordering::Relaxed);
    job.before.store(before, Ordering::Relaxed);
}

/// Jobs come first, and there is no later one than the common rank.
fn rank(due: u64) -> Rank {
    Rank(due.min(Rank::COMMON.0 - 1))
}

/// Returns true if threads are ordered by their deadlines.
#[inline]
pub fn order() -> bool {
    GUEST.policy() == Policy::Deadline
}

/// Returns true if a thread has asked for deadlines, which count.
#[inline]
pub fn has(thread: &'static Thread) -> bool {
    order() && load(&thread.guest().job.period) != 0
}

/// Called when a thread begins, or has no deadlines any more.
pub fn forget(thread: &'static Thread) {
    thread.guest().job.period.store(0, Ordering::Relaxed);
}

/// Serves calls that ask for deadlines, or how a thread that has them is scheduled. Returns `None` for other calls.
pub fn serve(
    runtime: &'static Runtime,
    whose: (&'static Thread, i32),
    frame: &Frame,
) -> Option<i64> {
    let has = has(whose.0);
    match frame.rax as i64 {
        libc::SYS_sched_setattr => match access::load_u32(frame.rsi as usize + at::POLICY) {
            Ok(policy) if policy == libc::SCHED_DEADLINE as u32 => Some(match read(frame) {
                Ok(wanted) => change(runtime, whose, Some(wanted)),
                Err(error) => error,
            }),
            _ => None,
        },
        libc::SYS_sched_getscheduler if has => Some(i64::from(libc::SCHED_DEADLINE)),
        libc::SYS_sched_getattr if has => Some(write(&whose.0.guest().job, frame)),
        _ => None,
    }
}

/// Called when a thread has got another policy of sched(7).
pub fn give_up(runtime: &'static Runtime, whose: (&'static Thread, i32)) -> i64 {
    match has(whose.0) {
        true => change(runtime, whose, None),
        false => 0,
    }
}

/// Returns what struct sched_attr asks for.
fn read(frame: &Frame) -> Result<Wanted, i64> {
    let from = frame.rsi as usize;
    let word = |offset| access::load_u32(from + offset).map_err(|_| EFAULT);
    let long = |offset| access::load_u64(from + offset).map_err(|_| EFAULT);
    match word(at::SIZE)? {
        0 | SIZE.. => {}
        _ => {
            let _ = access::store_u32(from + at::SIZE, SIZE);
            return Err(E2BIG);
        }
    }
    let flags = long(at::FLAGS)?;
    if frame.rdx != 0 || flags & !u64::from(FLAGS) != 0 || word(at::PRIORITY)? != 0 {
        return Err(EINVAL);
    }
    let wanted = Wanted {
        runtime: long(at::RUNTIME)?,
        deadline: long(at::DEADLINE)?,
        period: long(at::PERIOD)?,
    };
    wanted.checked()
}

/// Fills struct sched_attr.
fn write(job: &Job, frame: &Frame) -> i64 {
    let to = frame.rsi as usize;
    if frame.r10 != 0 || frame.rdx < u64::from(SIZE) {
        return EINVAL;
    }
    let mut words = [0u32; SIZE as usize / 4];
    words[at::SIZE / 4] = SIZE;
    words[at::POLICY / 4] = libc::SCHED_DEADLINE as u32;
    for (offset, value) in [
        (at::RUNTIME, load(&job.runtime)),
        (at::DEADLINE, load(&job.deadline)),
        (at::PERIOD, load(&job.period)),
    ] {
        words[offset / 4] = value as u32;
        words[offset / 4 + 1] = (value >> 32) as u32;
    }
    for (index, word) in words.into_iter().enumerate() {
        if access::store_u32(to + 4 * index, word).is_err() {
            return EFAULT;
        }
    }
    0
}

/// Gives a thread these deadlines, or none.
fn change(runtime: &'static Runtime, whose: (&'static Thread, i32), wanted: Option<Wanted>) -> i64 {
    let before = cpu_time::of(whose.0);
    let changed = pending::while_it_lives(runtime, whose, |inside| {
        let _jobs = JOBS.lock(runtime.kernel());
        let job = &whose.0.guest().job;
        let rank = match wanted {
            Some(wanted) => {
                job.runtime.store(wanted.runtime, Ordering::Relaxed);
                job.deadline.store(wanted.deadline, Ordering::Relaxed);
                job.period.store(wanted.period, Ordering::Relaxed);
                release(job, runtime.kernel().now(), before);
                rank(load(&job.due))
            }
            None => {
                forget(whose.0);
                Rank::COMMON
            }
        };
        lending::set_own(inside, whose.0, rank);
    });
    match changed {
        Some(()) => 0,
        None => -i64::from(libc::ESRCH),
    }
}

/// Changes the calling thread's job, and has it count.
fn alter(runtime: &'static Runtime, thread: &'static Thread, alter: impl FnOnce(&Job) -> u64) {
    let inside = runtime.enter();
    {
        let _jobs = JOBS.lock(runtime.kernel());
        // Another thread may have taken its deadlines away.
        if has(thread) {
            let due = alter(&thread.guest().job);
            lending::set_own(&inside, thread, rank(due));
        }
    }
    inside.leave();
}

/// Called when the calling thread is about to sleep until then, perhaps into its next job: it wakes as urgent as that job.
#[inline]
pub fn will_wake(runtime: &'static Runtime, thread: &'static Thread, when: u64) {
    if has(thread) && when >= load(&thread.guest().job.next) {
        alter(runtime, thread, |job| {
            when.saturating_add(load(&job.deadline))
        });
    }
}

/// Called when the calling thread is about to return from a call in which it may have waited.
#[inline]
pub fn came_back(runtime: &'static Runtime, thread: &'static Thread) {
    if has(thread) {
        renew(runtime, thread);
    }
}

#[cold]
fn renew(runtime: &'static Runtime, thread: &'static Thread) {
    let job = &thread.guest().job;
    let now = runtime.kernel().now();
    let is_new = now >= load(&job.next);
    if is_new || lending::own_rank(thread) != rank(load(&job.due)) {
        let before = cpu_time::of(thread);
        alter(runtime, thread, |job| {
            if is_new {
                release(job, now, before);
            }
            load(&job.due)
        });
    }
}

/// Ends the calling thread's job, and waits for the next release.
pub fn end_job(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let next = load(&thread.guest().job.next);
    while runtime.kernel().now() < next {
        // Handlers may run meanwhile.
        sleep::sleep(runtime, thread, frame, next, 0);
    }
    let (now, before) = (runtime.kernel().now(), cpu_time::of(thread));
    alter(runtime, thread, |job| {
        // A job that is late by more than a period does not make up for those left out.
        let is_late = now - next >= load(&job.period);
        release(job, if is_late { now } else { next }, before);
        load(&job.due)
    });
    0
}

/// Called at the end of a time slice of a thread, which is parked. A job that has had its runtime is
/// due a period later.
pub fn tick(inside: &Inside, thread: &'static Thread) {
    if !has(thread) {
        return;
    }
    let _jobs = JOBS.lock(inside.runtime().kernel());
    let job = &thread.guest().job;
    let had = cpu_time::of(thread);
    if had.saturating_sub(load(&job.before)) >= load(&job.runtime) {
        job.before.store(had, Ordering::Relaxed);
        let due = load(&job.due).saturating_add(load(&job.period));
        job.due.store(due, Ordering::Relaxed);
        lending::set_own(inside, thread, rank(due));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sched_setattr_refuses_is_refused() {
        let check = |runtime, deadline, period| {
            let wanted = Wanted {
                runtime,
                deadline,
                period,
            };
            wanted.checked().map(|wanted| wanted.period)
        };
        assert_eq!(check(1024, 2000, 3000), Ok(3000));
        assert_eq!(check(2000, 2000, 0), Ok(2000));
        for (runtime, deadline, period) in [
            (0, 0, 0),
            (1023, 2000, 3000),
            (2001, 2000, 3000),
            (1024, 2000, 1999),
            (1024, 1 << 63, 0),
            (1024, 2000, u64::MAX),
        ] {
            assert_eq!(check(runtime, deadline, period), Err(EINVAL));
        }
    }

    #[test]
    fn a_job_is_due_after_its_release_and_the_next_one_a_period_later() {
        let job = Job::default();
        job.deadline.store(7, Ordering::Relaxed);
        job.period.store(10, Ordering::Relaxed);
        release(&job, 100, 3);
        assert_eq!(
            (load(&job.due), load(&job.next), load(&job.before)),
            (107, 110, 3)
        );
        assert!(rank(107) < rank(108) && rank(u64::MAX) < Rank::COMMON);
    }
}
