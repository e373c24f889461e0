//! What the events of a timeline must add up to: each thread is in one place, and comes there from where it was.

use std::cell::Cell;

use upcall_core::event::What;

use crate::machine::Thread;

/// Where the last event about a thread has left it, and of which vessel that event was, as one number.
const PLACES: usize = 8;
const UNKNOWN: usize = 0;
const READY: usize = 1;
const RUNS: usize = 2;
const IN_CALL: usize = 3;
const WAITS: usize = 4;
/// Stopped with its activation.
const AWAY: usize = 5;
const ENDED: usize = 6;

/// The timeline of an address space.
#[derive(Default)]
pub struct Timeline {
    /// Of all events.
    pub(crate) hash: Cell<u64>,
    pub(crate) count: Cell<u64>,
}

impl Timeline {
    /// Takes an event of a vessel. Returns what is wrong with it.
    pub(crate) fn take(
        &self,
        (what, vp, time): (What, u32, u64),
        thread: Option<&'static Thread>,
        vessel: usize,
    ) -> Result<(), (usize, usize)> {
        let words = [what as u64, vp.into(), time, vessel as u64];
        let hash = words.iter().fold(self.hash.get(), |hash, word| {
            (hash ^ word)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29)
        });
        self.hash.set(hash);
        self.count.set(self.count.get() + 1);
        let Some(thread) = thread else { return Ok(()) };
        let place = &thread.kernel.place;
        let (before, of) = (place.get() % PLACES, place.get() / PLACES);
        let is_here = of == vessel;
        let (fits, now) = match what {
            What::Created => (matches!(before, UNKNOWN | ENDED), READY),
            What::Ended => (before == RUNS && is_here, ENDED),
            What::Blocked => (before == RUNS && is_here, WAITS),
            What::Unblocked => {
                let is_back = is_here && matches!(before, RUNS | IN_CALL);
                (is_back || matches!(before, WAITS | AWAY), READY)
            }
            What::Yielded => (before == RUNS && is_here, READY),
            What::Preempted => ((before == RUNS && is_here) || before == AWAY, READY),
            // Its time slice was over, and no other should run.
            What::Runs => (before == READY || (before == RUNS && is_here), RUNS),
            What::Resumes => (matches!(before, READY | AWAY), RUNS),
            What::Calls => (before == RUNS && is_here, IN_CALL),
            What::Returns => (before == IN_CALL && is_here, RUNS),
            // It may be back by now, and somewhere else.
            What::Absent if matches!(before, RUNS | IN_CALL) => (true, UNKNOWN),
            What::Displaced => (before == RUNS, AWAY),
            _ => return Ok(()),
        };
        let fits = fits || before == UNKNOWN;
        place.set(vessel * PLACES + now);
        if fits { Ok(()) } else { Err((before, of)) }
    }
}
