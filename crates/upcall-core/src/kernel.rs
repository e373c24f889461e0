//! The kernel under the runtime: what the runtime asks (downcalls) and what it is told (upcalls).
//!
//! The interface has seven groups. A backend implements all of them; a test implements what it uses.
//!
//! | group | what the runtime asks |
//! |---|---|
//! | [`Machine`] | what time is it, give me memory, let others run |
//! | [`Vessels`] | start, end, bind, put to sleep, wake and interrupt an activation |
//! | [`Attributes`] | give this activation what the kernel keeps with that thread; are there signals for it |
//! | [`Poll`] | which threads can run again, whose descriptors are ready or whose time has come |
//! | [`Watch`] | is that activation blocked |
//! | [`Share`] | may this virtual processor run; does somebody else want its processor |
//! | [`Trace`] | note what happens, for a timeline |
//!
//! | upcall (Anderson, Table 2) | how it arrives here |
//! |---|---|
//! | processor added | [`Share::await_turn`] returns, and [`Runtime::added`](crate::Runtime::added); within the program, `Runtime::ring` grants an idle virtual processor |
//! | activation preempted | [`Runtime::interrupted`](crate::Runtime::interrupted) in the activation itself |
//! | activation blocked | the standby activation runs and [`Watch::is_blocked`] says so |
//! | processor taken for another address space | [`Share::may_run`] says no, [`Runtime::recall`](crate::Runtime::recall) |
//! | activation unblocked | the activation returns and finds that it no longer owns its virtual processor |
//!
//! | downcall | here |
//! |---|---|
//! | this processor is idle | [`Vessels::sleep`], [`Poll::poll`] |
//! | discard me, continue that one (`resume`) | a grant in the virtual processor's word, then sleep |
//! | preempt that processor | [`Vessels::interrupt`] |
//! | these activations are free (`recycle`) | they sleep in the spare pool, and end beyond a bound |

use crate::event::Event;
use crate::machine::{Errno, Machine};
use crate::state::activation::Activation;
use crate::state::inside::{Entered, Inside};
use crate::state::thread::{Thread, ThreadList};
use crate::state::vp::Vp;

/// All groups together.
pub trait Kernel: Vessels + Attributes + Poll + Watch + Share + Trace {}

impl<K: Vessels + Attributes + Poll + Watch + Share + Trace> Kernel for K {}

/// Activations: the kernel threads that carry threads.
///
/// # Safety
///
/// Implementations must return from [`Vessels::current`] the activation that executes the call, and
/// must start activations on their own stacks.
pub unsafe trait Vessels: Machine {
    /// The activation that executes this call.
    fn current(&self) -> &'static Activation<Self>;

    /// Marks the current activation as inside the runtime. From here on the kernel's events are
    /// deferred. One instruction, so that no event can fall between reading and writing.
    fn set_inside(&self) {}

    /// Takes the mark of [`Vessels::set_inside`] away. Returns true if an event was deferred.
    fn clear_inside(&self) -> bool;

    /// Starts the kernel thread of an activation at
    /// [`Activation::main`]. With `watches` it will be a standby
    /// and nothing else, because standbys here have heirs ([`Watch::needs_heirs`]).
    ///
    /// # Errors
    ///
    /// The kernel's error when it gives no more threads.
    fn spawn(&self, _activation: &'static Activation<Self>, _watches: bool) -> Result<(), Errno> {
        Err(Errno(11))
    }

    /// Ends the calling activation's kernel thread.
    fn exit_activation(&self, _inside: &Inside<Self>) -> ! {
        self.broken("an activation ends where none is started")
    }

    /// Returns true if the kernel thread of an activation that called [`Vessels::exit_activation`] is
    /// gone, and its stack free.
    fn is_gone(&self, _activation: &Activation<Self>) -> bool {
        true
    }

    /// Binds the calling activation to the processor of its virtual processor. In a wait it may roam while nobody stands by
    /// for it ([`Runtime::is_unwatched`](crate::Runtime::is_unwatched)).
    fn bind(&self, _activation: &Activation<Self>) {}

