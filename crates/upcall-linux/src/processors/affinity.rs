//! Keeps which processors the program may use. The kernel's masks do not say it.
//!
//! Every activation is bound to one processor, so the kernel's masks say where activations are, and not where they may be.
//! This module keeps two sets:
//! - *wanted*: what the user asked for, by the mask that the program was started with or by a later change from outside
//!   (`taskset -ap`). All ones if nobody asked for anything.
//! - *allowed*: the part of it that the machine grants at the moment (cpuset, hotplug).
//!
//! A third one, *granted*, is what the machine grants a thread that wants all; it may be out of date.
//!
//! If the mask of an activation is not the one to which it bound itself, somebody outside has changed it. [`look`] compares
//! now and then. It looks at the activation that runs and at the first one: the id of the first one is the id of the
//! process, so `taskset -p PID` changes that one. After a change every virtual processor gets a processor of the new set,
//! and every activation binds itself again at its next chance.
//!
//! A change to exactly the processor to which an activation is bound already cannot be seen.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::processors::asked::{self, Asked};
use crate::processors::binding::Binding;
use crate::processors::placement::{self, Home};
use crate::sys;

/// Words of 64 processors each: processors from 1024 on are not used.
pub const WORDS: usize = 16;
/// How often the masks are compared.
const LOOK_EVERY_NS: u64 = 100_000_000;
/// How often it is tried whether the machine grants more than before.
const GROW_EVERY_NS: u64 = 1_000_000_000;

static WANTED: [AtomicU64; WORDS] = [const { AtomicU64::new(u64::MAX) }; WORDS];
static ALLOWED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static GRANTED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// Changes whenever bindings made before do not count any more.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// A binding failed: the set is out of date.
static STALE: AtomicBool = AtomicBool::new(false);
static CHANGING: AtomicBool = AtomicBool::new(false);
static NEXT_LOOK: AtomicU64 = AtomicU64::new(0);
static NEXT_GROWTH: AtomicU64 = AtomicU64::new(0);

/// All processors that there could be.
const ALL: Set = Set([u64::MAX; WORDS]);

/// A set of processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set(pub [u64; WORDS]);

impl Set {
    /// The set of one processor; empty for one that is not used.
    pub fn only(processor: u32) -> Self {
        let mut words = [0; WORDS];
        if let Some(word) = words.get_mut(processor as usize / 64) {
            *word = 1 << (processor % 64);
        }
        Set(words)
    }

    /// Whether it holds this processor.
    pub fn has(&self, processor: u32) -> bool {
        self.0
            .get(processor as usize / 64)
            .is_some_and(|word| word >> (processor % 64) & 1 != 0)
    }

    /// What it has in common with another one.
    pub fn and(&self, other: &Set) -> Set {
        Set(core::array::from_fn(|index| self.0[index] & other.0[index]))
    }

    /// Whether it holds all that another one holds.
    pub fn covers(&self, other: &Set) -> bool {
        self.and(other) == *other
    }

    /// Its processors in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..64 * WORDS as u32).filter(|&processor| self.has(processor))
    }

    /// Its first processors, at most so many.
    pub fn first(&self, most: usize) -> Set {
        let mut left = most;
        Set(self.0.map(|word| first_bits(word, &mut left)))
    }

    /// How many processors it holds.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }
}

/// The lowest bits of a word of a set, as many as are `left`, which become fewer.
pub fn first_bits(mut word: u64, left: &mut usize) -> u64 {
    while word.count_ones() as usize > *left {
        word &= !(1 << word.ilog2());
    }
    *left -= word.count_ones() as usize;
    word
}

/// What the kernel says of a kernel thread; 0 is the caller. Empty when it is gone.
fn of_kernel_thread(tid: i32) -> Set {
    let mut set = Set([0; WORDS]);
    // SAFETY: writes at most the size given.
    unsafe {
        sys!(
            sys::SYS_SCHED_GETAFFINITY,
            tid,
            size_of_val(&set.0),
            set.0.as_mut_ptr()
        )
    };
    set
}

/// Gives the calling kernel thread this mask. Returns true if the kernel took it.
pub(crate) fn apply(set: &Set) -> bool {
    apply_to(0, set)
}

/// The same for another kernel thread.
pub(crate) fn apply_to(tid: i32, set: &Set) -> bool {
    // SAFETY: reads the mask.
    unsafe { apply_words(tid, set.0.as_ptr()) }
}

/// # Safety
///
/// As many words as a [`Set`] has can be read there.
unsafe fn apply_words(tid: i32, words: *const u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { sys!(sys::SYS_sched_setaffinity, tid, size_of::<Set>(), words) == 0 }
}

/// Notes what the calling kernel thread may use, before anything is bound.
pub fn note() {
    // A fork may have met its parent at these.
    CHANGING.store(false, Ordering::Relaxed);
    placement::MOVING.store(false, Ordering::Relaxed);
    let given = of_kernel_thread(0);
    // Does it have all that there is because nobody asked for less? Then it may have more later.
    apply(&ALL);
    let all = of_kernel_thread(0);
    apply(&given);
    store(&ALLOWED, &given);
    store(&GRANTED, &all);
    let wanted = if all == given { ALL } else { given };
    store(&WANTED, &wanted);
}

