//! The pieces that a thread has forked and not joined yet.
//!
//! A list is an array of words. The thread uses them like a stack; takers begin at the bottom, with the oldest piece. A
//! word decides who runs its piece:
//!
//! ```text
//!   NOTHING ──▶ piece ──▶ NOTHING             forked, and taken back by the thread
//!   NOTHING ──▶ piece ──▶ TAKEN ──▶ NOTHING   forked, taken by a taker, and joined
//! ```
//!
//! A piece that is joined while younger ones are left becomes `JOINED` in place of `NOTHING`, up to the end of those.
//!
//! A taker uses a piece only when it has taken it: the stack on which the piece lies may be something else before. If the
//! thread has forked another piece at the same address meanwhile, the taker takes that one. The words themselves are there
//! for ever.
//!
//! A list is *known* while takers look at it ([`super::pieces`]). The thread forks a piece, then looks if its list is known.
//! A taker that finds the list empty takes that away, then looks again. Between its two steps each of the two passes a full
//! barrier: either the taker sees the piece, or the thread sees that its list is not known.
//!
//! The thread's barrier is a locked instruction. It needs none while the list is *biased* to it (docs/adr/0061): the taker
//! then makes all kernel threads pass one (membarrier(2)).
//!
//! Approach rejected: a list through the pieces themselves. Takers would read stacks that may be in use for something else.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::piece::Header;
use crate::waiting::{AtomicU32, AtomicUsize, fence, light_barrier};

/// So many pieces have room.
const ROOM: usize = if cfg!(loom) { 2 } else { 128 };

const NOTHING: usize = 0;
const TAKEN: usize = 1;
const JOINED: usize = 2;

/// What takers know of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Known {
    /// They do not look at it.
    Not,
    /// They do.
    Shared,
    /// They do, and pass barriers before they forget it.
    Biased,
}

/// See the module's text.
#[repr(align(128))]
pub(crate) struct List {
    /// How many pieces there are. The thread's own.
    len: AtomicUsize,
    known: AtomicU32,
    #[cfg(not(loom))]
    pub(super) owner: super::taker::Owner,
    places: [AtomicUsize; ROOM],
}

/// Where a piece is in its thread's list.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    list: &'static List,
    index: usize,
}

impl List {
    pub(crate) fn new() -> Self {
        List {
            len: AtomicUsize::new(0),
            known: AtomicU32::new(0),
            #[cfg(not(loom))]
            owner: super::taker::Owner::nobody(),
            places: std::array::from_fn(|_| AtomicUsize::new(NOTHING)),
        }
    }

    /// Puts a piece in, if there is room. By the thread itself, which then looks if the list [is known](List::is_known).
    #[inline]
    pub(crate) fn push(&'static self, piece: NonNull<Header>) -> Option<Place> {
        let index = self.len.load(Ordering::Relaxed);
        let place = self.places.get(index)?;
        self.len.store(index + 1, Ordering::Relaxed);
        let piece = piece.as_ptr().addr();
        if self.known.load(Ordering::Relaxed) == Known::Biased as u32 {
            // Release: pairs with the Acquire in `take`.
            place.store(piece, Ordering::Release);
            // Pairs with the barriers in `Pieces::forget_empty`.
            light_barrier();
            if self.known.load(Ordering::Relaxed) != Known::Biased as u32 {
                // SeqCst: see the module's text.
                fence(Ordering::SeqCst);
            }
        } else {
            // SeqCst: see the module's text. Release: as above.
            place.swap(piece, Ordering::SeqCst);
        }
        Some(Place { list: self, index })
    }

    /// Returns true if the thread has joined all that it has forked. By the thread itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Returns true if takers look at the list.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        // SeqCst: see the module's text.
        self.known.load(Ordering::SeqCst) != Known::Not as u32
    }

    /// Returns true if takers look at the list, and the thread puts pieces in without a barrier.
    pub(crate) fn is_biased(&self) -> bool {
        self.known.load(Ordering::Relaxed) == Known::Biased as u32
    }

    /// By one that has all known lists locked.
    pub(crate) fn set_known(&self, known: Known) {
        // SeqCst: see the module's text.
        self.known.swap(known as u32, Ordering::SeqCst);
    }

    /// Returns the oldest piece that nobody has taken.
    fn oldest(&self) -> Option<(&AtomicUsize, usize)> {
        for place in &self.places {
            // SeqCst: see the module's text.
            match place.load(Ordering::SeqCst) {
                NOTHING => return None,
                TAKEN | JOINED => {}
                piece => return Some((place, piece)),
            }
        }
        None
    }

    /// Returns true if there is a piece that nobody has taken.
    pub(crate) fn has_piece(&self) -> bool {
        self.oldest().is_some()
    }

    /// Takes the oldest piece.
    pub(crate) fn take(&self) -> Option<NonNull<Header>> {
        loop {
            let (place, piece) = self.oldest()?;
            // Acquire: pairs with the swap in `push`: the piece is as it was forked.
            if place
                .compare_exchange(piece, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return NonNull::new(std::ptr::with_exposed_provenance_mut(piece));
            }
        }
    }
}

impl Place {
    /// Takes the youngest piece back, by its thread. Returns false if it was taken.
    #[inline]
    pub(crate) fn take_back(self) -> bool {
        let Some(place) = self.list.places.get(self.index) else {
            unreachable!("the piece was there");
        };
        // Relaxed: what a taker does with the piece is ordered by the piece's own word.
        let found = place.swap(NOTHING, Ordering::Relaxed);
        self.list.len.store(self.index, Ordering::Relaxed);
        found != TAKEN
    }

    /// As [`Place::take_back`], for a piece that need not be the youngest.
    #[inline]
    pub(crate) fn take_back_any(self) -> bool {
        let (places, len) = (&self.list.places, &self.list.len);
        if let Some(place) = places.get(self.index)
            && self.index + 1 < len.load(Ordering::Relaxed)
        {
            // Relaxed: as in `take_back`.
            return place.swap(JOINED, Ordering::Relaxed) != TAKEN;
        }
        let is_back = self.take_back();
        let joined = |place: &&AtomicUsize| place.load(Ordering::Relaxed) == JOINED;
        for place in places[..self.index].iter().rev().take_while(joined) {
            place.store(NOTHING, Ordering::Relaxed);
            len.store(len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        }
        is_back
    }

    /// Returns true if the piece is in this list.
    pub(crate) fn is_in(self, list: &List) -> bool {
        std::ptr::eq(self.list, list)
    }

    /// The list that it is in.
    pub(crate) fn list(self) -> &'static List {
        self.list
    }
}
