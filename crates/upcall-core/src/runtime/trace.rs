//! Who is told of what happens: an adviser and ranks, a timeline, mostly nobody.
//!
//! One word says if anybody is to be told, so that a timeline costs nothing where ranks are asked for anyway. What is told of a
//! timeline goes to the backend at once ([`Trace::note`](crate::kernel::Trace::note)), on the activation to which it happens.

use crate::event::{Event, What};
use crate::kernel::Kernel;
use crate::runtime::{Runtime, Transition};
use crate::state::activation::Activation;
use crate::state::inside::Inside;
use crate::state::thread::Thread;
use crate::state::vp::Vp;
use crate::sync::{AtomicU32, Ordering};

/// A thread has had another rank than the common one, or there is an adviser.
const RANKS: u32 = 1;
/// Events are noted.
const TRACE: u32 = 2;

/// Who is told.
pub(super) struct Listeners(AtomicU32);

impl Listeners {
    pub(super) const fn none() -> Self {
        Listeners(AtomicU32::new(0))
    }

    /// Returns true if anybody is told.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    #[inline(always)]
    pub(super) fn ranks(&self) -> bool {
        // Relaxed: see `Runtime::is_ranked`.
        self.0.load(Ordering::Relaxed) & RANKS != 0
    }

    #[inline(always)]
    fn traces(&self) -> bool {
        self.0.load(Ordering::Relaxed) & TRACE != 0
    }

    /// From here on threads may have ranks.
    pub(super) fn begin_ranks(&self) {
        self.0.fetch_or(RANKS, Ordering::SeqCst);
    }
}

impl<K: Kernel> Runtime<K> {
    /// From here on events go to [`Trace::note`](crate::kernel::Trace::note). The first say which virtual processors are idle.
    pub fn begin_trace(&self) {
        self.listeners.0.fetch_or(TRACE, Ordering::SeqCst);
        for vp in self.vps().iter().filter(|vp| vp.rests()) {
            self.note(What::Idle, vp, None, 0);
            // Its own event may have come in between.
            if !vp.rests() {
                self.note(What::Busy, vp, None, 0);
            }
        }
    }

    /// No more events, but for some that are on their way.
    pub fn end_trace(&self) {
        self.listeners.0.fetch_and(!TRACE, Ordering::SeqCst);
    }

    /// Something happens on `vp`, perhaps to a thread: it is noted if events are.
    #[inline(always)]
    pub(super) fn trace(&self, what: What, vp: &'static Vp<K>, thread: Option<&'static Thread<K>>) {
        if self.listeners.traces() {
            self.note(what, vp, thread, 0);
        }
    }

    /// The same with an argument.
    #[inline(always)]
    pub(super) fn trace_with(
        &self,
        what: What,
        vp: &'static Vp<K>,
        thread: Option<&'static Thread<K>>,
        argument: u64,
    ) {
        if self.listeners.traces() {
            self.note(what, vp, thread, argument);
        }
    }

    #[cold]
    #[inline(never)]
    fn note(
        &self,
        what: What,
        vp: &'static Vp<K>,
        thread: Option<&'static Thread<K>>,
        argument: u64,
    ) {
        self.kernel.note(Event {
            what,
            vp,
            thread,
            argument,
        });
    }

    /// What [`Runtime::tell`] does where somebody is told.
    #[cold]
    pub(super) fn tell_listeners(
        &'static self,
        vp: &'static Vp<K>,
        thread: &'static Thread<K>,
        transition: Transition,
    ) {
        let (what, argument) = match transition {
            Transition::Ended => (What::Ended, 0),
            Transition::Created => (What::Created, 0),
            Transition::Blocked => (What::Blocked, thread.waits()),
            Transition::Unblocked => (What::Unblocked, 0),
            Transition::Yielded => (What::Yielded, 0),
            Transition::Preempted => (What::Preempted, 0),
        };
        self.trace_with(what, vp, Some(thread), argument);
        self.tell_policy(vp, thread, transition);
    }
}

impl<K: Kernel> Inside<K> {
    /// Something happens to the thread that the caller is: it is noted if events are.
    #[inline(always)]
    pub(super) fn trace_own(&self, what: What) {
        if self.runtime().listeners.traces() {
            self.note_own(what);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_own(&self, what: What) {
        self.runtime().note(what, self.vp(), self.thread(), 0);
    }

    /// The thread is about to run on the activation.
    #[cold]
    pub(super) fn tell_of_run(&self, vp: &'static Vp<K>, thread: &'static Thread<K>) {
        let runtime = self.runtime();
        if runtime.is_ranked() {
            self.activation().publish_rank();
        }
        runtime.trace(What::Runs, vp, Some(thread));
    }
}

impl<K: Kernel> Activation<K> {
    /// The activation was replaced on `vp`, blocked with its thread.
    #[cold]
    pub(super) fn tell_listeners_of_absent(&'static self, vp: &'static Vp<K>) {
        let runtime = self.runtime();
        // Not if it is back by now. It may be back in a moment: the event may come after what its thread does then.
        if self.is_absent() {
            let in_call = u64::from(self.is_in_call());
            runtime.trace_with(What::Absent, vp, self.thread(), in_call);
        }
        runtime.tell_policy_of_absent(self, vp);
    }
}
