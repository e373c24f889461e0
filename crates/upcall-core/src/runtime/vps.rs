//! The virtual processors of a runtime, and what others have to know of each without asking it: that it is
//! idle, that nobody watches it, that it has ready threads.

use crate::kernel::Kernel;
use crate::slot::Slot;
use crate::state::vp::{State, Vp};
use crate::sync::{AtomicU32, Ordering};
use crate::vp_set::VpSet;

/// The virtual processors.
pub(super) struct Vps<K: Kernel> {
    first: Slot<Vp<K>>,
    count: AtomicU32,
    /// Those that are idle or in a system call with nothing else to run, and some that were in such a call: who takes one looks
    /// what it does.
    idle: VpSet,
    /// Those whose standby sleeps or is missing: their owners may block unnoticed.
    unwatched: VpSet,
    /// Those that have ready threads, and some that had: see `Runtime::push_back`.
    ready: VpSet,
    /// Those whose owners use their ready lists without the lock, and some that did.
    free: VpSet,
}

impl<K: Kernel> Vps<K> {
    pub(super) const OFFSET_FIRST: usize = core::mem::offset_of!(Self, first);
    pub(super) const OFFSET_COUNT: usize = core::mem::offset_of!(Self, count);

    pub(super) const fn none() -> Self {
        Vps {
            first: Slot::empty(),
            count: AtomicU32::new(0),
            idle: VpSet::new(),
            unwatched: VpSet::new(),
            ready: VpSet::new(),
            free: VpSet::new(),
        }
    }

    /// Makes the virtual processors known: `count` of them, side by side, of which `first` is the first.
    pub(super) fn publish(&self, first: &'static Vp<K>, count: usize) {
        self.count.store(count as u32, Ordering::Relaxed);
        self.first.set(Some(first), Ordering::Release);
    }

    #[inline]
    pub(super) fn all(&self) -> &'static [Vp<K>] {
        let count = self.count.load(Ordering::Relaxed) as usize;
        match self.first.get(Ordering::Acquire) {
            // SAFETY: `adopt` wrote that many side by side before it published the first.
            Some(first) => unsafe { core::slice::from_raw_parts(first, count) },
            None => &[],
        }
    }

    /// Returns true if some virtual processor is idle, or is or was in a system call with nothing else to run.
    #[inline]
    pub(super) fn any_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Returns true if the owner of another one has nothing to run, at this moment.
    pub(super) fn another_rests(&self, vp: &Vp<K>) -> bool {
        self.another_is(vp, |state| state == State::Idle)
    }

    /// Returns true if another one is idle, or in a system call with nothing else to run, at this moment.
    pub(super) fn another_is_idle(&self, vp: &Vp<K>) -> bool {
        self.another_is(vp, |state| matches!(state, State::Idle | State::Kernel))
    }

    fn another_is(&self, vp: &Vp<K>, such: impl Fn(State) -> bool) -> bool {
        let vps = self.all();
        let is_such = |index: u32| {
            let other = &vps[index as usize];
            (index != vp.index() && such(other.word().state())).then_some(())
        };
        self.idle.find(vp.index(), vps.len(), is_such).is_some()
    }

    #[inline]
    pub(super) fn set_idle(&self, vp: &Vp<K>) {
        self.idle.insert(vp.index());
    }

    /// Returns true if it was idle.
    #[inline]
    pub(super) fn clear_idle(&self, vp: &Vp<K>) -> bool {
        self.idle.remove(vp.index())
    }

    /// Takes the idle virtual processor that is nearest to `near`, and `last` only if there is no other.
    pub(super) fn take_idle(&self, near: u32, last: Option<u32>) -> Option<&'static Vp<K>> {
        let vps = self.all();
        let other = |index| (Some(index) != last && self.idle.remove(index)).then_some(index);
        let index = self
            .idle
            .find(near, vps.len(), other)
            .or_else(|| self.idle.take(near, vps.len()));
        index.map(|index| &vps[index as usize])
    }

    #[inline]
    pub(super) fn any_unwatched(&self) -> bool {
        !self.unwatched.is_empty()
    }

    #[inline]
    pub(super) fn is_unwatched(&self, vp: &Vp<K>) -> bool {
        self.unwatched.contains(vp.index())
    }

    #[inline]
    pub(super) fn set_unwatched(&self, vp: &Vp<K>) {
        self.unwatched.insert(vp.index());
    }

    /// Returns true if it was unwatched.
    #[inline]
    pub(super) fn clear_unwatched(&self, vp: &Vp<K>) -> bool {
        self.unwatched.remove(vp.index())
    }

    pub(super) fn each_unwatched(&self, visit: impl FnMut(&'static Vp<K>)) {
        self.each(&self.unwatched, visit);
    }

    fn each(&self, set: &VpSet, mut visit: impl FnMut(&'static Vp<K>)) {
        let vps = self.all();
        set.find(0, vps.len(), |index| {
            visit(&vps[index as usize]);
            None::<()>
        });
    }

    #[inline]
    pub(super) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn set_free(&self, vp: &Vp<K>) {
        self.free.insert(vp.index());
    }

    pub(super) fn clear_free(&self, vp: &Vp<K>) {
        self.free.remove(vp.index());
    }

    pub(super) fn each_free(&self, visit: impl FnMut(&'static Vp<K>)) {
        self.each(&self.free, visit);
    }

    #[inline]
    pub(super) fn set_ready(&self, vp: &Vp<K>) {
        self.ready.insert(vp.index());
    }

    #[inline]
    pub(super) fn clear_ready(&self, vp: &Vp<K>) {
        self.ready.remove(vp.index());
    }

    /// Asks `take` about those that may have ready threads, from `near` on, until it answers with something.
    #[inline]
    pub(super) fn find_ready<R>(
        &self,
        near: &Vp<K>,
        mut take: impl FnMut(&'static Vp<K>) -> Option<R>,
    ) -> Option<R> {
        let vps = self.all();
        self.ready
            .find(near.index(), vps.len(), |index| take(&vps[index as usize]))
    }
}
