//! Which threads have pieces, and that somebody looks after them.
//!
//! The lists that takers look at are the *known* ones. Invariant: while there is a known list, there is a taker that looks or
//! will look, be it one that waits in a ready list. The one lock here holds it:
//!
//! 1. The thread that forks a piece makes its list known, and a taker if there is none ([`Pieces::announce`]).
//! 2. A taker that has taken a piece does not look any more. While there are known lists, it makes another one before it runs
//!    the piece ([`Pieces::look`]).
//! 3. A taker that finds no piece forgets the lists, and ends.

use std::collections::VecDeque;
use std::ptr::NonNull;

use super::list::List;
use super::piece::Header;
use crate::sync::{Mutex, MutexGuard};

/// See the module's text.
pub(crate) struct Pieces(Mutex<Known>);

struct Known {
    lists: VecDeque<&'static List>,
    /// There is a taker that looks, or will look.
    looks: bool,
    /// Lists without a thread.
    free: Vec<&'static List>,
}

/// What a taker has found.
pub(crate) enum Looked {
    /// This piece, which is the taker's now, of the thread with this list.
    Piece {
        piece: NonNull<Header>,
        list: &'static List,
        /// The taker must make another one.
        another: bool,
    },
    /// Pieces that it may not take now: it must look again.
    Later,
    /// Nothing: it is not a taker any more.
    Nothing,
}

impl Pieces {
    pub(crate) fn new() -> Self {
        Pieces(Mutex::new(Known {
            lists: VecDeque::new(),
            looks: false,
            free: Vec::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// A list for a thread.
    pub(crate) fn list(&self) -> &'static List {
        let free = self.lock().free.pop();
        free.unwrap_or_else(|| Box::leak(Box::new(List::new())))
    }

    /// Takes the list of a thread back, without pieces. It may still be known.
    pub(crate) fn give_back(&self, list: &'static List) {
        self.lock().free.push(list);
    }

    /// Called when a thread has forked a piece and found its list not known. Returns true if the caller must make a taker.
    pub(crate) fn announce(&self, list: &'static List) -> bool {
        let mut known = self.lock();
        if list.is_known() {
            return false;
        }
        list.set_known(true);
        known.lists.push_back(list);
        !std::mem::replace(&mut known.looks, true)
    }

    /// Looks for a piece, in the lists of the threads from which `may_take` allows it. By a taker.
    pub(crate) fn look(&self, may_take: impl Fn(&List) -> bool) -> Looked {
        let mut known = self.lock();
        for _ in 0..known.lists.len() {
            let Some(list) = known.lists.pop_front() else {
                break;
            };
            if forget_empty(list) {
                continue;
            }
            let piece = if may_take(list) { list.take() } else { None };
            // Behind the others.
            if piece.is_none() || !forget_empty(list) {
                known.lists.push_back(list);
            }
            if let Some(piece) = piece {
                known.looks = !known.lists.is_empty();
                let another = known.looks;
                return Looked::Piece {
                    piece,
                    list,
                    another,
                };
            }
        }
        if known.lists.is_empty() {
            known.looks = false;
            Looked::Nothing
        } else {
            Looked::Later
        }
    }

    /// Called when no taker can be made: threads with pieces try again when they fork the next ones.
    #[cold]
    pub(crate) fn give_up(&self) {
        let mut known = self.lock();
        known.looks = false;
        for list in known.lists.drain(..) {
            list.set_known(false);
        }
    }
}

/// If a known list has no piece, it is not known any more, and this returns true.
fn forget_empty(list: &List) -> bool {
    if list.has_piece() {
        return false;
    }
    list.set_known(false);
    // A piece that was forked before this its thread may have taken for known.
    if list.has_piece() {
        list.set_known(true);
        return false;
    }
    true
}
