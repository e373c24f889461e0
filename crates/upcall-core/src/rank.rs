//! Urgency: which ready thread runs first, and before whom.
//!
//! A policy speaks to the runtime in one number for each thread, its [`Rank`]; smaller is more urgent. The
//! runtime keeps: *no thread waits while a less urgent one runs*, on whatever virtual processor
//! (Anderson et al. 1992, section 3.1: the thread system asks for the preemption of a processor that
//! runs a thread of lower priority). Fixed priorities, earliest deadline first and what else orders
//! threads is a choice of numbers; a policy cannot lose a thread, nor run it twice. Threads of one
//! rank take turns, and all have the common one until somebody says otherwise: a program without ranks
//! pays a comparison where a thread becomes ready, and one where one is chosen.
//!
//! Protocol:
//! 1. The caller that makes a thread ready puts it into a ready list, then looks at what the virtual processors run
//!    ([`crate::Vp`]'s `rank`). If nobody is idle and one runs something less urgent, the one that runs the
//!    least urgent is to choose again.
//! 2. An owner that chooses takes the most urgent of all ready lists, says so in its virtual processor's `rank`,
//!    and looks at the lists again: what came meanwhile was seen by 1 or is seen here.
//! 3. An activation that comes back from the kernel takes its virtual processor from a running thread only if
//!    that thread is not more urgent.
//!
//! A thread with the last rank, [`Rank::HELD`], does not run at all: an owner that finds it as the most urgent one
//! puts it aside, until it gets another rank. The owner that puts it aside says so in the thread's state and looks at
//! its rank again. The caller that changes the rank looks at the state afterwards.
//!
//! The runtime's part is in `urgency.rs`; how a policy learns what happens to threads, in `policy.rs`. Both looks are at every virtual processor: O(P), in programs
//! with ranks alone. Rejected: one list for all threads with a rank, which has no such look in 2, and one
//! lock instead, on which all processors meet; the look in 1 stays. Rejected, too: a policy that is called
//! for the next thread under the list's lock (`docs/adr/0003-policies.md`).

/// How urgent a thread is; smaller is more urgent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank(pub u64);

impl Rank {
    /// What threads have until somebody says otherwise.
    pub const COMMON: Rank = Rank(1 << 63);
    /// Where a thread of the common rank waits that is in a critical section, as long as threads have no ranks.
    pub(crate) const SECTION: Rank = Rank((1 << 63) - 1);
    /// A thread that does not run, though it is ready, until it has another rank.
    pub const HELD: Rank = Rank(u64::MAX);
}
