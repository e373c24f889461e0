//! Who runs first where threads have ranks, and who gives way: see [`crate::rank`] for the protocol.

use crate::kernel::Kernel;
use crate::lock::SpinLock;
use crate::rank::Rank;
use crate::runtime::Runtime;
use crate::state::activation::Activation;
use crate::state::inside::Inside;
use crate::state::ready::By;
use crate::state::thread::{Phase, Thread, ThreadList};
use crate::state::vp::Vp;
use crate::sync::Ordering;

/// What a runtime has of ranks, beside those in the threads.
pub(super) struct Ranks<K: Kernel> {
    /// Ready threads that may not run.
    held: SpinLock<ThreadList<K>>,
}

impl<K: Kernel> Ranks<K> {
    pub(super) const fn unused() -> Self {
        Ranks {
            held: SpinLock::new(ThreadList::new()),
        }
    }

    /// Returns true if some ready thread may not run.
    pub(super) fn any_held(&self, kernel: &K) -> bool {
        !self.held.lock(kernel).is_empty()
    }
}

impl<K: Kernel> Runtime<K> {
    /// Returns true if any thread has had another rank than the common one.
    #[inline]
    pub fn is_ranked(&self) -> bool {
        // Relaxed: an owner that takes a ranked thread out of a list sees what was written before the thread
        // was put in, and looks after that (`is_chosen`).
        self.listeners.ranks()
    }

    /// Puts a thread aside that came out of a ready list with [`Rank::HELD`]. Returns true if it still has it.
    #[cold]
    fn hold(&'static self, thread: &'static Thread<K>) -> bool {
        let mut held = self.ranks.held.lock(&self.kernel);
        // SeqCst: the caller that changes the rank looks at the state afterwards, with `held` locked if it is `Held`.
        thread.state.store(Phase::Held, Ordering::SeqCst);
        if thread.rank() != Rank::HELD {
            thread.state.store(Phase::Ready, Ordering::Relaxed);
            return false;
        }
        held.push_back(thread);
        true
    }

    /// The most urgent of all ready threads that may run, the nearest of equals.
    pub(super) fn most_urgent(&'static self, vp: &'static Vp<K>) -> Option<&'static Thread<K>> {
        loop {
            let mut first = vp.ready.first_rank(&self.kernel).map(|rank| (rank, vp));
            self.vps.find_ready(vp, |other| {
                match other.ready.first_rank(&self.kernel) {
                    Some(rank) if first.is_none_or(|(before, _)| rank < before) => {
                        first = Some((rank, other));
                    }
                    Some(_) => {}
                    None => self.forget_empty(other),
                }
                None::<()>
            });
            let (_, place) = first?;
            // Somebody else may have been quicker; what is there instead is looked at by `claims`.
            if let Some(thread) = place.ready.pop(&self.kernel, By::Others) {
                if thread.rank() == Rank::HELD && self.hold(thread) {
                    // The adviser has to know that there is nothing else.
                    vp.idle_told.store(false, Ordering::Relaxed);
                    continue;
                }
                if !core::ptr::eq(place, vp) {
                    self.stats.stolen.add();
                }
                return Some(thread);
            }
        }
    }

    /// Returns true if a thread that is more urgent than `rank` waits in some ready list.
    pub(super) fn is_more_urgent_ready(&'static self, near: &'static Vp<K>, rank: Rank) -> bool {
        let more_urgent = |other: &'static Vp<K>| {
            let first = other.ready.first_rank(&self.kernel);
            first.filter(|&first| first < rank)
        };
        self.vps.find_ready(near, more_urgent).is_some()
    }

    /// The owner of `vp` is about to run a thread of this rank. Returns true if it may.
    pub(super) fn claims(&'static self, vp: &'static Vp<K>, rank: Rank) -> bool {
        // SeqCst: a caller that makes a more urgent one ready looks here afterwards.
        vp.rank.store(rank.0, Ordering::SeqCst);
        !self.is_more_urgent_ready(vp, rank)
    }

    /// A thread that was chosen waits again, before its equals.
    pub(super) fn put_back(&'static self, vp: &'static Vp<K>, thread: &'static Thread<K>) {
        let ranked = self.is_ranked();
        vp.ready.put_back(&self.kernel, By::Others, thread, ranked);
        self.vps.set_ready(vp);
        if self.is_ranked() {
            self.announce(vp, thread);
        }
    }

    /// A thread waits in the ready list of `vp`: as [`Runtime::announce_ready`], and where no virtual
    /// processor is idle, the least urgent thread gives way to it. Returns true if an idle one was put to work.
    #[inline(always)]
    pub(super) fn announce(&'static self, vp: &'static Vp<K>, thread: &'static Thread<K>) -> bool {
        let rung = self.announce_ready(vp);
        if !rung && self.is_ranked() {
            // As it is now: a caller that has changed it since finds the thread in its list, and announces it.
            self.preempt_for(vp, thread.rank());
        }
        rung
    }

    /// As [`Runtime::is_more_urgent_ready`], or stopped in an activation that was displaced from `vp`.
    fn is_more_urgent_waiting(&'static self, vp: &'static Vp<K>, rank: Rank) -> bool {
        self.displaced_rank(vp).is_some_and(|first| first < rank)
            || self.is_more_urgent_ready(vp, rank)
    }

    fn displaced_rank(&'static self, vp: &'static Vp<K>) -> Option<Rank> {
        if vp.nr_displaced.load(Ordering::Relaxed) == 0 {
            return None;
        }
        vp.displaced.lock(&self.kernel).first_rank()
    }

    /// Returns true if no ready thread is more urgent than the one that was displaced from `vp` last.
    pub(super) fn may_be_granted(&'static self, vp: &'static Vp<K>) -> bool {
        self.displaced_rank(vp)
            .is_none_or(|rank| self.claims(vp, rank))
    }

    /// Returns true if the thread that runs on `vp`, whose owner was asked to choose again, gives way. One in a
    /// critical section does when it leaves that.
    pub(super) fn gives_way(
        &'static self,
        vp: &'static Vp<K>,
        thread: Option<&'static Thread<K>>,
    ) -> bool {
        if self.is_left() {
            return false;
        }
        if !self.kernel.may_run(vp) {
            let finishes =
                self.kernel.may_finish(vp) && thread.is_some_and(|thread| thread.sections.defer());
            return !finishes;
        }
        if thread.is_some_and(|thread| thread.sections.defer()) {
            return false;
        }
        let Some(thread) = thread.filter(|_| self.is_ranked()) else {
            return vp.has_ready() && self.takes_turns();
        };
        let rank = thread.rank();
        if rank == Rank::HELD {
            return true;
        }
        // SeqCst: see `claims`.
        vp.rank.store(rank.0, Ordering::SeqCst);
        let first = vp.ready.first_rank(&self.kernel);
        let gives_way = first
            .is_some_and(|first| first < rank || (first == rank && self.takes_turns()))
            || self.is_more_urgent_waiting(vp, rank);
        if !gives_way {
            self.pass_on(vp);
        }
        gives_way
    }

    /// `vp` was perhaps asked to choose for more than one thread ([`Runtime::preempt_for`]), or does not
    /// give way any more: what is left is for the next one.
    fn pass_on(&'static self, vp: &'static Vp<K>) {
        let mut first: Option<Rank> = None;
        self.vps.find_ready(vp, |other| {
            let rank = other.ready.first_rank(&self.kernel);
            first = first.into_iter().chain(rank).min();
            None::<()>
        });
        if let Some(first) = first {
            self.preempt_for(vp, first);
        }
    }

    /// A thread of this rank is ready, and no virtual processor idle: the one that runs the least urgent
    /// thread chooses again, if that is less urgent (the downcall `preempt`).
    fn preempt_for(&'static self, near: &'static Vp<K>, rank: Rank) {
        let busy = self.vps().iter().filter(|vp| self.kernel.may_run(vp));
        // SeqCst: see `claims`.
        let least = busy.max_by_key(|vp| vp.rank.load(Ordering::SeqCst));
        if let Some(vp) = least.filter(|vp| vp.rank.load(Ordering::SeqCst) > rank.0) {
            self.ask_owner(vp, !core::ptr::eq(vp, near));
        }
    }
}

