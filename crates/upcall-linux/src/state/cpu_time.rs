//! The processor time of threads: the answer to CLOCK_THREAD_CPUTIME_ID.
//!
//! The kernel counts the time of activations, not of threads. Until the first question, a thread is charged one time slice
//! whenever a slice ends while it runs. That costs nothing. From the first question on, each switch reads the activation's
//! clock. The answers are then exact, except for what the estimate missed before.
//!
//! Rejected: reading the clock at every switch from the start. That would cost more than the switch.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::state::{Activation, Thread, follows};
use crate::sys;

const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
/// CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD_MASK: a kernel thread's clock, with its id above.
const OF_KERNEL_THREAD: i32 = 6;
/// How often a question is asked again when the thread moves meanwhile.
const TRIES: u32 = 100;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Not through the vDSO, which has no answer and would make the program's own call of it.
fn clock(id: i32) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: writes two words.
    unsafe { sys!(sys::SYS_clock_gettime, id, time.as_mut_ptr()) };
    time[0] * 1_000_000_000 + time[1]
}

/// The clock of a kernel thread's processor time.
pub(crate) fn clock_of(tid: i32) -> i32 {
    !tid << 3 | OF_KERNEL_THREAD
}

/// A time slice has ended while the thread ran.
pub(crate) fn slice(thread: &'static Thread, slice_ns: u64) {
    if !ASKED.load(Ordering::Relaxed) {
        thread.kernel.cpu_ns.fetch_add(slice_ns, Ordering::Relaxed);
    }
}

/// A thread is about to run on the calling activation. Called only where processor times are asked for.
#[cold]
pub(super) fn begins(activation: &Activation) {
    let now = clock(CLOCK_THREAD_CPUTIME_ID);
    activation.kernel.cpu_mark.store(now, Ordering::Relaxed);
}

/// A thread does not run on the calling activation any more.
#[inline]
pub(crate) fn ends(activation: &Activation, thread: &'static Thread) {
    if ASKED.load(Ordering::Relaxed) {
        charge(activation, thread);
    }
}

#[cold]
fn charge(activation: &Activation, thread: &'static Thread) {
    let began = activation.kernel.cpu_mark.swap(0, Ordering::Relaxed);
    if began != 0 {
        let used = clock(CLOCK_THREAD_CPUTIME_ID).saturating_sub(began);
        thread.kernel.cpu_ns.fetch_add(used, Ordering::Relaxed);
    }
}

/// The processor time of a thread, in nanoseconds. Outside the runtime, or of one that is parked.
pub fn of(thread: &'static Thread) -> u64 {
    if !ASKED.load(Ordering::Relaxed) {
        // First: what is charged has begun.
        follows::begin(follows::CPU_TIME);
        ASKED.store(true, Ordering::Relaxed);
    }
    let mut answer = 0;
    for _ in 0..TRIES {
        let charged = thread.kernel.cpu_ns.load(Ordering::SeqCst);
        let carrier = thread.carrier();
        let Some(activation) = carrier else {
            return charged;
        };
        let state = &activation.kernel;
        let now = clock(clock_of(state.tid.load(Ordering::Relaxed)));
        // One that runs since before the first question is counted from here on.
        let began =
            match state
                .cpu_mark
                .compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => now,
                Err(began) => began,
            };
        answer = charged + now.saturating_sub(began);
        let same = thread
            .carrier()
            .is_some_and(|again| core::ptr::eq(again, activation));
        if same
            && thread.kernel.cpu_ns.load(Ordering::SeqCst) == charged
            && state.cpu_mark.load(Ordering::SeqCst) == began
        {
            break;
        }
    }
    answer
}
