//! Which threads have pieces, and that somebody looks after them.
//!
//! The lists that takers look at are the *known* ones. Invariant: while there is a known list, there is a taker that looks or
//! will look, be it one that waits in a ready list. The one lock here holds it:
//!
//! 1. The thread that forks a piece makes its list known, and a taker if there is none ([`Pieces::announce`]).
//! 2. A taker that has taken a piece does not look any more. While there are known lists, it makes another one before it runs
//!    the piece ([`Pieces::look`]).
//! 3. A taker that finds no piece forgets the lists, and ends.
//!
//! A list is known as biased to its thread, which then forks without a locked instruction. Barriers are dear for every
//! processor of the process. So after some were passed, lists are not biased for a while.

use std::collections::VecDeque;
use std::ptr::NonNull;

use super::list::{Known, List};
use super::piece::Header;
use crate::sync::{Mutex, MutexGuard};
use crate::waiting;

/// So many times as long as it took to pass barriers, no list is biased afterwards: they take a hundredth of the time at most.
const UNBIASED: u64 = 100;

/// See the module's text.
pub(crate) struct Pieces(Mutex<Lists>);

struct Lists {
    /// The known ones.
    known: VecDeque<&'static List>,
    /// There is a taker that looks, or will look.
    looks: bool,
    /// Barriers can be passed.
    may_be_biased: bool,
    /// Until then no list is biased, in nanoseconds of CLOCK_MONOTONIC.
    unbiased_until: u64,
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
    /// The lists of a process; `may_be_biased` if [`waiting::pass_barriers`] works.
    pub(crate) fn new(may_be_biased: bool) -> Self {
        Pieces(Mutex::new(Lists {
            known: VecDeque::new(),
            looks: false,
            may_be_biased,
            unbiased_until: 0,
            free: Vec::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
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
        let mut lists = self.lock();
        if list.is_known() {
            return false;
        }
        list.set_known(lists.kind());
        lists.known.push_back(list);
        !std::mem::replace(&mut lists.looks, true)
    }

    /// Looks for a piece, in the lists of the threads from which `may_take` allows it. By a taker.
    pub(crate) fn look(&self, may_take: impl Fn(&List) -> bool) -> Looked {
        let mut lists = self.lock();
        for _ in 0..lists.known.len() {
            let Some(list) = lists.known.pop_front() else {
                break;
            };
            if lists.forget_empty(list) {
                continue;
            }
            let piece = if may_take(list) { list.take() } else { None };
            if piece.is_none() || !lists.forget_empty(list) {
                lists.bias_again(list);
                // Behind the others.
                lists.known.push_back(list);
            }
            if let Some(piece) = piece {
                lists.looks = !lists.known.is_empty();
                let another = lists.looks;
                return Looked::Piece {
                    piece,
                    list,
                    another,
                };
            }
        }
        if lists.known.is_empty() {
            lists.looks = false;
            Looked::Nothing
        } else {
            Looked::Later
        }
    }

    /// Called when no taker can be made: threads with pieces try again when they fork the next ones.
    #[cold]
    pub(crate) fn give_up(&self) {
        let mut lists = self.lock();
        lists.looks = false;
        for list in lists.known.drain(..) {
            list.set_known(Known::Not);
        }
    }

    /// No list is biased from here on: barriers are about to be forbidden.
    #[cold]
    pub(crate) fn end_bias(&self) {
        let mut lists = self.lock();
        if std::mem::take(&mut lists.may_be_biased) {
            for list in &lists.known {
                list.set_known(Known::Shared);
            }
            // Each thread that still took its list for biased has put its piece in, or sees that it is not.
            waiting::pass_barriers();
        }
    }
}

impl Lists {
    /// As what a list is known that takers look at from here on.
    fn kind(&self) -> Known {
        if self.may_be_biased && waiting::now_ns() >= self.unbiased_until {
            Known::Biased
        } else {
            Known::Shared
        }
    }

    /// Called now and then for a list that stays known.
    fn bias_again(&self, list: &List) {
        if !list.is_biased() && self.kind() == Known::Biased {
            list.set_known(Known::Biased);
        }
    }

    fn pass_barriers(&mut self) -> bool {
        let before = waiting::now_ns();
        self.may_be_biased = waiting::pass_barriers();
        let after = waiting::now_ns();
        self.unbiased_until = after + UNBIASED * (after - before);
        self.may_be_biased
    }

    /// If a known list has no piece, it is not known any more, and this returns true.
    fn forget_empty(&mut self, list: &List) -> bool {
        if list.has_piece() {
            return false;
        }
        let was_biased = list.is_biased();
        list.set_known(Known::Not);
        if was_biased && !self.pass_barriers() {
            // The next look comes much later than the end of what the thread was just about to do.
            list.set_known(Known::Shared);
            return false;
        }
        // A piece that was forked before this its thread may have taken for known.
        if list.has_piece() {
            list.set_known(Known::Shared);
            return false;
        }
        true
    }
}
