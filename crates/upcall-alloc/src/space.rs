//! An address space as the policy sees it.

use alloc::vec::Vec;

use crate::rules::{Moment, Priority, Standing};

/// A logical processor. Neighbours in the machine (the same core, then the same cache, then the
/// same node) should be neighbours in number: a space is given those next to its own. The numbers
/// should be dense: memory is used for all up to the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessorId(pub u32);

slotmap::new_key_type! {
    /// Names a space from its joining to its leaving; never used again after that.
    pub struct SpaceId;
}

/// What a space wants and has.
///
/// Invariant: it uses as many of its processors as it wants, and the others rest.
#[derive(Clone, Debug)]
pub struct Space {
    pub(crate) priority: Priority,
    pub(crate) want: u32,
    /// Oldest first, but for holes that the newest has filled.
    pub(crate) running: Vec<ProcessorId>,
    pub(crate) resting: Vec<ProcessorId>,
    pub(crate) given: Moment,
    pub(crate) lost: Moment,
}

impl Space {
    pub(crate) fn new(priority: Priority, lost: Moment) -> Self {
        Space {
            priority,
            want: 0,
            running: Vec::new(),
            resting: Vec::new(),
            given: lost,
            lost,
        }
    }

    /// Its priority.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// How many processors it wants in all.
    pub fn want(&self) -> u32 {
        self.want
    }

    /// The processors that it has and uses.
    pub fn running(&self) -> &[ProcessorId] {
        &self.running
    }

    /// The processors that it has and does not use: they may go to others.
    pub fn resting(&self) -> &[ProcessorId] {
        &self.resting
    }

    /// What decides about it.
    pub fn standing(&self) -> Standing {
        Standing {
            priority: self.priority,
            want: self.want,
            held: (self.running.len() + self.resting.len()) as u32,
            given: self.given,
            lost: self.lost,
        }
    }
}
