//! Sets of virtual processors, one bit each, searched from near to far: five hundred of them share a
//! cache line, so that a look for one that is idle, or has a thread to give, touches few lines on
//! the largest machine.
//!
//! Rejected: a second level of bits over the first. Its marks would have to be taken away, and between
//! finding a word empty and taking its mark away somebody may become a member, whom others then do not
//! find for a moment. A lock would close that; but a standby that only watches holds none.

use crate::sync::{AtomicU64, AtomicUsize, CHECKED, Ordering};

/// The most virtual processors of one runtime.
pub(crate) const MAX_VPS: usize = if CHECKED { 64 } else { 1 << 14 };
const BITS: usize = u64::BITS as usize;

/// A set of virtual processors.
pub(crate) struct VpSet {
    /// At least the number of members, at any moment.
    count: AtomicUsize,
    words: [AtomicU64; MAX_VPS / BITS],
}

impl VpSet {
    pub(crate) const fn new() -> Self {
        VpSet {
            count: AtomicUsize::new(0),
            words: [const { AtomicU64::new(0) }; MAX_VPS / BITS],
        }
    }

    /// Returns true if there is none, at some moment. SeqCst: a pusher publishes its thread before it
    /// looks here, an idle processor enters before it looks for threads.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    #[inline]
    pub(crate) fn contains(&self, index: u32) -> bool {
        let (word, bit) = position(index);
        self.words[word].load(Ordering::SeqCst) & bit != 0
    }

    #[inline]
    pub(crate) fn insert(&self, index: u32) {
        if !self.contains(index) {
            self.put(index);
        }
    }

    fn put(&self, index: u32) {
        let (word, bit) = position(index);
        // Counted first: nobody finds the set empty while there is a member.
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.words[word].fetch_or(bit, Ordering::SeqCst) & bit != 0 {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Removes a member. Returns true if it was one.
    #[inline]
    pub(crate) fn remove(&self, index: u32) -> bool {
        let (word, bit) = position(index);
        if self.words[word].load(Ordering::Relaxed) & bit == 0 {
            return false;
        }
        let was = self.words[word].fetch_and(!bit, Ordering::SeqCst) & bit != 0;
        if was {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
        was
    }

    /// Asks `take` about the members below `end`, from `near` on and around, until it answers with
    /// something. Members may come and go meanwhile.
    pub(crate) fn find<R>(
        &self,
        near: u32,
        end: usize,
        mut take: impl FnMut(u32) -> Option<R>,
    ) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        let words = end.div_ceil(BITS);
        let (mut word, bit) = position(near);
        // The first word twice: its upper part first, its lower part last.
        let mut part = !(bit - 1);
        for left in (0..=words).rev() {
            let mut bits = self.words[word].load(Ordering::SeqCst) & part;
            while bits != 0 {
                let found = take((word * BITS) as u32 + bits.trailing_zeros());
                if found.is_some() {
                    return found;
                }
                bits &= bits - 1;
            }
            word = if word + 1 == words { 0 } else { word + 1 };
            part = if left == 1 { bit - 1 } else { !0 };
        }
        None
    }

    /// Removes some member, the nearest from `near` on and around.
    pub(crate) fn take(&self, near: u32, end: usize) -> Option<u32> {
        self.find(near, end, |index| self.remove(index).then_some(index))
    }
}

#[inline]
fn position(index: u32) -> (usize, u64) {
    (index as usize / BITS, 1 << (index as usize % BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    const END: usize = MAX_VPS;

    #[test]
    fn members_come_and_go() {
        let set = VpSet::new();
        assert!(set.is_empty());
        set.insert(3);
        set.insert(3);
        set.insert(900);
        assert_eq!(set.take(0, END), Some(3));
        assert_eq!(set.take(0, END), Some(900));
        assert_eq!(set.take(0, END), None);
        assert!(set.is_empty());
        assert!(!set.remove(3));
    }

    /// Against a set: members, emptiness, and that a search meets each member once, in cyclic order.
    #[test]
    fn a_set_is_a_set_and_searched_from_near_to_far() {
        let mut pick = crate::testing::numbers(3);
        for end in [1, 63, 64, 65, 130, END] {
            let set = VpSet::new();
            let mut model = BTreeSet::new();
            for _ in 0..crate::testing::rounds(2000) {
                let index = pick(end as u64) as u32;
                match pick(4) {
                    0 => {
                        set.insert(index);
                        model.insert(index);
                    }
                    1 => assert_eq!(set.remove(index), model.remove(&index)),
                    2 => {
                        let around = model.range(index..).chain(model.range(..index));
                        let first = around.copied().next();
                        assert_eq!(set.take(index, end), first);
                        first.map(|first| model.remove(&first));
                    }
                    _ => {
                        let mut found = Vec::new();
                        let none = set.find(index, end, |member| {
                            found.push(member);
                            None::<()>
                        });
                        assert!(none.is_none());
                        let around = model.range(index..).chain(model.range(..index));
                        assert!(around.eq(&found), "from {index} below {end}");
                    }
                }
                assert_eq!(set.is_empty(), model.is_empty());
                assert_eq!(set.contains(index), model.contains(&index));
            }
        }
    }
}
