//! The atomics of a model checker under the types of the runtime.
//!
//! The checkers' own atomics cannot be made at compile time, nor be all zeros, nor come into being
//! while several threads run. So each of ours gets one, at its first use, out of a pool that the
//! model's first thread has made; that one holds the difference to the value which ours began with.
//!
//! Loom knows SeqCst of fences alone and takes SeqCst accesses for AcqRel. Here a SeqCst store or
//! read-modify-write has a SeqCst fence on both sides, and a SeqCst load none: that is what the
//! accesses mean on x86-64. It orders more than the language promises in one way: relaxed
//! accesses around such a store. Weaker accesses are what the language says, not what x86-64 does.

use core::cell::Cell;
use core::marker::PhantomData;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;

pub use core::sync::atomic::Ordering;
#[cfg(loom)]
use loom::{sync::atomic, thread};
#[cfg(shuttle)]
use shuttle::{sync::atomic, thread};

struct Pool {
    execution: u32,
    words: Rc<Vec<atomic::AtomicU64>>,
    #[cfg(loom)]
    cells: Rc<Vec<loom::cell::UnsafeCell<()>>>,
    used_words: usize,
    #[cfg(loom)]
    used_cells: usize,
}

std::thread_local! {
    static POOL: RefCell<Option<Pool>> = const { RefCell::new(None) };
}

/// Begins an execution of a model that uses at most so many atomics and cells. By its first thread,
/// before there are others.
pub fn begin(words: usize, cells: usize) {
    // Made before the pool is borrowed: the checker may switch.
    let words = Rc::new((0..words).map(|_| atomic::AtomicU64::new(0)).collect());
    #[cfg(loom)]
    let cells = Rc::new(
        (0..cells)
            .map(|_| loom::cell::UnsafeCell::new(()))
            .collect(),
    );
    #[cfg(shuttle)]
    let _ = cells;
    POOL.with_borrow_mut(|pool| {
        let execution = pool.as_ref().map_or(1, |pool| pool.execution + 1);
        *pool = Some(Pool {
            execution,
            words,
            #[cfg(loom)]
            cells,
            used_words: 0,
            #[cfg(loom)]
            used_cells: 0,
        });
    });
}

/// Where in the pool something has its place; zero: nowhere yet.
struct Place(Cell<u64>);

impl Place {
    const fn none() -> Self {
        Place(Cell::new(0))
    }

    fn find<T>(
        &self,
        choose: impl FnOnce(&mut Pool) -> (&mut usize, Rc<Vec<T>>),
    ) -> (Rc<Vec<T>>, usize) {
        POOL.with_borrow_mut(|pool| {
            let pool = pool.as_mut().expect("outside of a model");
            let execution = pool.execution;
            let (used, all) = choose(pool);
            if (self.0.get() >> 32) as u32 != execution {
                assert!(
                    *used < all.len(),
                    "the model needs more than {} places",
                    all.len()
                );
                self.0.set(u64::from(execution) << 32 | *used as u64);
                *used += 1;
            }
            (all, self.0.get() as u32 as usize)
        })
    }
}

/// A word's place in the pool.
struct Word(Place);

// SAFETY: the checkers run all threads of a model on one kernel thread.
unsafe impl Sync for Word {}
// SAFETY: as above.
unsafe impl Send for Word {}

impl Word {
    fn with<R>(&self, order: Ordering, access: impl FnOnce(&atomic::AtomicU64) -> R) -> R {
        let (words, at) = self
            .0
            .find(|pool| (&mut pool.used_words, pool.words.clone()));
        let strong = order == Ordering::SeqCst;
        if strong {
            full_fence();
        }
        let result = access(&words[at]);
        if strong {
            full_fence();
        }
        result
    }
}

fn full_fence() {
    fence(Ordering::SeqCst);
}

/// As in `core`.
pub fn fence(order: Ordering) {
    #[cfg(loom)]
    loom::sync::atomic::fence(order);
    #[cfg(shuttle)]
    let _ = order;
}

/// As on the machine; here it is always one.
pub fn fence_after_locked() {
    full_fence();
}

/// As on the machine, where the other half makes it one.
pub fn light_barrier() {
    full_fence();
}

/// As on the machine. A swap that finds the flag set stores what is there already; loom does not know
/// that the holder's store comes after it, and would let the loser see its own for ever.
pub fn test_and_set(flag: &AtomicBool, order: Ordering) -> bool {
    flag.compare_exchange(false, true, order, Ordering::Relaxed)
        .is_err()
}

/// Lets another thread of the model run.
pub fn spin_loop() {
    thread::yield_now();
}