    /// Somebody stands by for the owner of `vp` from now on: if it roams, it is bound. Anybody may call this.
    fn hold(&self, _vp: &'static Vp<Self>) {}

    /// Sleeps until [`Vessels::wake`]. Returns at once if `activation.wake` is no longer `seen`.
    /// May return early.
    fn sleep(&self, activation: &Activation<Self>, seen: u32);

    /// Wakes an activation that sleeps or is about to, in [`Vessels::sleep`] or [`Poll::poll`].
    fn wake(&self, activation: &Activation<Self>);

    /// Makes [`Runtime::interrupted`](crate::Runtime::interrupted) run in that activation before
    /// it executes another instruction of its thread.
    fn interrupt(&self, activation: &Activation<Self>);

    /// Called when the activation has nothing to do and is about to sleep. Perhaps nobody will ever
    /// have anything to do.
    fn look_for_deadlock(&self, _inside: &Inside<Self>) {}
}

/// What the kernel keeps with a thread: registers, attributes, signals.
pub trait Attributes: Machine {
    /// Makes the attributes those of a new thread, whatever thread had the memory before. The new thread has
    /// from its creator what threads inherit. Nobody else knows of the new thread yet.
    fn begin(&self, thread: &Thread<Self>, creator: &Thread<Self>);

    /// Prepares the calling activation to run `thread`: pointer registers and, where they differ,
    /// the attributes that the kernel keeps.
    fn install(&self, _activation: &Activation<Self>, _thread: &'static Thread<Self>) {}

    /// A ticket was chosen ([`Thread::ticket_at`]): a thread begins for which it has waited. Returns that thread, which has
    /// registers and is in no list. Called by the owner of a virtual processor.
    fn begins(
        &self,
        _inside: &Inside<Self>,
        _ticket: &'static Thread<Self>,
    ) -> &'static Thread<Self> {
        self.broken("a ticket where none is made")
    }

    /// The calling activation has saved `thread` and does not run it any more.
    fn uninstall(&self, _activation: &Activation<Self>, _thread: &'static Thread<Self>) {}

    /// Returns true if an event waits for a thread that must not sleep through it (a signal for the
    /// program). Asked when the thread has just been parked: an event that came before did not find
    /// it parked and could not end its wait.
    fn is_interrupted(&self, _thread: &'static Thread<Self>) -> bool {
        false
    }

    /// Deals with events that were deferred while the activation was inside the runtime and are not the
    /// runtime's own (signals for the program). Leaves the runtime, since events for the thread that runs on
    /// the activation must find it outside.
    fn deferred(&self, inside: Entered<Self>)
    where
        Self: Kernel,
    {
        inside.leave_quietly();
    }

    /// The same on an activation without a thread: the events are for other threads.
    fn pass_on(&self, _inside: &Inside<Self>) {}
}

/// Waiting for descriptors and deadlines.
pub trait Poll: Machine {
    /// Threads that wait for descriptors or deadlines and can now run. Each was claimed with
    /// [`Thread::claim`]. With `wait`, blocks until there is one, or [`Vessels::wake`]. Returns at
    /// once if `activation.wake` is no longer the value in `wait`. Where the activation's virtual
    /// processor has not its processor, it also returns when that is back ([`Share::await_turn`]).
    fn poll(&self, _activation: &Activation<Self>, _wait: Option<u32>) -> ThreadList<Self> {
        ThreadList::new()
    }

    /// Returns true if somebody must sit in [`Poll::poll`] although all processors are busy.
    fn wants_poller(&self) -> bool {
        false
    }

    /// Asks that a poll return no later than `deadline` (nanoseconds of [`Machine::now`]) instead of
    /// the last one asked for. `u64::MAX`: there is none. One call at a time.
    fn set_alarm(&self, _deadline: u64) {}

    /// By how many nanoseconds the deadline of a thread that is about to park may be met late, so
    /// that others can be met with it.
    fn slack(&self, _thread: &'static Thread<Self>) -> u64 {
        0
    }
}

/// How an activation waits in the kernel that is not in an announced system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// It does not, or it cannot be interrupted: an interruption reaches it when it comes back.
    Deaf,
    /// An interruption would cut its wait short: none may be sent.
    Interruptible,
}

/// Noticing that an owner is blocked.
pub trait Watch: Machine {
    /// Returns true if that activation is blocked. With `cheap_doubt` it has announced a system call and
    /// another thread is ready: a wrong yes costs an upcall for nothing and no more.
    fn is_blocked(&self, activation: &Activation<Self>, cheap_doubt: bool) -> bool;

