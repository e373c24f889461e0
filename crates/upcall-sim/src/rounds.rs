//! Rounds: the time of a machine whose vessels are chosen at random. A round has passed when every
//! vessel that could run all the time has run. What must happen soon must happen in a few of them.

use std::cell::Cell;

use crate::machine::{Doing, Machine, Vessel};

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

    /// A vessel runs.
    pub(crate) fn ran(&self, machine: &Machine, index: usize) {
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
            machine.vessel(index, |vessel| {
                // A sentinel may not get to run for ever.
                if !(vessel.sentinel.get() && machine.style.starved) {
                    vessel.due.set(self.now.get());
                    self.left.set(self.left.get() + 1);
                }
            });
        }
    }
}