macro_rules! atomic {
    ($name:ident, $type:ty, $initial:ident, $into:expr, $from:expr $(, $generic:ident)?) => {
        /// As in `core`.
        pub struct $name$(<$generic>)? {
            $initial: $type,
            word: Word,
            kind: PhantomData<fn($($generic)?)>,
        }

        // SAFETY: see `Word`.
        unsafe impl$(<$generic>)? Sync for $name$(<$generic>)? {}
        // SAFETY: see `Word`.
        unsafe impl$(<$generic>)? Send for $name$(<$generic>)? {}

        impl$(<$generic>)? $name$(<$generic>)? {
            /// As in `core`.
            pub const fn new($initial: $type) -> Self {
                $name { $initial, word: Word(Place::none()), kind: PhantomData }
            }

            fn encode(&self, value: $type) -> u64 {
                ($into)(self.$initial, value)
            }

            fn decode(&self, raw: u64) -> $type {
                ($from)(self.$initial, raw)
            }

            /// As in `core`.
            pub fn load(&self, order: Ordering) -> $type {
                self.decode(self.word.with(Ordering::Relaxed, |word| word.load(order)))
            }

            /// As in `core`.
            pub fn store(&self, value: $type, order: Ordering) {
                self.word.with(order, |word| word.store(self.encode(value), order));
            }

            /// As in `core`.
            pub fn swap(&self, value: $type, order: Ordering) -> $type {
                self.decode(self.word.with(order, |word| word.swap(self.encode(value), order)))
            }

            /// As in `core`.
            ///
            /// # Errors
            ///
            /// The value found, if it is another one.
            pub fn compare_exchange(
                &self,
                old: $type,
                new: $type,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$type, $type> {
                let (old, new) = (self.encode(old), self.encode(new));
                self.word
                    .with(success, |word| word.compare_exchange(old, new, success, failure))
                    .map(|raw| self.decode(raw))
                    .map_err(|raw| self.decode(raw))
            }

            /// No place in memory holds the value while a model is checked.
            pub fn as_ptr(&self) -> *mut $type {
                (&raw const self.$initial).cast_mut()
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $type:ty) => {
        atomic!(
            $name,
            $type,
            initial,
            |initial: $type, value: $type| u64::from_ne_bytes(
                (value.wrapping_sub(initial) as u64).to_ne_bytes()
            ),
            |initial: $type, raw: u64| initial.wrapping_add(raw as $type)
        );

        impl Default for $name {
            fn default() -> Self {
                $name::new(0)
            }
        }

        impl $name {
            /// As in `core`.
            pub fn fetch_add(&self, value: $type, order: Ordering) -> $type {
                self.decode(
                    self.word
                        .with(order, |word| word.fetch_add(value as u64, order)),
                )
            }

            /// As in `core`.
            pub fn fetch_sub(&self, value: $type, order: Ordering) -> $type {
                self.decode(
                    self.word
                        .with(order, |word| word.fetch_sub(value as u64, order)),
                )
            }

            /// As in `core`, for a word that began as zero.
            pub fn fetch_or(&self, value: $type, order: Ordering) -> $type {
                assert_eq!(self.initial, 0);
                self.word
                    .with(order, |word| word.fetch_or(value as u64, order)) as $type
            }

            /// As in `core`, for a word that began as zero.
            pub fn fetch_and(&self, value: $type, order: Ordering) -> $type {
                assert_eq!(self.initial, 0);
                self.word
                    .with(order, |word| word.fetch_and(value as u64, order)) as $type
            }

            /// As in `core`, for a word that began as zero.
            pub fn fetch_max(&self, value: $type, order: Ordering) -> $type {
                assert_eq!(self.initial, 0);
                self.word
                    .with(order, |word| word.fetch_max(value as u64, order)) as $type
            }
        }
    };
}

number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);
atomic!(
    AtomicBool,
    bool,
    initial,
    |initial: bool, value: bool| u64::from(initial != value),
    |initial: bool, raw: u64| initial != (raw != 0)
);
atomic!(
    AtomicPtr,
    *mut T,
    initial,
    |initial: *mut T, value: *mut T| (value as u64).wrapping_sub(initial as u64),
    |initial: *mut T, raw: u64| (raw.wrapping_add(initial as u64)) as *mut T,
    T
);

/// A cell whose holders must follow one another: loom finds two of whom neither comes after the other.
pub struct UnsafeCell<T> {
    #[cfg(loom)]
    watch: Place,
    value: core::cell::UnsafeCell<T>,
}

impl<T> UnsafeCell<T> {
    /// As in `core`.
    pub const fn new(value: T) -> Self {
        UnsafeCell {
            #[cfg(loom)]
            watch: Place::none(),
            value: core::cell::UnsafeCell::new(value),
        }
    }

    /// As in `core`. Every call counts as a write.
    pub fn get(&self) -> *mut T {
        #[cfg(loom)]
        {
            let (cells, at) = self
                .watch
                .find(|pool| (&mut pool.used_cells, pool.cells.clone()));
            cells[at].with_mut(|_| ());
        }
        self.value.get()
    }
}
