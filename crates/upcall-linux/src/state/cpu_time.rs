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
/// The mark of an activation that has begun to charge its thread, until the next one begins.
const CHARGED: u64 = u64::MAX;

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
    // Whoever asks before the thread has its time and is gone asks again.
    let began = activation.kernel.cpu_mark.swap(CHARGED, Ordering::SeqCst);
    if began != 0 {
        let used = clock(CLOCK_THREAD_CPUTIME_ID).saturating_sub(began);
        thread.kernel.cpu_ns.fetch_add(used, Ordering::SeqCst);
    }
}

/// The processor time of a thread, in nanoseconds. Outside the runtime, or of one that is parked.
pub fn of(thread: &'static Thread) -> u64 {
    if !ASKED.load(Ordering::Relaxed) {
        // First: what is charged has begun.
        follows::begin(follows::CPU_TIME);
        ASKED.store(true, Ordering::Relaxed);
    }
    loop {
        if let Some(time) = at_rest(thread) {
            return time;
        }
        // Its activation may want this processor.
        sys::yield_processor();
    }
}

/// The processor time of a thread, unless it moves or is charged meanwhile.
fn at_rest(thread: &'static Thread) -> Option<u64> {
    let charged = thread.kernel.cpu_ns.load(Ordering::SeqCst);
    let carrier = thread.carrier();
    let time = match carrier {
        None => charged,
        Some(activation) => charged + used_on(activation)?,
    };
    let same = thread.carrier().map(core::ptr::from_ref) == carrier.map(core::ptr::from_ref);
    let is_sound = same && thread.kernel.cpu_ns.load(Ordering::SeqCst) == charged;
    is_sound.then_some(time)
}

/// What the thread that an activation carries has used since it was charged last; `None`: it stops or starts
/// just now.
fn used_on(activation: &Activation) -> Option<u64> {
    let state = &activation.kernel;
    let now = clock(clock_of(state.tid.load(Ordering::Relaxed)));
    let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
    // One that runs since before the first question is counted from here on.
    let began = match state.cpu_mark.compare_exchange(0, now, set, get) {
        Ok(_) => now,
        Err(began) => began,
    };
    let is_sound = began != CHARGED && state.cpu_mark.load(Ordering::SeqCst) == began;
    is_sound.then(|| now.saturating_sub(began))
}
