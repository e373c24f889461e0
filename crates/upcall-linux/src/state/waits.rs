//! What the [`poller`](crate::poller) keeps: descriptors, and the threads that wait for them.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use upcall_core::{Edges, Slot, SpinLock};

use crate::state::Thread;

/// Descriptors above this are not parked on; they block an activation.
pub(crate) const DESCRIPTORS: usize = 1 << 20;
/// Pipes of which a reader is known.
pub(crate) const READERS: usize = 256;

/// What is kept with a descriptor, under its lock.
pub(crate) struct Descriptor {
    /// The kernel said that it cannot be polled.
    pub(crate) refused: bool,
    pub(crate) first: Slot<Node>,
    /// Edges, and blocking calls, since a thread last came to wait.
    pub(crate) unwanted: u32,
    /// The pipe's inode number.
    pub(crate) inode: u64,
}

/// With its lock.
pub(crate) type Entry = SpinLock<Descriptor>;

/// The poller of a runtime.
pub struct Poller {
    pub(crate) epoll: i32,
    pub(crate) kick: i32,
    pub(crate) alarm: i32,
    pub(crate) entries: &'static [Entry],
    pub(crate) known: &'static [Known],
    /// The last descriptor on which a thread waited for a pipe, by the pipe's inode number.
    pub(crate) readers: [AtomicU32; READERS],
    /// What threads take that wait for more than one descriptor.
    pub(crate) nodes: SpinLock<Slot<Node>>,
    pub(crate) waiters: Waiters,
    pub(crate) alarm_ns: AtomicU64,
    /// The largest number that was ever registered.
    pub(crate) highest: AtomicU32,
    /// Counts the program's changes of what `poller::known` remembers.
    pub(crate) flags_epoch: AtomicU32,
    /// Counts the program's writes to what its own threads may wait for (`poller::choice`).
    pub(crate) writes: AtomicU32,
    /// How many of the program's calls watches of ours have, or may have, stood in the way of: unless it
    /// is 0, what may be an epoll instance is not watched.
    pub(crate) shallow: AtomicU32,
    /// A kernel thread that is no activation wants all who wait to look again.
    pub(crate) disturbed: AtomicBool,
    /// The alarm could not be set: an activation that waits for events does so until the first deadline only.
    pub(crate) has_no_alarm: AtomicBool,
}

/// What may be read of an entry without its lock.
pub(crate) struct Known {
    /// The low bits are the [`Kind`](crate::poller::Kind); then what was seen, and 1 + the epoch in which it was seen.
    pub(crate) word: AtomicU32,
    /// How many edges have come. Changed under the entry's lock.
    pub(crate) edges: Edges,
    /// Whether the poller watches it. Changed under the entry's lock.
    pub(crate) registered: AtomicBool,
    /// Whether an edge has said more since then than that there is something to read or room to write. Changed under
    /// the entry's lock, before the edge is counted.
    pub(crate) eventful: AtomicBool,
    /// What is known of its reads: see `poller::drained`.
    pub(crate) drained: AtomicU64,
}

/// A thread in the list of one descriptor. Lives in a thread, for the first of its descriptors, or in
/// recycled memory.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Node {
    pub(crate) next: Slot<Node>,
    pub(crate) previous: Slot<Node>,
    /// The next one of the same wait, or of the free ones.
    pub(crate) sibling: Slot<Node>,
    pub(crate) thread: Slot<Thread>,
    pub(crate) wants: AtomicU32,
    pub(crate) descriptor: AtomicU32,
    /// Whether it is in the descriptor's list. Changed under the entry's lock.
    pub(crate) linked: AtomicBool,
    /// [`Watch::moved`](crate::poller::Watch::moved) plus one, or 0.
    pub(crate) moved: AtomicI32,
}

/// A thread's choice. Only the thread, and the caller that has claimed it, change it.
#[derive(Default)]
pub(crate) struct Choice {
    /// Below `poller::choice::INSIDE`, how often in a row it was woken from inside; else how often it parks.
    pub(crate) count: AtomicU32,
    /// [`Poller::writes`] when its wait began.
    pub(crate) writes: AtomicU32,
    /// It blocks in such a wait.
    pub(crate) blocks: AtomicBool,
    /// It waits, and nobody has woken it.
    pub(crate) waits: AtomicBool,
}

/// How many threads are in a wait for descriptors, and in the upper half how many of them nobody has woken. A thread that is
/// woken is counted until it runs: whoever looks for a deadlock must not miss it. But nobody need wait for its sake.
#[derive(Default)]
pub(crate) struct Waiters(AtomicU64);

impl Waiters {
    const ONE: u64 = 1;
    const UNWOKEN: u64 = 1 << 32;

    /// The current thread begins to wait.
    pub(crate) fn begins(&self, thread: &Choice) {
        thread.waits.store(true, Ordering::Relaxed);
        self.0
            .fetch_add(Self::ONE + Self::UNWOKEN, Ordering::Relaxed);
    }

    /// The caller has claimed the thread, and it does not run before the caller has made it ready.
    pub(crate) fn is_woken(&self, thread: &Choice) {
        if thread.waits.load(Ordering::Relaxed) {
            thread.waits.store(false, Ordering::Relaxed);
            self.0.fetch_sub(Self::UNWOKEN, Ordering::Relaxed);
        }
    }

    /// The current thread has waited.
    pub(crate) fn ends(&self, thread: &Choice) {
        self.is_woken(thread);
        self.0.fetch_sub(Self::ONE, Ordering::Relaxed);
    }

    /// Returns true if there are any.
    pub(crate) fn are_there(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Returns true if there are any whom nobody has woken.
    #[inline]
    pub(crate) fn wait(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= Self::UNWOKEN
    }
}