    /// Returns true if the owner, in a system call that it has announced, waits there for events from outside, as it does
    /// again and again. A hint.
    fn waits_for_events(&self, _owner: &Activation<Self>) -> bool {
        false
    }

    /// The standby has found an owner in its own code, with threads waiting, after so many dispatches on its virtual
    /// processor. Where time slices may end late, this ends one that is over.
    fn computes(&self, _owner: &Activation<Self>, _dispatches: u64) {}

    /// For how many nanoseconds the calling standby may nap before it looks again: a small part of the time for which no owner has
    /// blocked in its own code ([`Machine::now`]). `None`: it had better be at hand, and only lets others run. `only_events`: no
    /// thread waits for the virtual processor.
    fn nap_ns(
        &self,
        _standby: &Activation<Self>,
        _only_events: bool,
        _quiet_ns: impl FnOnce() -> u64,
    ) -> Option<u64> {
        None
    }

    /// Sleeps for that time at most. Does not sleep, or no longer, if `standby.wake` is not `seen` any more.
    fn nap(&self, _standby: &Activation<Self>, _seen: u32, _ns: u64) {
        self.yield_processor();
    }

    /// How an activation waits that was found blocked outside of any announced system call. Not
    /// on the path of the upcall: it may take microseconds.
    fn waiting(&self, _activation: &Activation<Self>) -> Waiting {
        Waiting::Deaf
    }

    /// Returns true if a standby may only watch. It never runs threads, and it may not get to run for
    /// long, so it must not hold a lock. When the owner blocks it gives the virtual processor to its
    /// *heir*, an activation that others have reserved for it.
    fn needs_heirs(&self) -> bool {
        false
    }

    /// A blocked owner was found by chance, with threads waiting: the standby should have seen it
    /// before. Only called where standbys have heirs.
    fn overdue(&self) {}
}

/// Sharing the processors with other programs.
pub trait Share: Vessels {
    /// Returns true if a virtual processor has its processor now. Where it has not, its owner parks its
    /// thread and calls [`Share::await_turn`]. When that changes while the owner computes,
    /// [`Runtime::recall`](crate::Runtime::recall) tells it.
    fn may_run(&self, _vp: &'static Vp<Self>) -> bool {
        true
    }

    /// Returns true if a virtual processor that has not its processor any more ([`Share::may_run`]) has it to the end of a critical
    /// section in which its thread is: others are going to have it, and have not got it yet.
    fn may_finish(&self, _vp: &'static Vp<Self>) -> bool {
        false
    }

    /// Sleeps until [`Share::may_run`] says yes for the activation's virtual processor, or
    /// [`Vessels::wake`]. Returns at once if `activation.wake` is no longer `seen`. May return early.
    fn await_turn(&self, activation: &Activation<Self>, seen: u32) {
        self.sleep(activation, seen);
    }

    /// Returns true if another address space waits for a processor of this one. Then a blocked owner
    /// must be noticed even if no thread waits for its virtual processor.
    fn is_contended(&self) -> bool {
        false
    }

    /// The current activation's virtual processor has nothing to run and is about to sleep.
    fn resting(&self, _activation: &Activation<Self>) {}

    /// Returns true if other programs keep the processors busy. Then the kernel chooses among the
    /// runnable activations of a virtual processor, in fairness to the others, and its choice stands.
    fn crowded(&self) -> bool {
        false
    }

    /// A time slice is over on the current activation's virtual processor, on which `thread` ran: a
    /// chance to look after the machine (has the processor become crowded?). Called on the activation's
    /// own stack.
    fn tick(&self, _inside: &Inside<Self>, _thread: &'static Thread<Self>) {}
}

/// Noting what happens.
pub trait Trace: Machine {
    /// An event has happened on the calling activation, which is inside the runtime; or the caller is a kernel thread that is no
    /// activation. Called only after [`Runtime::begin_trace`](crate::Runtime::begin_trace), perhaps with locks held.
    fn note(&self, _event: Event<Self>) {}
}
