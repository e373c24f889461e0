//! Where the kernel may run an activation: on one processor, or in one of many waits, in which it roams, on any that the program
//! may use.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::processors::affinity::{self, Set};
use crate::sys;

/// In one of so many waits for which nobody stands by an activation roams, after a move.
const OFTEN: u32 = 64;
/// In one of so many more, at most, where the kernel wakes it where it was.
const SELDOM: u32 = 512;

/// To which processor an activation is bound.
#[derive(Default)]
pub(crate) struct Binding {
    word: AtomicU32,
    /// Its waits since it last roamed.
    waits: AtomicU32,
    /// In which it roams next, less [`OFTEN`].
    more: AtomicU32,
}

impl Binding {
    const UNKNOWN: u32 = 0;
    /// Somebody else binds it.
    const TAKEN: u32 = 1;
    const BOUND: u32 = 1 << 31;
    const ROAMS: u32 = 1 << 30;

    /// What the word holds in the present generation of the allowed set.
    #[inline]
    fn word(how: u32, processor: u32) -> u32 {
        how | (affinity::generation() << 10 | processor & 1023) & !(Self::BOUND | Self::ROAMS)
    }

    #[inline]
    fn bound_to(processor: u32) -> u32 {
        Self::word(Self::BOUND, processor)
    }

    /// Binds the calling kernel thread, whose binding this is, unless it is bound there. Returns true if it was not.
    #[inline]
    pub(crate) fn bind(&self, processor: u32) -> bool {
        let is_new = self.word.load(Ordering::Relaxed) != Self::bound_to(processor);
        if is_new {
            self.change(Self::bound_to(processor), &Set::only(processor));
        }
        is_new
    }

    #[cold]
    fn change(&self, word: u32, set: &Set) {
        while self.word.load(Ordering::Acquire) == Self::TAKEN {
            sys::yield_processor();
        }
        self.forget();
        if affinity::apply(set) {
            self.word.store(word, Ordering::SeqCst);
        } else {
            affinity::is_stale();
        }
    }

    /// Returns true if the activation roams.
    #[inline]
    pub(crate) fn roams(&self) -> bool {
        Self::is_roaming(self.word.load(Ordering::SeqCst))
    }

    #[inline]
    fn is_roaming(word: u32) -> bool {
        word & (Self::BOUND | Self::ROAMS) == Self::ROAMS
    }

    /// A wait of the calling kernel thread, whose binding this is, begins. Returns true if it is one in which it may roam.
    #[inline]
    pub(crate) fn counts_wait(&self) -> bool {
        let waits = self.waits.load(Ordering::Relaxed) + 1;
        self.waits.store(waits, Ordering::Relaxed);
        waits >= OFTEN + self.more.load(Ordering::Relaxed)
    }

    /// The calling kernel thread, whose binding this is, roams from now on, if there is where to. Returns true if it does.
    #[cold]
    pub(crate) fn begins_to_roam(&self) -> bool {
        self.waits.store(0, Ordering::Relaxed);
        let allowed = affinity::allowed();
        if allowed.len() < 2 {
            return false;
        }
        self.change(Self::word(Self::ROAMS, 0), &allowed);
        true
    }

    /// It has roamed, and has moved or not.
    pub(crate) fn has_roamed(&self, has_moved: bool) {
        let more = match has_moved {
            true => 0,
            false => 2 * self.more.load(Ordering::Relaxed) + OFTEN,
        };
        self.more.store(more.min(SELDOM), Ordering::Relaxed);
    }

    /// Binds another kernel thread, if it roams.
    pub(crate) fn bind_other(&self, tid: i32, processor: u32) {
        let replace = |from, to| {
            let replaced =
                self.word
                    .compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed);
            replaced.is_ok()
        };
        let seen = self.word.load(Ordering::SeqCst);
        // No id: it would be the caller.
        if tid == 0 || !Self::is_roaming(seen) || !replace(seen, Self::TAKEN) {
            return;
        }
        let word = match affinity::apply_to(tid, &Set::only(processor)) {
            true => Self::bound_to(processor),
            false => Self::UNKNOWN,
        };
        // Or it has forgotten meanwhile where it is.
        replace(Self::TAKEN, word);
    }

    /// The processors on which it has to be; `None` while they are unknown or the allowed set has changed since.
    pub(crate) fn expected(&self) -> Option<Set> {
        let word = self.word.load(Ordering::SeqCst);
        let processor = word & 1023;
        if word == Self::bound_to(processor) {
            Some(Set::only(processor))
        } else {
            (word == Self::word(Self::ROAMS, 0)).then(affinity::allowed)
        }
    }

    /// It is not known any more.
    pub(crate) fn forget(&self) {
        self.word.store(Self::UNKNOWN, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::limits::allowed_processors;

    /// On a kernel thread of its own, which it binds: waits until it roams, and how many times it has to.
    fn alone(test: impl FnOnce(&Binding, Vec<u32>) + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let all = allowed_processors();
                if all.len() < 2 {
                    return;
                }
                affinity::note();
                let binding = Binding::default();
                binding.bind(all[0]);
                test(&binding, all);
            });
        });
    }

    fn waits_until_it_roams(binding: &Binding) -> u32 {
        let due = (1..).find(|_| binding.counts_wait()).unwrap_or(0);
        assert!(binding.begins_to_roam());
        due
    }

    #[test]
    fn it_roams_in_one_of_many_waits_and_less_often_where_it_stays() {
        alone(|binding, all| {
            assert_eq!(waits_until_it_roams(binding), OFTEN);
            assert!(binding.roams());
            assert_eq!(allowed_processors(), all);
            binding.has_roamed(false);
            assert!(binding.bind(all[1]) && !binding.roams());
            assert_eq!(allowed_processors(), all[1..2]);
            assert_eq!(waits_until_it_roams(binding), 2 * OFTEN);
            for _ in 0..20 {
                binding.has_roamed(false);
            }
            assert_eq!(waits_until_it_roams(binding), OFTEN + SELDOM);
            binding.has_roamed(true);
            assert_eq!(waits_until_it_roams(binding), OFTEN);
        });
    }

    #[test]
    fn somebody_else_binds_it_while_it_roams_and_not_afterwards() {
        alone(|binding, all| {
            // SAFETY: asks only.
            let tid = unsafe { sys!(sys::SYS_gettid) } as i32;
            waits_until_it_roams(binding);
            binding.bind_other(0, all[1]);
            assert!(binding.roams(), "nobody has no number");
            binding.bind_other(tid, all[1]);
            assert!(!binding.roams() && binding.expected() == Some(Set::only(all[1])));
            assert_eq!(allowed_processors(), all[1..2]);
            binding.bind_other(tid, all[0]);
            assert_eq!(allowed_processors(), all[1..2]);
            assert!(!binding.bind(all[1]), "it knows where it is");
        });
    }

    #[test]
    fn a_mask_of_others_is_seen_while_it_roams() {
        alone(|binding, all| {
            waits_until_it_roams(binding);
            assert_eq!(affinity::mask_of_others(0, binding), None);
            let narrow = Set::only(all[1]);
            assert!(affinity::apply(&narrow));
            assert_eq!(affinity::mask_of_others(0, binding), Some(narrow));
        });
    }
}
