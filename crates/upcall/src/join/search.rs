//! How a taker comes to its piece.

use std::ptr::NonNull;

use super::list::List;
use super::piece::Header;
use super::pieces::{Looked, Pieces};

/// So many turns a taker leaves pieces to threads that run. Their threads may wait for them in a way that nobody sees.
const PATIENCE: u32 = 16;

/// The other threads, for a taker.
pub(super) trait Others {
    /// Returns true if some are ready behind the taker.
    fn are_ready(&self) -> bool;
    /// Makes the next taker.
    fn begin_taker(&self);
    /// Gives way to them.
    fn give_way(&self);
}

/// Returns a piece that the calling taker has taken, of the thread with this list. Where other threads are ready behind the
/// taker, it first takes only pieces of threads that wait: those of others are theirs to run, and they want the processor,
/// too. `None`: there are no pieces any more, and the taker ends.
pub(super) fn find(
    pieces: &Pieces,
    others: &impl Others,
) -> Option<(NonNull<Header>, &'static List)> {
    let mut turn = 0;
    loop {
        let crowded = turn < PATIENCE && others.are_ready();
        match pieces.look(|list| !crowded || list.owner.waits()) {
            Looked::Piece {
                piece,
                list,
                another,
            } => {
                if another {
                    others.begin_taker();
                }
                return Some((piece, list));
            }
            Looked::Later => others.give_way(),
            Looked::Nothing => return None,
        }
        turn += 1;
    }
}
