//! In the place of the crate's `waiting`, for those files of it that `join` has: words of the simulated machine, and its futex.
//!
//! Each access to a word is a step, before which others may run. The memory is that of x86-64: a store, unless it is SeqCst,
//! is put into its thread's *buffer* first, where only that thread sees it. Sooner or later it reaches the memory, in the order of the
//! thread's stores. A locked instruction (each exchange is one) empties the buffer, and so does whatever enters the runtime or
//! the kernel. Weaker memories are the models' to try.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{self, Ordering};

use upcall_core::Activation;
use upcall_core::kernel::Vessels;
use upcall_sim::{Me, Sim};

thread_local! {
    /// The first thread of the run.
    static MAIN: Cell<Option<Me>> = const { Cell::new(None) };
    static BUFFERS: RefCell<Vec<Store>> = const { RefCell::new(Vec::new()) };
    /// The clock: how many accesses there were.
    static NOW: Cell<u64> = const { Cell::new(0) };
    /// Barriers can be passed.
    static HAS_BARRIERS: Cell<bool> = const { Cell::new(true) };
    /// Somebody looks at the words from outside of the run.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A store that has not reached the memory.
#[derive(Clone, Copy)]
struct Store {
    thread: usize,
    word: usize,
    value: usize,
    /// Puts a value into the word at an address.
    put: unsafe fn(usize, usize),
}

impl Store {
    fn reaches_memory(self) {
        // SAFETY: it was made for this word, which is there for the run, as all are that are stored to.
        unsafe { (self.put)(self.word, self.value) };
    }
}

/// Begins a run. By its first thread.
pub(crate) fn begin(main: Me) {
    MAIN.set(Some(main));
    BUFFERS.take();
    NOW.set(0);
    HAS_BARRIERS.set(true);
}

/// The first thread of the run.
pub(crate) fn main() -> Me {
    MAIN.get().expect("the run has begun")
}

fn current() -> &'static Activation<Sim> {
    main().runtime.kernel().current()
}

/// The calling thread.
pub(crate) fn this() -> Me {
    let thread = current().thread().expect("a thread");
    Me { thread, ..main() }
}

fn number(me: Me) -> usize {
    std::ptr::from_ref(me.thread).addr()
}

/// Whether others are ready on the virtual processor of the calling thread.
pub(crate) fn has_company() -> bool {
    current().vp().has_ready()
}

/// Does something by which the calling thread enters the runtime or the kernel.
pub(crate) fn calls<R>(call: impl FnOnce(Me) -> R) -> R {
    let me = this();
    // What the thread has done until here, others may see later than what they do now.
    me.step();
    empty(|store| store.thread == number(me));
    call(me)
}

/// As [`calls`], not from outside of the run.
pub(crate) fn calls_unless_quiet(call: impl FnOnce(Me)) {
    if !QUIET.get() {
        calls(call);
    }
}

/// Uses words from outside of the run, while nothing runs. All stores have reached the memory.
pub(crate) fn quietly<R>(look: impl FnOnce() -> R) -> R {
    empty(|_| true);
    QUIET.set(true);
    let result = look();
    QUIET.set(false);
    result
}

/// The stores of some threads reach the memory.
fn empty(whose: impl Fn(&Store) -> bool) {
    let stores: Vec<_> =
        BUFFERS.with_borrow_mut(|all| all.extract_if(.., |one| whose(one)).collect());
    stores.into_iter().for_each(Store::reaches_memory);
}

/// Stores of some threads have reached the memory meanwhile.
fn time_passes(me: Me) {
    while me.machine.chance(4) {
        let oldest = BUFFERS.with_borrow_mut(|all| {
            let which = me.machine.pick(all.len().max(1) as u64) as usize;
            let thread = all.get(which)?.thread;
            let oldest = all.iter().position(|one| one.thread == thread)?;
            Some(all.remove(oldest))
        });
        oldest.into_iter().for_each(Store::reaches_memory);
    }
}

/// An access: by the calling thread, whose step it is; or from where nothing else runs, be it outside of the run or in the
/// runtime, under one of its locks.
fn access() -> Option<Me> {
    if QUIET.get() || current().is_inside() {
        return None;
    }
    let me = this();
    NOW.set(NOW.get() + 1);
    time_passes(me);
    me.step();
    Some(me)
}

/// A full barrier of the calling thread.
pub(crate) fn fence(_: Ordering) {
    if let Some(me) = access() {
        empty(|store| store.thread == number(me));
    }
}

/// As in the crate: nothing by itself.
pub(crate) fn light_barrier() {}

/// All threads pass a barrier (membarrier(2)). Returns false if that is forbidden.
pub(crate) fn pass_barriers() -> bool {
    access();
    let may = HAS_BARRIERS.get();
    if may {
        empty(|_| true);
    }
    may
}

pub(crate) fn forbid_barriers() {
    HAS_BARRIERS.set(false);
}

pub(crate) fn now_ns() -> u64 {
    NOW.get()
}

macro_rules! word {
    ($name:ident, $value:ident) => {
        /// As in `std`.
        pub(crate) struct $name(atomic::$name);

        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                $name(atomic::$name::new(value))
            }

            fn addr(&self) -> usize {
                std::ptr::from_ref(self).addr()
            }

            pub(crate) fn load(&self, _: Ordering) -> $value {
                let own = access().and_then(|me| {
                    BUFFERS.with_borrow(|all| {
                        let is_it =
                            |one: &&Store| one.thread == number(me) && one.word == self.addr();
                        let last = all.iter().rev().find(is_it);
                        last.map(|store| store.value as $value)
                    })
                });
                own.unwrap_or_else(|| self.0.load(Ordering::SeqCst))
            }

            #[allow(dead_code, reason = "of each kind of word")]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                unsafe fn put(word: usize, value: usize) {
                    let word: *const $name = std::ptr::with_exposed_provenance(word);
                    // SAFETY: the caller's promise.
                    unsafe { &*word }.0.store(value as $value, Ordering::SeqCst);
                }
                match access() {
                    Some(me) if order != Ordering::SeqCst => {
                        let store = Store {
                            thread: number(me),
                            word: std::ptr::from_ref(self).expose_provenance(),
                            value: value as usize,
                            put,
                        };
                        BUFFERS.with_borrow_mut(|all| all.push(store));
                    }
                    me => {
                        self.locked(me).store(value, Ordering::SeqCst);
                    }
                }
            }

            /// For a locked instruction.
            fn locked(&self, me: Option<Me>) -> &atomic::$name {
                if let Some(me) = me {
                    empty(|store| store.thread == number(me));
                }
                &self.0
            }

            pub(crate) fn swap(&self, value: $value, _: Ordering) -> $value {
                self.locked(access()).swap(value, Ordering::SeqCst)
            }

            pub(crate) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                let order = Ordering::SeqCst;
                self.locked(access())
                    .compare_exchange(from, to, order, order)
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicUsize, usize);

/// None here has a deadline.
pub(crate) enum Deadline {}

/// Waits until somebody wakes the word, provided that it is `expected`.
pub(crate) fn wait(word: &AtomicU32, expected: u32, _: Option<Deadline>) {
    calls(|me| me.wait(&word.0, expected, None));
}

/// Changes a word and wakes one that waits for it. The change may be the last use of the word.
pub(crate) fn change_and_wake(word: &AtomicU32, change: impl FnOnce(bool) -> bool) -> bool {
    calls(|me| me.change_and_wake(&word.0, change))
}
