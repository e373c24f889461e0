//! What the [`invariants`](crate::invariants) remember of an address space.

use upcall_core::State;

/// What the invariants remember of an address space.
#[derive(Default)]
pub(crate) struct Books {
    /// The owner of each virtual processor and what it did, after the event before.
    pub(crate) words: Vec<(usize, State)>,
    /// For how many rounds one without a processor was always found with a thread ready.
    pub(crate) stranded_for: Vec<Option<u64>>,
    /// For how many rounds a virtual processor was always idle with a thread ready.
    pub(crate) idle_for: Vec<Option<u64>>,
    /// The round of the event before.
    pub(crate) round: u64,
}
