//! Keeps which processors threads have asked for (sched_setaffinity(2)).
//!
//! A thread that asks for other processors than those of the virtual processors gets a kernel thread of its own, where the
//! kernel keeps the mask. What is kept here counts until the thread is there: sched_getaffinity(2) answers with it, the
//! threads that it makes inherit it, and the kernel thread is bound to it when the thread leaves the runtime, to start a
//! process or to execute a program.
//!
//! Each set is kept once and for ever, because few differ. A thread has only the number of a set, so nothing has to be
//! freed. If no room is left, asking has no effect.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::processors::affinity::{Set, WORDS};

/// Sets that fit: as many as processors, one each, and no number with more than [`NUMBER`].
const MOST: usize = NUMBER as usize;
/// The part of a thread's word that is the number of a set plus one.
const NUMBER: u32 = 1023;

const FREE: u32 = 0;
const WRITTEN: u32 = 1;
const KEPT: u32 = 2;

struct Kept {
    state: AtomicU32,
    words: [AtomicU64; WORDS],
}

static SETS: [Kept; MOST] = [const {
    Kept {
        state: AtomicU32::new(FREE),
        words: [const { AtomicU64::new(0) }; WORDS],
    }
}; MOST];
/// Changes when what was asked for before does not count any more.
static EPOCH: AtomicU32 = AtomicU32::new(0);

impl Kept {
    fn set(&self) -> Set {
        Set(core::array::from_fn(|index| {
            self.words[index].load(Ordering::Relaxed)
        }))
    }

    /// Puts a set into a free place. Returns true if it was free.
    fn put(&self, set: &Set) -> bool {
        let free = self
            .state
            .compare_exchange(FREE, WRITTEN, Ordering::Relaxed, Ordering::Relaxed);
        if free.is_ok() {
            for (own, word) in self.words.iter().zip(set.0) {
                own.store(word, Ordering::Relaxed);
            }
            // Release: pairs with the Acquire of the thread that finds it.
            self.state.store(KEPT, Ordering::Release);
        }
        free.is_ok()
    }
}

/// Everybody's affinity was changed from outside.
pub(crate) fn forget_all() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed) & (u32::MAX >> 10)
}

#[derive(Default)]
pub struct Asked(AtomicU32);

impl Asked {
    /// The set; `None` if it has asked for nothing, or somebody has changed its affinity since.
    pub fn get(&self) -> Option<Set> {
        let word = self.0.load(Ordering::Relaxed);
        let number = (word & NUMBER).checked_sub(1)?;
        (word >> 10 == epoch()).then(|| SETS[number as usize].set())
    }

    /// It asks for this set.
    pub fn set(&self, set: &Set) {
        // One that is being written by somebody else is passed over: the two may be equal then.
        let same = |kept: &Kept| kept.state.load(Ordering::Acquire) == KEPT && kept.set() == *set;
        let number = (SETS.iter())
            .position(|kept| same(kept) || kept.put(set))
            .map_or(0, |index| index as u32 + 1);
        self.0.store(epoch() << 10 | number, Ordering::Relaxed);
    }

    /// A new thread asks for what its creator has asked for; the first one for nothing.
    pub fn inherit(&self, creator: Option<&Asked>) {
        let word = creator.map_or(0, |creator| creator.0.load(Ordering::Relaxed));
        self.0.store(word, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_answered_until_it_is_changed_from_outside() {
        let (one, other, heir) = (Asked::default(), Asked::default(), Asked::default());
        assert!(one.get().is_none());
        one.set(&Set::only(3));
        other.set(&Set::only(900));
        heir.inherit(Some(&one));
        assert!(one.get() == Some(Set::only(3)) && other.get() == Some(Set::only(900)));
        assert!(heir.get() == Some(Set::only(3)));
        other.set(&Set::only(3));
        assert!(other.0.load(Ordering::Relaxed) == one.0.load(Ordering::Relaxed));
        heir.inherit(None);
        assert!(heir.get().is_none());
        forget_all();
        assert!(one.get().is_none());
        one.set(&Set::only(4));
        assert!(one.get() == Some(Set::only(4)));
        // More than fit.
        for processor in 0..MOST as u32 {
            other.set(&Set::only(processor));
        }
        let mut two = Set::only(1);
        two.0[9] = 5;
        other.set(&two);
        assert!(other.get().is_none());
        assert!(one.get() == Some(Set::only(4)));
    }
}
