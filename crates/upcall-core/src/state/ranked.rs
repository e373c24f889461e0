//! Ready threads that have another rank than the common one, sorted.

use intrusive_collections::{Bound, KeyAdapter, RBTree, RBTreeAtomicLink, intrusive_adapter};

use crate::machine::Machine;
use crate::rank::Rank;
use crate::state::thread::Thread;

intrusive_adapter!(ByRank<K> = &'static Thread<K>: Thread<K> { rank_link => RBTreeAtomicLink } where K: Machine);

impl<'a, K: Machine> KeyAdapter<'a> for ByRank<K> {
    type Key = Rank;

    fn get_key(&self, thread: &'a Thread<K>) -> Rank {
        thread.listed_rank()
    }
}

/// Ready threads that have another rank than the common one, in this order. The holder of the value owns
/// them.
pub(crate) struct Ranked<K: Machine>(RBTree<ByRank<K>>);

impl<K: Machine> Ranked<K> {
    pub(crate) const fn new() -> Self {
        Ranked(RBTree::new(ByRank::NEW))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Behind those of the same rank.
    #[cold]
    pub(crate) fn push_back(&mut self, thread: &'static Thread<K>, rank: Rank) {
        thread.set_listed_rank(rank);
        self.0
            .upper_bound_mut(Bound::Included(&rank))
            .insert_after(thread);
    }

    /// Before those of the same rank.
    #[cold]
    pub(crate) fn push_front(&mut self, thread: &'static Thread<K>, rank: Rank) {
        thread.set_listed_rank(rank);
        self.0
            .lower_bound_mut(Bound::Included(&rank))
            .insert_before(thread);
    }

    pub(crate) fn pop_front(&mut self) -> Option<&'static Thread<K>> {
        self.0.front_mut().remove()
    }

    pub(crate) fn first(&self) -> Option<(&'static Thread<K>, Rank)> {
        let thread = self.0.front().clone_pointer()?;
        Some((thread, thread.listed_rank()))
    }

    pub(crate) fn contains(&self, thread: &'static Thread<K>) -> bool {
        let rank = thread.listed_rank();
        let mut at = self.0.lower_bound(Bound::Included(&rank));
        while let Some(here) = at.get().filter(|here| here.listed_rank() == rank) {
            if core::ptr::eq(here, thread) {
                return true;
            }
            at.move_next();
        }
        false
    }

    /// Takes a thread out, which is here.
    pub(crate) fn remove(&mut self, thread: &'static Thread<K>) {
        // SAFETY: it is in this tree.
        unsafe { self.0.cursor_mut_from_ptr(thread) }.remove();
    }
}
