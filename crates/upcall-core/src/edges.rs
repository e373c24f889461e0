//! A count of events, against which a thread that is about to park cannot lose one.
//!
//! 1. The thread notes the count ([`Edges::seen`]), and finds that there is nothing for it.
//! 2. It enters the list of those to wake, declares itself findable
//!    ([`Thread::begin_park`](crate::Thread::begin_park)), and looks whether the count has moved
//!    ([`Edges::any_moved`]).
//! 3. A thread that has an event counts it first ([`Edges::count`]) and then claims those in the list.
//!
//! So either the claim finds the thread parking, or the thread finds the event counted.

use crate::sync::{AtomicU32, Ordering, fence};

/// How many events there were, modulo 2^32. All zeros is none.
#[derive(Default)]
pub struct Edges(AtomicU32);

impl Edges {
    /// The count now.
    #[inline]
    pub fn seen(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// One more.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence in `any_moved`.
        fence(Ordering::SeqCst);
    }

    /// Returns true if one of these counts is not what was seen any more. The caller is a thread that has
    /// declared itself findable.
    pub fn any_moved<'a>(watched: impl IntoIterator<Item = (&'a Edges, u32)>) -> bool {
        // Pairs with the fence in `count`.
        fence(Ordering::SeqCst);
        watched
            .into_iter()
            .any(|(edges, seen)| edges.seen() != seen)
    }
}
