//! Threads linked through themselves: a list needs no memory, and no bound.

use crate::sync::Ordering;

use crate::machine::Machine;
use crate::state::thread::Thread;

/// Threads linked one after the other. Owned by whoever holds the value.
pub struct ThreadList<K: Machine> {
    pub(crate) head: Option<&'static Thread<K>>,
    tail: Option<&'static Thread<K>>,
    len: usize,
}

impl<K: Machine> Default for ThreadList<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Machine> ThreadList<K> {
    /// No threads.
    pub const fn new() -> Self {
        ThreadList {
            head: None,
            tail: None,
            len: 0,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a thread at the end.
    #[inline]
    pub fn push_back(&mut self, thread: &'static Thread<K>) {
        thread.next.set(None, Ordering::Relaxed);
        match self.tail {
            Some(tail) => tail.next.set(Some(thread), Ordering::Relaxed),
            None => self.head = Some(thread),
        }
        self.tail = Some(thread);
        self.len += 1;
    }

    /// Adds a thread at the front.
    #[inline]
    pub fn push_front(&mut self, thread: &'static Thread<K>) {
        thread.next.set(self.head, Ordering::Relaxed);
        if self.head.is_none() {
            self.tail = Some(thread);
        }
        self.head = Some(thread);
        self.len += 1;
    }

    /// Moves all of the others to the end.
    pub(crate) fn append(&mut self, others: &mut ThreadList<K>) {
        let Some(first) = others.head else {
            return;
        };
        match self.tail {
            Some(tail) => tail.next.set(Some(first), Ordering::Relaxed),
            None => self.head = Some(first),
        }
        self.tail = others.tail;
        self.len += others.len;
        *others = ThreadList::new();
    }

    /// Takes the first thread.
    #[inline]
    pub fn pop_front(&mut self) -> Option<&'static Thread<K>> {
        let thread = self.head?;
        self.head = thread.next.get(Ordering::Relaxed);
        if self.head.is_none() {
            self.tail = None;
        }
        self.len -= 1;
        Some(thread)
    }

    /// Whether this thread is in the list.
    pub(crate) fn contains(&self, thread: &'static Thread<K>) -> bool {
        core::iter::successors(self.head, |one| one.next.get(Ordering::Relaxed))
            .any(|one| core::ptr::eq(one, thread))
    }

    /// Takes this thread out; says whether it was there.
    pub(crate) fn remove(&mut self, thread: &'static Thread<K>) -> bool {
        let mut others = ThreadList::new();
        let before = self.len;
        while let Some(first) = self.pop_front() {
            if !core::ptr::eq(first, thread) {
                others.push_back(first);
            }
        }
        *self = others;
        self.len < before
    }
}

// SAFETY: a list holds references to threads, whose fields are atomics; the list itself is moved
// between kernel threads, never shared without a lock.
unsafe impl<K: Machine> Send for ThreadList<K> {}
