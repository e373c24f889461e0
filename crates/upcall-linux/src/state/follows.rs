//! What the kernel thread of an activation takes over from the thread that it runs, beside what it always does: attributes
//! in which the threads of most processes do not differ.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::state::{Activation, Thread, cpu_time, slack};

/// The timer slack.
pub(super) const SLACK: u32 = 1;
/// What the layer above wants ([`Hooks::runs`](crate::state::Hooks::runs)).
pub(crate) const HOOK: u32 = 2;
/// The threads' processor time is asked for.
pub(super) const CPU_TIME: u32 = 4;

/// Those in which they differ.
static DIFFER: AtomicU32 = AtomicU32::new(0);

/// Threads differ in this from now on.
pub(crate) fn begin(what: u32) {
    DIFFER.fetch_or(what, Ordering::Relaxed);
}

/// The thread is about to run on the calling activation.
#[inline]
pub(crate) fn install(activation: &Activation, thread: &'static Thread) {
    if DIFFER.load(Ordering::Relaxed) != 0 {
        apply(activation, thread);
    }
}

#[cold]
fn apply(activation: &Activation, thread: &'static Thread) {
    let differ = DIFFER.load(Ordering::Relaxed);
    if differ & CPU_TIME != 0 {
        cpu_time::begins(activation);
    }
    if differ & SLACK != 0 {
        slack::install(activation, thread);
    }
    if differ & HOOK != 0
        && let Some(runs) = activation.runtime().kernel().settings.hooks.runs
    {
        runs(activation, thread);
    }
}
