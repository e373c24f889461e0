//! The two halves of [`super::join()`], in a thread that has a list.

use std::mem;
use std::panic::resume_unwind;

use super::list::{List, Place};
use super::piece::Piece;
use super::taker;
use crate::thread;

/// As [`super::join()`], in the thread that has this list.
#[inline]
pub(super) fn join<A, B, RA, RB>(own: &'static List, one: A, other: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    let piece = Piece::new(other);
    let Some(place) = own.push(piece.header()) else {
        // SAFETY: nobody knows of the piece.
        return super::functions::as_threads(one, unsafe { piece.body() });
    };
    let forked = Forked {
        place,
        piece: &piece,
    };
    if !own.is_known() {
        taker::announce(own);
    }
    let one = one();
    mem::forget(forked);
    if place.take_back() {
        // SAFETY: it is the caller's again.
        let other = unsafe { piece.body() };
        return (one, other());
    }
    taker::expect_end(place, piece.known());
    // SAFETY: it was taken.
    let other = unsafe { piece.join() }.unwrap_or_else(|| Err(thread::ended_early()));
    (one, other.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// A piece whose thread is unwound: nothing may refer to it afterwards.
struct Forked<'a, F: FnOnce() -> R, R> {
    place: Place,
    piece: &'a Piece<F, R>,
}

impl<F: FnOnce() -> R, R> Drop for Forked<'_, F, R> {
    #[cold]
    fn drop(&mut self) {
        if self.place.take_back() {
            // SAFETY: it is the caller's again.
            drop(unsafe { self.piece.body() });
        } else {
            taker::expect_end(self.place, self.piece.known());
            // SAFETY: it was taken. What it ended with is lost: there is a panic already.
            drop(unsafe { self.piece.join() });
        }
    }
}
