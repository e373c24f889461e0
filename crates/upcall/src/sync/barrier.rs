//! A place where threads meet (pthread_barrier_wait(3)).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::waiting::{self, AtomicU32};

/// Threads wait until a number of them is there. Then the barrier can be used again. As [`std::sync::Barrier`].
///
/// ```
/// use std::thread;
/// use upcall::sync::Barrier;
///
/// let barrier = Barrier::new(3);
/// let leaders: usize = thread::scope(|scope| {
///     let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| barrier.wait())).collect();
///     let results = threads.into_iter().map(|thread| thread.join().unwrap());
///     results.filter(|result| result.is_leader()).count()
/// });
/// assert_eq!(leaders, 1);
/// ```
pub struct Barrier {
    threads: u64,
    /// How many came, ever. It tells a thread which round it belongs to.
    came: AtomicU64,
    /// How many rounds are over. The last of a round counts it, and the last of the next one may do so before:
    /// what it counts then is the earlier round, all of which has come by then.
    rounds: AtomicU32,
}

/// The result of a wait: it tells if the thread is the leader of its round. One thread is.
///
/// ```
/// assert!(upcall::sync::Barrier::new(1).wait().is_leader());
/// ```
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns true if the thread is the leader.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    constant! {
        /// Makes a barrier for so many threads. With 0 threads it behaves as with 1.
        #[inline]
        #[must_use]
        pub const fn new(threads: usize) -> Self {
            Barrier {
                threads: if threads == 0 { 1 } else { threads as u64 },
                came: AtomicU64::new(0),
                rounds: AtomicU32::new(0),
            }
        }
    }

    /// Returns true if some wait, at some moment.
    #[cfg(not(loom))]
    pub(crate) fn is_awaited(&self) -> bool {
        !self
            .came
            .load(Ordering::Relaxed)
            .is_multiple_of(self.threads)
    }

    /// Waits until all threads are there. What each did before happens before what all do afterwards. The leader is
    /// the last thread that came.
    pub fn wait(&self) -> BarrierWaitResult {
        // AcqRel: all that come are one chain, which the last of a round passes on.
        let before = self.came.fetch_add(1, Ordering::AcqRel);
        if before % self.threads == self.threads - 1 {
            // Release: pairs with the Acquire below.
            self.rounds.fetch_add(1, Ordering::Release);
            waiting::wake(&self.rounds, u32::MAX);
            return BarrierWaitResult(true);
        }
        let round = (before / self.threads) as u32;
        loop {
            let over = self.rounds.load(Ordering::Acquire);
            // The numbers wrap around; 2,147,483,648 rounds while one thread waits do not come to pass.
            if over.wrapping_sub(round).cast_signed() > 0 {
                return BarrierWaitResult(false);
            }
            waiting::wait(&self.rounds, over, None);
        }
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}

impl fmt::Debug for BarrierWaitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaitResult")
            .field("is_leader", &self.is_leader())
            .finish()
    }
}
