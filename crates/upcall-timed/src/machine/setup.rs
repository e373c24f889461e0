//! What is run, and what became of it.

use upcall_alloc::Terms;

use super::threads::Me;
use crate::costs::Costs;

/// What an address space's threads are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Threads of the core over activations.
    Activations,
    /// Threads of the core over kernel threads that give no upcalls.
    Bound,
    /// Kernel threads.
    KernelThreads,
}

/// How kernel threads come to processors.
#[derive(Clone, Copy, Debug)]
pub enum Scheduling {
    /// Processors are allocated to address spaces, which schedule what runs there.
    Allocated(Terms),
    /// Kernel threads take turns, whosever they are: Topaz as it was.
    RoundRobin {
        /// How long a turn is.
        quantum: u64,
    },
}

/// A program: an address space to be.
pub struct Program {
    /// What its threads are.
    pub kind: Kind,
    /// What they cost.
    pub costs: Costs,
    /// Virtual processors, at least one; of no meaning for kernel threads.
    pub vps: u32,
    /// A daemon of the kernel: served before others, preempts at once, and the run does not wait for
    /// its end.
    pub daemon: bool,
    /// Its first thread.
    pub main: Box<dyn FnOnce(Me)>,
}

/// A run.
pub struct Setup {
    /// How many processors the machine has.
    pub processors: u32,
    /// How they are scheduled.
    pub scheduling: Scheduling,
    /// What runs there.
    pub programs: Vec<Program>,
    /// A run that takes longer is broken, in nanoseconds.
    pub limit: u64,
}

/// What became of one program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// When its first thread began, its virtual processors being there, in nanoseconds.
    pub began: u64,
    /// When it ended, in nanoseconds after the beginning.
    pub ended: u64,
    /// Processor time spent computing, all threads together.
    pub computed: u64,
    /// Upcalls of all kinds.
    pub upcalls: u64,
    /// Threads stolen from another virtual processor.
    pub stolen: u64,
}

/// What became of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Of each program.
    pub programs: Vec<Report>,
    /// Calls of the allocator.
    pub allocator_calls: u64,
    /// Changes of ownership.
    pub moves: u64,
}
