//! Which ready thread runs first: the specialization layer (Danjean and Namyst 2003, section 3.2).
//!
//! | policy | order |
//! |---|---|
//! | [`ForkedFirst`], the default | a new thread of the crate first, for a time slice, and others steal the oldest (FastThreads); all else takes turns |
//! | [`Lifo`] | as that, for every new thread |
//! | [`RoundRobin`] | all take turns, a time slice each |
//! | [`Fifo`] | first come, first served: a thread runs until it waits or yields |
//! | [`Priority`] | the more urgent first, on whatever virtual processor; equals take turns. [`sync::Mutex`](crate::sync::Mutex) lends its waiters' priority to its holder |
//! | [`EarliestDeadline`] | the nearest deadline first; threads without one after all others |
//! | [`Gang`] | the threads of one group run together or not at all; groups take turns |
//!
//! A policy of your own implements [`Policy`]. It is told what happens to threads, and answers with a [`Rank`] for
//! each. It is ordinary code, in a thread of its own: it may allocate and lock. Nothing waits for it: until it has
//! answered, a thread has the rank that it had before. So a policy can order threads badly, and do nothing worse. A
//! policy that takes longer than a time slice for an answer runs after all other threads meanwhile. A policy that
//! panics is not asked again, and all threads are equal then. Both are reported on standard error.
//!
//! ```
//! use upcall::policy::{Policy, Rank, Threads, Id, Why};
//!
//! /// A thread that has waited runs before those that computed.
//! struct Interactive;
//!
//! impl Policy for Interactive {
//!     fn ready(&mut self, _: &mut Threads, _: Id, why: Why) -> Rank {
//!         match why {
//!             Why::Unblocked => Rank(Rank::COMMON.0 - 1),
//!             Why::Created | Why::Yielded | Why::Preempted => Rank::COMMON,
//!         }
//!     }
//! }
//!
//! upcall::Runtime::builder().policy(Interactive).start()?;
//! assert_eq!(upcall::thread::spawn(|| 7).join().unwrap(), 7);
//! # Ok::<(), upcall::Error>(())
//! ```

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod adviser;
mod gang;
mod threads;

use std::time::Duration;

pub use gang::Gang;
pub use threads::{Id, Threads};
pub use upcall_core::Rank;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use adviser::start;

/// Why a thread is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It is new.
    Created,
    /// It has waited, in the program or in the kernel.
    Unblocked,
    /// It has yielded.
    Yielded,
    /// It was stopped in favour of another thread, or at the end of its time slice.
    Preempted,
}

/// Orders the threads of the program. See the [module's text](self).
///
/// A policy is not told of a thread that has come and gone before the policy could look. Only [`Policy::ready`] is
/// required. One thread calls the methods, one after another, shortly after the events.
pub trait Policy: Send + 'static {
    /// A thread is ready. Returns its rank from here on. A smaller rank is more urgent, and threads of equal rank take
    /// turns. A thread with [`Rank::HELD`] does not run until it gets another rank ([`Threads::set_rank`]).
    fn ready(&mut self, threads: &mut Threads, thread: Id, why: Why) -> Rank;

    /// A thread waits, in the program or in the kernel.
    fn blocked(&mut self, _threads: &mut Threads, _thread: Id) {}

    /// A thread has ended.
    fn ended(&mut self, _threads: &mut Threads, _thread: Id) {}

    /// A virtual processor has nothing to run.
    fn idle(&mut self, _threads: &mut Threads) {}

    /// The daemon is going to give the program's processors to others so much later. Threads go on until then, in the order of their
    /// ranks: those that hold what other programs wait for can be made more urgent now. Nothing is told where no program waits, or if
    /// the daemon is not configured to warn.
    fn warned(&mut self, _threads: &mut Threads, _left: Duration) {}

    /// [`Policy::period`] has passed since the last call.
    fn tick(&mut self, _threads: &mut Threads) {}

    /// Returns how often [`Policy::tick`] is called; `None` for never.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// Returns the built-in policy that it is, if it is one. Then no other method is called.
    #[doc(hidden)]
    fn built_in(&self) -> Option<BuiltIn> {
        None
    }
}

/// What the runtime does without an adviser.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuiltIn {
    ForkedFirst,
    Lifo,
    RoundRobin,
    Fifo,
    Priority,
    Deadline,
}

macro_rules! built_in {
    ($($(#[$attribute:meta])* $name:ident = $which:ident;)*) => {
        $(
            $(#[$attribute])*
            #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
            pub struct $name;

            impl Policy for $name {
                fn ready(&mut self, _: &mut Threads, _: Id, _: Why) -> Rank {
                    Rank::COMMON
                }

                fn built_in(&self) -> Option<BuiltIn> {
                    Some(BuiltIn::$which)
                }
            }
        )*
    };
}

built_in! {
    /// A new thread of [`crate::thread`] runs before all others of its virtual processor, the last one first, until the
    /// time slice ends; other virtual processors take the first one. All else takes turns. FastThreads' order
    /// (Anderson et al. 1992, section 4.2), without its starvation.
    ForkedFirst = ForkedFirst;
    /// As [`ForkedFirst`], for new threads of `std` and C as well.
    Lifo = Lifo;
    /// All threads take turns, a time slice each.
    RoundRobin = RoundRobin;
    /// Threads run in the order in which they became ready, each until it waits or yields.
    Fifo = Fifo;
    /// No thread waits while a less urgent one runs, on whatever virtual processor; equals take turns. What a thread
    /// asks for by [`Builder::priority`](crate::thread::Builder::priority), sched_setscheduler(2) or setpriority(2)
    /// counts, without a privilege: real-time policies by their priority, then all others by their nice value. A
    /// thread that waits for a [`sync::Mutex`](crate::sync::Mutex) lends its priority to the holder.
    Priority = Priority;
    /// The nearest deadline first (Liu and Layland 1973); threads without one run when no other is ready. Deadlines
    /// are those of [`Builder::deadline`](crate::thread::Builder::deadline) and
    /// [`set_deadline`](crate::thread::set_deadline); a thread has its creator's otherwise. A
    /// deadline that has passed is nearer than all others. [`sync::Mutex`](crate::sync::Mutex) lends as with [`Priority`].
    EarliestDeadline = Deadline;
}
