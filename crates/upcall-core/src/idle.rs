//! The set of virtual processors that could take work: one bit each, scanned from near to far.

use crate::sync::{AtomicU64, AtomicUsize, CHECKED, Ordering};

/// The most virtual processors of one runtime.
pub(crate) const MAX_VPS: usize = if CHECKED { 64 } else { 1024 };
const BITS: usize = u64::BITS as usize;

/// A set of virtual processors.
pub(crate) struct IdleSet {
    count: AtomicUsize,
    words: [AtomicU64; MAX_VPS / BITS],
}

impl IdleSet {
    pub(crate) const fn new() -> Self {
        IdleSet {
            count: AtomicUsize::new(0),
            words: [const { AtomicU64::new(0) }; MAX_VPS / BITS],
        }
    }

    /// Whether there is none, at some moment. SeqCst: a pusher publishes its thread before it
    /// looks here, an idle processor enters before it looks for threads.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn insert(&self, index: u32) {
        let (word, bit) = position(index);
        if self.words[word].fetch_or(bit, Ordering::SeqCst) & bit == 0 {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Removes a member; says whether it was one.
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

    /// Removes some member, the nearest above `from` in cyclic order by words.
    pub(crate) fn take(&self, from: u32) -> Option<u32> {
        let (start, _) = position(from);
        for step in 0..self.words.len() {
            let word = (start + step) % self.words.len();
            loop {
                let bits = self.words[word].load(Ordering::Relaxed);
                if bits == 0 {
                    break;
                }
                let index = (word * BITS) as u32 + bits.trailing_zeros();
                if self.remove(index) {
                    return Some(index);
                }
            }
        }
        None
    }
}

fn position(index: u32) -> (usize, u64) {
    (index as usize / BITS, 1 << (index as usize % BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_and_go() {
        let set = IdleSet::new();
        assert!(set.is_empty());
        set.insert(3);
        set.insert(3);
        set.insert(900);
        assert_eq!(set.take(0), Some(3));
        assert_eq!(set.take(0), Some(900));
        assert_eq!(set.take(0), None);
        assert!(set.is_empty());
        assert!(!set.remove(3));
    }

    /// Against a set: members, emptiness, and that `take` gives every member once.
    #[test]
    fn an_idle_set_is_a_set() {
        let mut pick = crate::testing::numbers(3);
        let set = IdleSet::new();
        let mut model = std::collections::BTreeSet::new();
        for _ in 0..5000 {
            let index = pick(MAX_VPS as u64) as u32;
            match pick(3) {
                0 => {
                    set.insert(index);
                    model.insert(index);
                }
                1 => assert_eq!(set.remove(index), model.remove(&index)),
                _ => match set.take(index) {
                    Some(taken) => assert!(model.remove(&taken)),
                    None => assert!(model.is_empty()),
                },
            }
            assert_eq!(set.is_empty(), model.is_empty());
        }
    }
}
