//! A piece of a scope, which is joined in any order with others.

use super::list::{List, Place};
use super::piece::Piece;
use super::taker;
use crate::thread::{Result, ended_early};

/// See the module's text.
pub(super) struct Forked<F, T> {
    piece: Piece<F, T>,
    /// None: it was joined.
    place: Option<Place>,
}

impl<F: FnOnce() -> T, T> Forked<F, T> {
    /// Forks it in the thread that has this list. If that has no room, it is not forked, and comes back.
    pub(super) fn new(own: &'static List, body: F) -> std::result::Result<Box<Self>, F> {
        let mut forked = Box::new(Forked {
            piece: Piece::new(body),
            place: None,
        });
        let Some(place) = own.push(forked.piece.header()) else {
            // SAFETY: nobody knows of the piece.
            return Err(unsafe { forked.piece.body() });
        };
        forked.place = Some(place);
        if !own.is_known() {
            taker::announce(own);
        }
        Ok(forked)
    }

    /// Returns the closure if nobody has begun it, else its result.
    pub(super) fn end(&mut self) -> std::result::Result<F, Result<T>> {
        if let Some(place) = self.place.take() {
            if place.take_back_any() {
                // SAFETY: it is the caller's again.
                return Ok(unsafe { self.piece.body() });
            }
            taker::expect_end(place, self.piece.known());
        }
        // SAFETY: it was taken.
        let result = unsafe { self.piece.join() };
        Err(result.unwrap_or_else(|| Err(ended_early())))
    }
}
