//! The trait [`World`]: what a scenario can do, and what it can see.

use std::sync::atomic::AtomicU32;

/// How a thread waits in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// In a system call, which the thread announces to the runtime.
    Call,
    /// On a page that is not there. The runtime is not told.
    Fault,
}

/// When the threads of a run are preempted for others of the same virtual processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slices {
    /// Never while it matters: what runs next must not be left to the end of a time slice.
    Endless,
    /// Often.
    Short,
    /// As often as can be, inside the runtime included.
    Shortest,
}

/// A thread's view of a machine. Words are leaked: a run is short.
pub trait World: Copy + 'static {
    /// How long a call takes that the kernel ends, in nanoseconds: long enough for other threads to run.
    const CALL_NS: u64;

    /// A thread that was started.
    type Handle;
    /// A place at which threads wait in the kernel until other threads let them pass.
    type Gate: Copy + Send + 'static;

    /// How many virtual processors the program has.
    fn processors(self) -> usize;

    /// How often a scenario repeats what it does.
    fn rounds(self) -> u32;

    /// Starts a thread.
    fn spawn(self, body: impl FnOnce(Self) + Send + 'static) -> Self::Handle;

    /// Waits for the end of a thread.
    fn join(self, handle: Self::Handle);

    /// A bounded piece of work, within or after which a time slice may end.
    fn step(self);

    /// Gives way to other threads.
    fn yield_now(self);

    /// Parks while the word has this value, until a thread wakes it. It may return for no reason.
    fn wait(self, word: &'static AtomicU32, value: u32);

    /// Wakes at most so many that wait for the word.
    fn wake(self, word: &'static AtomicU32, count: u32);

    /// Parks for so many nanoseconds.
    fn sleep(self, ns: u64);

    /// Makes a closed gate.
    ///
    /// # Errors
    ///
    /// What this machine lacks for a gate of this kind.
    fn gate(self, kind: Kind) -> Result<Self::Gate, String>;

    /// Waits in the kernel, on the gate, until [`World::open`].
    fn pass(self, gate: Self::Gate);

    /// How many threads wait in the kernel on the gate. A thread counts from its entry into the kernel on.
    fn nr_waiting(self, gate: Self::Gate) -> usize;

    /// Lets `count` threads pass the gate. A gate of page faults lets all pass.
    fn open(self, gate: Self::Gate, count: usize);

    /// As [`World::open`], but another process opens the gate after a while. The caller goes on at once.
    fn open_later(self, gate: Self::Gate, count: usize);

    /// Waits in the kernel for so many nanoseconds, in a call like those that wait on gates.
    fn call_for(self, ns: u64);

    /// The processor time, in nanoseconds, that the program has used until now. Never less than the truth.
    fn busy_ns(self) -> u64;

    /// Another program wants all processors for a while, and takes turns with this one.
    fn invite_rival(self);

    /// Returns true until the rival of [`World::invite_rival`] has had the processors and has ended.
    fn has_company(self) -> bool;

    /// Another process forbids all processors but the first, while the threads run.
    fn forbid_all_but_one(self);

    /// Another process allows all processors again.
    fn allow_all(self);

    /// From here on the kernel gives no more kernel threads. The threads that there are remain.
    ///
    /// # Errors
    ///
    /// What this machine lacks.
    fn exhaust(self) -> Result<(), String>;

    /// Gives the calling thread this priority. A larger one is more urgent.
    ///
    /// # Errors
    ///
    /// The reason why threads have no priorities here.
    fn set_priority(self, priority: u32) -> Result<(), String>;
}

/// What the runtime counted in one run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counters {
    /// Upcalls: blocked.
    pub blocked: u64,
    /// Upcalls: unblocked.
    pub unblocked: u64,
    /// Upcalls: an activation was preempted for one that came back.
    pub displaced: u64,
    /// Upcalls: processor added.
    pub added: u64,
    /// Upcalls: processor taken.
    pub taken: u64,
    /// Threads preempted at the end of a time slice, or for one that came back.
    pub preempted: u64,
    /// Activations that the runtime took from the pool.
    pub recycled: u64,
    /// Activations that the kernel refused.
    pub refused: u64,
    /// The largest number of activations at one time.
    pub peak: u64,
}
