//! Fork and join.
//!
//! What is forked is a *piece*: a few words on the stack of the thread that forks it (lazy task creation: Mohr, Kranz and
//! Halstead 1991). It becomes a thread only where that is of use. See docs/adr/0036.
//!
//! 1. The thread puts the piece into its list ([`list`]) and runs the other half of its work.
//! 2. If nobody looks after the list, the thread makes a *taker* ([`taker`]): a thread that waits in a ready list for a
//!    virtual processor without other work. An idle virtual processor takes it at once. The virtual processor of a thread
//!    that blocks comes to it when nothing else is ready.
//! 3. The taker takes the oldest piece of some list. If there may be more, it makes the next taker ([`pieces`]). Then it
//!    runs the piece, and ends.
//! 4. The thread comes back to its piece. If nobody has taken the piece, the thread calls it like any function. Otherwise
//!    it waits for the taker ([`piece`]).
//!
//! A list belongs to a thread and not to a virtual processor, since the thread may come back elsewhere.

#[cfg(all(not(loom), target_arch = "x86_64", target_os = "linux"))]
mod ended;
#[cfg(all(not(loom), target_arch = "x86_64", target_os = "linux"))]
pub mod foreign;
#[cfg(not(loom))]
mod fork;
#[cfg(all(not(loom), target_arch = "x86_64", target_os = "linux"))]
mod forked;
#[cfg(all(not(loom), target_arch = "x86_64", target_os = "linux"))]
mod lazily;
#[cfg(any(loom, all(target_arch = "x86_64", target_os = "linux")))]
#[cfg_attr(loom, allow(dead_code))]
mod list;
#[cfg(any(loom, all(target_arch = "x86_64", target_os = "linux")))]
#[cfg_attr(loom, allow(dead_code))]
mod piece;
#[cfg(any(loom, all(target_arch = "x86_64", target_os = "linux")))]
#[cfg_attr(loom, allow(dead_code))]
mod pieces;
#[cfg(all(not(loom), target_arch = "x86_64", target_os = "linux"))]
mod search;
#[cfg(all(not(loom), target_arch = "x86_64", target_os = "linux"))]
mod taker;

#[cfg(all(loom, test))]
pub(crate) use {
    list::List,
    piece::{Header, Piece},
    pieces::{Looked, Pieces},
};

#[cfg(not(loom))]
pub use {fork::ScopedFork, functions::join};

#[cfg(not(loom))]
mod functions {
    use std::panic::resume_unwind;

    use crate::thread;

    /// Runs both, possibly at the same time, and returns their results. Both may block, and may divide their work again.
    ///
    /// ```
    /// fn sum(numbers: &[u64]) -> u64 {
    ///     if numbers.len() < 100 {
    ///         return numbers.iter().sum();
    ///     }
    ///     let (left, right) = numbers.split_at(numbers.len() / 2);
    ///     let (left, right) = upcall::join(|| sum(left), || sum(right));
    ///     left + right
    /// }
    /// let numbers: Vec<u64> = (1..=1000).collect();
    /// assert_eq!(sum(&numbers), 500_500);
    /// ```
    ///
    /// `one` runs in the calling thread. `other` runs there too, after `one`, and costs no more than a call, unless another
    /// thread begins it before. That happens if a virtual processor has nothing else to run: another one is idle, or the
    /// calling thread waits, in the program or in the kernel. So `one` may wait for `other`, but `other` may not wait for
    /// what the caller does after `one`.
    ///
    /// # Which thread it is
    ///
    /// Where `other` runs in the calling thread, [`thread::current`] and thread-local storage are the caller's. If it sets
    /// its priority or its signal mask, or calls pthread_exit(3), this concerns the caller. Otherwise `other` is a thread
    /// of its own, with a stack of the usual size, its own thread-local storage and the caller's signal mask. As in any
    /// thread of the crate, what needs a kernel thread of its own (sched_setscheduler(2), for example) fails with EPERM there.
    /// The program cannot choose between the two.
    ///
    /// Where threads have priorities, deadlines or a policy of the program's own, and in a thread that has changed what
    /// only a kernel thread has (its user, for example), `other` is always a thread of its own. The same holds without a
    /// runtime, and for more than 128 calls of `join` within one another in one thread: the inner ones.
    ///
    /// # Processes
    ///
    /// In the child of a fork(2), the thread that has forked the process calls `other` as ever if nobody had begun it. If
    /// another thread had, that thread is not in the child: the join says so and ends the child by SIGABRT. Where `other` is
    /// always a thread of its own, the child waits for ever, as for any thread of its parent.
    ///
    /// # Panics
    ///
    /// If one of them panicked, with its panic, when both have ended; with that of `one` if both panicked. If `one` panics
    /// before `other` has begun, `other` is dropped. The same holds for a cancellation of the calling thread. If panics abort,
    /// nothing is dropped: a thread that a cancellation or pthread_exit(3) ends before the join ends the process by SIGABRT.
    ///
    /// If `other` must be a thread of its own and there is no memory, or the kernel gives no thread. Otherwise `other` then
    /// runs after `one`, even where `one` waits.
    #[inline]
    pub fn join<A, B, RA, RB>(one: A, other: B) -> (RA, RB)
    where
        A: FnOnce() -> RA,
        B: FnOnce() -> RB + Send,
        RB: Send,
    {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(own) = super::taker::own() {
            return super::lazily::join(own, one, other);
        }
        as_threads(one, other)
    }

    /// As [`join`], with a thread for `other`.
    #[cold]
    #[inline(never)]
    pub(super) fn as_threads<A, B, RA, RB>(one: A, other: B) -> (RA, RB)
    where
        A: FnOnce() -> RA,
        B: FnOnce() -> RB + Send,
        RB: Send,
    {
        thread::scope(|scope| {
            let other = scope.spawn(other);
            let one = one();
            (
                one,
                other.join().unwrap_or_else(|panic| resume_unwind(panic)),
            )
        })
    }
}
