//! What happens to threads, activations and virtual processors, for a timeline of the program.
//!
//! While nobody asks for one ([`Runtime::begin_trace`](crate::Runtime::begin_trace)), none is made. Where it may matter, the
//! question costs nothing: it is the one that is asked for ranks and policies anyway.

use crate::machine::Machine;
use crate::numbered::numbered_enum;
use crate::state::thread::Thread;
use crate::state::vp::Vp;

numbered_enum! {
    /// What has happened. The numbers stand in files: a number is not used again for something else.
    pub enum What {
        /// A thread is new, and ready.
        Created = 1,
        /// A thread has ended. Its block may be another thread's at once, which is created then.
        Ended = 2,
        /// A thread waits, in the program. The argument: for what, as [`Thread::waits`].
        Blocked = 3,
        /// A thread is ready again. Where it was in the kernel, its activation has come back with it.
        Unblocked = 4,
        /// A thread is ready, and lets others go first.
        Yielded = 5,
        /// A thread is ready, and was stopped in favour of another.
        Preempted = 6,
        /// A thread runs on the activation. Perhaps it did before: its time slice was over, and no other thread should run.
        Runs = 7,
        /// The thread goes on where it was: its activation has a virtual processor again.
        Resumes = 8,
        /// The thread goes into a system call that may block. The argument: which, as the backend knows.
        Calls = 9,
        /// It is back, and its activation has owned the virtual processor all the time.
        Returns = 10,
        /// Upcall: an activation has blocked with the thread, and the virtual processor is another's. The argument: 1 if it is in
        /// a system call that was announced, 0 elsewhere, as on a page fault. May come late, when the activation is back already.
        Absent = 11,
        /// Upcall: the activation with the thread was preempted for one that came back.
        Displaced = 12,
        /// The virtual processor has nothing to run.
        Idle = 13,
        /// It is not idle any more.
        Busy = 14,
        /// Upcall: an idle virtual processor is put to work.
        Rung = 15,
        /// Upcall: the processor of the virtual processor was taken for another program.
        Taken = 16,
        /// Upcall: it is back.
        Added = 17,
        /// The thread was taken from the ready list of the virtual processor.
        Stolen = 18,
        /// The activation waits for descriptors and deadlines, in the place of all others.
        Polls = 19,
        /// It does not any more.
        Polled = 20,
    }
}

/// An event.
pub struct Event<K: Machine> {
    /// What has happened.
    pub what: What,
    /// The virtual processor; of some events, one that is near.
    pub vp: &'static Vp<K>,
    /// The thread, if it is about one.
    pub thread: Option<&'static Thread<K>>,
    /// See [`What`].
    pub argument: u64,
}