/// The processors that the program may use now.
pub fn allowed() -> Set {
    load(&ALLOWED)
}

/// Returns true if a thread with this mask may run on all processors of the virtual processors, and the machine grants
/// it no other.
pub fn is_as_allowed(mask: &Set) -> bool {
    let allowed = allowed();
    mask.covers(&allowed) && allowed.covers(&mask.and(&load(&GRANTED)))
}

/// Gives the calling kernel thread, which an activation was bound to and which leaves the runtime, the
/// mask that it would have without the runtime: what its thread has asked for, or what the program
/// may use.
pub fn release(asked: Option<&Asked>) {
    // A child of clone(2) calls this on a stack that may have no room for a set: the kernel reads this one where it is.
    // SAFETY: words that live for ever.
    let wanted = || unsafe { apply_words(0, WANTED.as_ptr().cast()) };
    if !asked.is_some_and(apply_asked) && !wanted() {
        apply_allowed();
    }
}

#[inline(never)]
fn apply_asked(asked: &Asked) -> bool {
    asked.get().is_some_and(|set| apply(&set))
}

#[inline(never)]
fn apply_allowed() {
    apply(&allowed());
}

/// Counts the changes of the set.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// The kernel refused a binding.
#[cold]
pub(crate) fn is_stale() {
    STALE.store(true, Ordering::Relaxed);
}

/// Sees whether somebody has changed what the program may use: now, if `always`, or when some time has passed
/// since the last look. Called by an activation that is bound and runs: its own binding, `here` the processor of its
/// virtual processor, and the first activation's kernel thread and binding.
pub(crate) fn look(
    own: &Binding,
    here: impl Fn() -> u32,
    first: Option<(i32, &Binding)>,
    homes: &[impl Home],
    now: u64,
    always: bool,
) {
    if !(always || is_time(now)) || CHANGING.swap(true, Ordering::Acquire) {
        return;
    }
    let by_others = mask_of_others(0, own).or_else(|| {
        let (tid, binding) = first?;
        mask_of_others(tid, binding)
    });
    let stale = STALE.swap(false, Ordering::Relaxed);
    let grow = now >= NEXT_GROWTH.load(Ordering::Relaxed);
    if by_others.is_some() || stale || grow {
        NEXT_GROWTH.store(now + GROW_EVERY_NS, Ordering::Relaxed);
        // What the machine grants of what is wanted.
        apply(&load(&WANTED));
        let mut granted = of_kernel_thread(0);
        if let Some(wanted) = by_others
            && wanted != granted
        {
            // Not the machine's doing: somebody wants it so.
            store(&WANTED, &wanted);
            asked::forget_all();
            granted = wanted;
        }
        if by_others.is_some() || granted != allowed() {
            store(&ALLOWED, &granted);
            if load(&WANTED) == ALL {
                store(&GRANTED, &granted);
            }
            placement::spread(homes, &granted);
            GENERATION.fetch_add(1, Ordering::Relaxed);
        }
        own.forget();
        own.bind(here());
    }
    CHANGING.store(false, Ordering::Release);
}

/// Returns true once in [`LOOK_EVERY_NS`].
fn is_time(now: u64) -> bool {
    let next = NEXT_LOOK.load(Ordering::Relaxed);
    now >= next
        && NEXT_LOOK
            .compare_exchange(
                next,
                now + LOOK_EVERY_NS,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
}

/// Returns the mask of a kernel thread, if it is not the one that the activation bound itself to.
pub(crate) fn mask_of_others(tid: i32, binding: &Binding) -> Option<Set> {
    let before = binding.expected()?;
    let mask = of_kernel_thread(tid);
    // It may be bound anew right now.
    let same = binding.expected() == Some(before);
    (same && !mask.is_empty() && mask != before).then_some(mask)
}

fn load(from: &[AtomicU64; WORDS]) -> Set {
    Set(core::array::from_fn(|index| {
        from[index].load(Ordering::Relaxed)
    }))
}

fn store(to: &[AtomicU64; WORDS], set: &Set) {
    for (own, word) in to.iter().zip(set.0) {
        own.store(word, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_into_it() {
        let set = Set::only(70);
        assert!(set.has(70) && !set.has(6) && !set.has(5000));
        assert_eq!(set.iter().collect::<Vec<_>>(), [70]);
        assert_eq!(set.len(), 1);
        assert!(Set::only(5000).is_empty());
        assert!(ALL.covers(&set) && !set.covers(&ALL) && set.covers(&set));
    }

    #[test]
    fn the_first_processors_of_a_set_are_those_with_the_lowest_numbers() {
        let mut set = Set([0; WORDS]);
        set.0[0] = 0b1011_0000;
        set.0[3] = u64::MAX;
        let first = |most| set.first(most).iter().collect::<Vec<_>>();
        assert!(first(0).is_empty());
        assert_eq!(first(2), [4, 5]);
        assert_eq!(first(4), [4, 5, 7, 192]);
        assert_eq!(set.first(67), set);
        assert_eq!(set.first(usize::MAX), set);
    }

    #[test]
    fn the_callers_mask_is_what_limits_says() {
        let set = of_kernel_thread(0);
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            crate::sys::limits::allowed_processors()
        );
    }
}
