//! What a policy knows of the threads.

use std::collections::BTreeMap;

use upcall_core::Rank;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use upcall_guest::lending;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
type Block = &'static upcall_linux::Thread;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
type Block = std::convert::Infallible;

/// A thread, for a policy: a number that no other thread has or had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id(pub(super) u64);

impl Id {
    /// Returns the number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The living threads of which a policy has been told: those of the crate, of `std` and of C.
#[derive(Default)]
pub struct Threads {
    known: BTreeMap<Id, Known>,
    /// Threads that were given another rank, which is not in force yet.
    pub(super) changed: Vec<Id>,
}

pub(super) struct Known {
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux")),
        expect(dead_code, reason = "nobody has any")
    )]
    pub(super) block: Block,
    pub(super) rank: Rank,
    pub(super) is_blocked: bool,
    tag: u64,
}

impl Threads {
    /// Gives a thread another rank. It counts at once: a running thread gives way if it must. Returns true if there is
    /// such a thread.
    pub fn set_rank(&mut self, thread: Id, rank: Rank) -> bool {
        let Some(known) = self.known.get_mut(&thread) else {
            return false;
        };
        if known.rank != rank {
            known.rank = rank;
            self.changed.push(thread);
        }
        true
    }

    /// Returns the living thread with this number.
    pub fn find(&self, number: u64) -> Option<Id> {
        let id = Id(number);
        self.known.contains_key(&id).then_some(id)
    }

    /// Returns the rank that the policy has given a thread last.
    pub fn rank(&self, thread: Id) -> Option<Rank> {
        Some(self.known.get(&thread)?.rank)
    }

    /// Returns the number that the program gave a thread by [`Builder::tag`](crate::thread::Builder::tag); 0 if
    /// nothing.
    pub fn tag(&self, thread: Id) -> Option<u64> {
        Some(self.known.get(&thread)?.tag)
    }

    /// Returns true if a thread waits.
    pub fn is_blocked(&self, thread: Id) -> Option<bool> {
        Some(self.known.get(&thread)?.is_blocked)
    }

    /// Returns all living threads, in the order in which they became known.
    pub fn iter(&self) -> impl Iterator<Item = Id> {
        self.known.keys().copied()
    }

    /// Returns the number of living threads.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns true if no thread lives.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(super) fn known(&mut self, thread: Id) -> Option<&mut Known> {
        self.known.get_mut(&thread)
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(super) fn add(&mut self, thread: Id, block: Block, tag: u64) {
        let known = Known {
            block,
            // Its creator's, until the policy says another.
            rank: lending::own_rank(block),
            is_blocked: false,
            tag,
        };
        self.known.insert(thread, known);
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(super) fn remove(&mut self, thread: Id) {
        self.known.remove(&thread);
    }
}