impl<K: Kernel> Inside<K> {
    /// Gives a thread a rank, which counts at once: a ready thread changes its place, one that runs gives
    /// way to who is more urgent now.
    pub fn set_rank(&self, thread: &'static Thread<K>, rank: Rank) {
        let runtime = self.runtime();
        if rank != Rank::COMMON {
            runtime.listeners.begin_ranks();
        }
        // SeqCst: an activation that has the thread in its hands reads the rank after it has made it ready or running.
        if thread.rank.swap(rank.0, Ordering::SeqCst) == rank.0 || !runtime.is_ranked() {
            return;
        }
        match thread.state.load(Ordering::SeqCst) {
            Phase::Ready | Phase::Returned => {
                let near = self.vp();
                let mut lists = runtime.vps().iter();
                if lists.any(|vp| vp.ready.replace(&runtime.kernel, thread)) {
                    runtime.announce(near, thread);
                }
            }
            Phase::Held => self.release_held(thread),
            Phase::Running => {
                if let Some(carrier) = thread.carrier() {
                    let here = core::ptr::eq(carrier, self.activation());
                    runtime.ask_owner(carrier.vp(), !here);
                }
            }
            _ => {}
        }
    }

    /// A thread that was held has another rank now.
    fn release_held(&self, thread: &'static Thread<K>) {
        let runtime = self.runtime();
        if runtime.ranks.held.lock(&runtime.kernel).remove(thread) {
            let near = self.vp();
            runtime.push_back(near, By::Others, thread);
            runtime.announce(near, thread);
        }
    }

    /// Returns true if the thread of this activation, which came back, is less urgent than that of the owner.
    pub(super) fn is_less_urgent(&self, owner: &'static Activation<K>) -> bool {
        match (self.thread(), owner.thread()) {
            (Some(comes), Some(runs)) => comes.rank() > runs.rank(),
            _ => false,
        }
    }
}

impl<K: Kernel> Activation<K> {
    /// The activation, which owns its virtual processor, runs its thread from here on: if the rank of that
    /// has changed, or somebody is more urgent, it chooses again.
    #[cold]
    pub(super) fn publish_rank(&'static self) {
        let runtime = self.runtime();
        let Some(thread) = self.thread() else {
            return;
        };
        let vp = self.vp();
        let rank = thread.rank();
        // SeqCst: see `claims`.
        vp.rank.store(rank.0, Ordering::SeqCst);
        if !runtime.is_adviser(thread) {
            vp.idle_told.store(false, Ordering::Relaxed);
        }
        if thread.rank() != rank || rank == Rank::HELD || runtime.is_more_urgent_waiting(vp, rank) {
            self.attend(Activation::<K>::RESCHEDULE);
        } else {
            runtime.pass_on(vp);
        }
    }
}
