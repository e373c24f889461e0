//! Fork and join as the crate has it, from its own files, on the simulated machine. What those files use of the rest of the crate
//! is here: [`taker`], `sync`, `thread` and `waiting`.

#[path = "../../../../upcall/src/join/forked.rs"]
mod forked;
#[path = "../../../../upcall/src/join/lazily.rs"]
mod lazily;
#[allow(dead_code, reason = "the C library asks more of a list")]
#[path = "../../../../upcall/src/join/list.rs"]
mod list;
#[path = "../../../../upcall/src/join/piece.rs"]
mod piece;
#[path = "../../../../upcall/src/join/pieces.rs"]
mod pieces;
#[path = "../../../../upcall/src/join/search.rs"]
mod search;
pub(crate) mod taker;

use crate::thread;

/// As `upcall::join`.
pub(crate) fn join<RA, RB: Send>(
    one: impl FnOnce() -> RA,
    other: impl FnOnce() -> RB + Send,
) -> (RA, RB) {
    lazily::join(taker::own(), one, other)
}

mod functions {
    /// Where a list has no room.
    pub(super) fn as_threads<RA, RB>(
        one: impl FnOnce() -> RA,
        other: impl FnOnce() -> RB,
    ) -> (RA, RB) {
        (one(), other())
    }
}

/// What a thread has forked, and joins in any order with others.
pub(crate) struct Fork<F, T>(Box<forked::Forked<F, T>>);

impl<F: FnOnce() -> T, T> Fork<F, T> {
    /// Forks it. If the thread's list has no room, it comes back.
    pub(crate) fn new(body: F) -> Result<Self, F> {
        forked::Forked::new(taker::own(), body).map(Fork)
    }

    /// Returns the closure if nobody has begun it, else its result.
    pub(crate) fn end(mut self) -> Result<F, thread::Result<T>> {
        self.0.end()
    }
}
