//! What the simulated kernel keeps with its activations and threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use upcall_core::Activation;

use crate::machine::space::Space;
use crate::machine::{InKernel, Machine};

/// A virtual processor of the runtime on this kernel.
pub(crate) type Vp = upcall_core::Vp<Sim>;

/// The kernel under one address space.
pub struct Sim {
    machine: *const Machine,
    pub(crate) space: usize,
}

// SAFETY: everything runs on one kernel thread.
unsafe impl Sync for Sim {}

/// The vessel of an activation: its number plus one, or 0.
#[derive(Default)]
pub struct Number(AtomicUsize);

impl Number {
    /// The number.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set(&self, number: usize) {
        self.0.store(number, Ordering::Relaxed);
    }
}

/// What the kernel keeps with a thread: one signal.
#[derive(Default)]
pub struct Signals {
    /// It has come and was not delivered.
    pub pending: AtomicBool,
    /// How often it was delivered.
    pub delivered: AtomicUsize,
    /// Where the timeline has left it.
    pub(crate) place: Number,
    /// The vessel on which the thread was seen last, plus one.
    pub(crate) seen_on: Number,
    /// In which round a less urgent thread was first seen to run while this one waited, and in which last,
    /// plus one.
    pub(crate) passed: (Number, Number),
    /// The same of a thread in no critical section, while this one waited in one.
    pub(crate) held_up: (Number, Number),
    /// To which group of threads it belongs, for a policy.
    pub group: Number,
    /// In which round it was first seen to run though it is held, plus one.
    pub(crate) held: Number,
    /// It gives way to others, of its own will.
    pub(crate) gives_way: AtomicBool,
}

impl Sim {
    /// The kernel of one of a machine's address spaces.
    pub fn new(machine: &'static Machine, space: usize) -> Self {
        Sim { machine, space }
    }

    /// Whether a signal would cut the waits of an activation short.
    pub(crate) fn is_interruptible(activation: &Activation<Self>) -> bool {
        activation.kernel.get().is_multiple_of(3)
    }

    pub(crate) fn space(&self) -> &Space {
        // SAFETY: the machine outlives the run.
        &unsafe { &*self.machine }.spaces[self.space]
    }

    /// The machine, in which the caller is until it drops the answer.
    pub(crate) fn machine(&self) -> InKernel<'_> {
        // SAFETY: the machine outlives the run.
        unsafe { &*self.machine }.enter()
    }
}
