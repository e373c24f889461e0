//! Rounds: the time of a machine whose vessels are chosen at random.
//!
//! A round has passed when every vessel that could run all the time has passed a point. So a vessel that can run gets to
//! the end of its way after as many rounds as there are points on the way, however often it is stopped between points.

use std::cell::Cell;

use crate::machine::{Doing, Machine, Vessel};
use crate::setup::style::Style;

/// Points at which an activation calls one virtual processor: its class is asked for, and the standby
/// woken (4), after one was started for want of spares (4).
const CALL: u64 = 8;

/// Beside a sentinel: the spare that it may need is started, and one that is its heir, too.
const CALL_SENTINEL: u64 = 16;

/// Points from where an activation is woken to where it owns a virtual processor or has told who does:
/// it is bound, looks (time, the poller, who has come back, whether the owner is blocked), and chooses.
const ARRIVE: u64 = 12;

/// In how many rounds a call has an effect: the caller has perhaps to call every virtual processor, and the
/// called one arrives. Not counted is the time that the kernel takes to wake the latter.
pub(crate) fn of_a_call(style: &Style) -> u64 {
    let call = if style.sentinel { CALL_SENTINEL } else { CALL };
    style.processors.len() as u64 * call + ARRIVE
}

/// Counts rounds.
#[derive(Default)]
pub(crate) struct Rounds {
    now: Cell<u64>,
    /// Vessels that have not run in this round and could have.
    left: Cell<usize>,
}

impl Rounds {
    /// The number of the round.
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// A vessel does something else from here on.
    pub(crate) fn changed(&self, vessel: &Vessel, doing: Doing) {
        if doing != Doing::Runnable {
            self.is_done(vessel);
        }
    }

    /// A vessel has passed a point.
    pub(crate) fn passed(&self, machine: &Machine, index: usize) {
        machine.vessel(index, |vessel| self.is_done(vessel));
        if self.left.get() == 0 {
            self.begin(machine);
        }
    }

    fn is_done(&self, vessel: &Vessel) {
        if vessel.due.replace(0) != 0 {
            self.left.set(self.left.get() - 1);
        }
    }

    fn begin(&self, machine: &Machine) {
        self.now.set(self.now.get() + 1);
        for &index in machine.runnable.borrow().iter() {
            if !machine.is_starved(index) {
                machine.vessel(index, |vessel| vessel.due.set(self.now.get()));
                self.left.set(self.left.get() + 1);
            }
        }
    }
}
