//! What the machine keeps about the [`daemon`](crate::daemon) that divides the processors.

use std::cell::{Cell, RefCell};

use upcall_alloc::{Allocator, SpaceId};

/// The daemon.
#[derive(Default)]
pub(crate) struct Daemon {
    /// None while it is dead.
    pub(crate) life: RefCell<Option<Life>>,
    /// Whether anybody watches over the machine, dead or alive.
    pub(crate) is_on: Cell<bool>,
    /// When it looks next, if it lives; when it comes back, if not.
    pub(crate) next: Cell<u64>,
    /// When its words fall.
    pub(crate) falls: Cell<u64>,
    /// What was published when it last looked, or meant to.
    pub(crate) seen: RefCell<Vec<u32>>,
    /// Processors that rest: the space, and the number.
    pub(crate) rests: RefCell<Vec<(usize, u32)>>,
    /// It has lived so often.
    pub(crate) lives: Cell<u64>,
}

/// A daemon that lives.
pub(crate) struct Life {
    pub(crate) allocator: Allocator,
    /// Of each address space, while that lives.
    pub(crate) names: Vec<Option<SpaceId>>,
}

/// What the daemon's word says about a processor that is not the space's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stopped {
    /// The listener has seen it.
    pub(crate) heard: bool,
    /// In which round its listener had told the program so.
    pub(crate) told: Option<u64>,
}
