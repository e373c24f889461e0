//! The kernel interface: what the runtime asks (downcalls) and what it is told (upcalls).
//!
//! | upcall (Anderson, Table 2) | how it arrives here |
//! |---|---|
//! | processor added | `Runtime::ring` grants an idle virtual processor |
//! | activation preempted | [`Runtime::interrupted`](crate::Runtime::interrupted) in the activation itself |
//! | activation blocked | the standby activation runs and [`Kernel::is_blocked`] says so |
//! | processor taken for another address space | [`Kernel::may_run`] says no, [`Runtime::recall`](crate::Runtime::recall) |
//! | activation unblocked | the activation returns and finds that it no longer owns its virtual processor |
//!
//! | downcall | here |
//! |---|---|
//! | this processor is idle | [`Kernel::sleep`], [`Kernel::poll`] |
//! | discard me, continue that one (`resume`) | a grant in the virtual processor's word, then sleep |
//! | preempt that processor | [`Kernel::interrupt`] |
//! | these activations are free (`recycle`) | they sleep in the spare pool, and end beyond a bound |

use core::ptr::NonNull;

use crate::activation::Activation;
use crate::thread::Thread;
use crate::thread_list::ThreadList;
use crate::vp::Vp;

/// A kernel error number, positive (`EAGAIN` is 11 on Linux).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// How an activation waits in the kernel that is not in an announced system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// It does not, or it cannot be interrupted: an interruption reaches it when it comes back.
    Deaf,
    /// An interruption would cut its wait short (userfaultfd): none may be sent.
    Interruptible,
}

/// The kernel under the runtime.
///
/// # Safety
///
/// Implementations must return from [`Kernel::current`] the activation that executes the call,
/// must start activations on their own stacks, and must keep mapped memory mapped for ever.
pub unsafe trait Kernel: Sized + Sync + 'static {
    /// What the backend keeps with each activation.
    type ActivationState: Default + Sync;
    /// What the backend keeps with each thread: the attributes that the kernel would keep.
    type ThreadState: Default + Sync;

    /// The activation that executes this call.
    fn current(&self) -> &'static Activation<Self>;

    /// Marks the current activation as inside the runtime: from here on the kernel's events are
    /// deferred. One instruction, so that no event can fall between reading and writing.
    fn set_inside(&self);

    /// Takes the mark of [`Kernel::set_inside`] away and says whether an event was deferred.
    fn clear_inside(&self) -> bool;

    /// Nanoseconds of a clock that never goes back.
    fn now(&self) -> u64;

    /// Lets another kernel thread run on this processor, if there is one.
    fn yield_processor(&self);

    /// Lets the holder of a lock run that was interrupted with it.
    fn await_holder(&self) {
        self.yield_processor();
    }

    /// Sleeps until [`Kernel::wake`]; returns at once if `activation.wake` is no longer `seen`.
    /// May return early.
    fn sleep(&self, activation: &'static Activation<Self>, seen: u32);

    /// Wakes an activation that sleeps or is about to, in [`Kernel::sleep`] or [`Kernel::poll`].
    fn wake(&self, activation: &'static Activation<Self>);

    /// Makes [`Runtime::interrupted`](crate::Runtime::interrupted) run in that activation before
    /// it executes another instruction of its thread.
    fn interrupt(&self, activation: &'static Activation<Self>);

    /// Whether that activation is blocked. With `cheap_doubt` it has announced a system call and
    /// another thread is ready: a wrong yes costs an upcall for nothing and no more.
    fn is_blocked(&self, activation: &'static Activation<Self>, cheap_doubt: bool) -> bool;

    /// How an activation waits that was found blocked outside of any announced system call. Not
    /// on the path of the upcall: it may take microseconds.
    fn waiting(&self, activation: &'static Activation<Self>) -> Waiting;

    /// Starts the kernel thread of an activation at
    /// [`Runtime::activation_main`](crate::Runtime::activation_main), as sentinel if asked so.
    ///
    /// # Errors
    ///
    /// The kernel's error when it gives no more threads.
    fn spawn(&self, activation: &'static Activation<Self>, sentinel: bool) -> Result<(), Errno>;

    /// Ends the calling activation's kernel thread.
    fn exit_activation(&self, activation: &'static Activation<Self>) -> !;

    /// Binds the calling activation to the processor of its virtual processor.
    fn bind(&self, activation: &'static Activation<Self>);

    /// Prepares the calling activation to run `thread`: pointer registers and, where they differ,
    /// the attributes that the kernel keeps.
    fn install(&self, activation: &'static Activation<Self>, thread: &'static Thread<Self>);

    /// The calling activation has saved `thread` and does not run it any more.
    fn uninstall(&self, activation: &'static Activation<Self>, thread: &'static Thread<Self>);

    /// Maps `length` bytes of zeroed memory for ever, without reserving it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, as positive number.
    fn map(&self, length: usize) -> Result<NonNull<u8>, Errno>;

    /// As [`Kernel::map`], for activations: a backend may want to tell their addresses from others.
    ///
    /// # Errors
    ///
    /// As [`Kernel::map`], or that there is no room for so many.
    fn map_activations(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        self.map(length)
    }

    /// Makes a page inaccessible, preferably without a mapping of its own.
    fn guard(&self, page: NonNull<u8>, length: usize);

    /// Threads that wait for descriptors or deadlines and can now run: each was claimed with
    /// [`Thread::claim`]. With `wait`, blocks until there is one, or [`Kernel::wake`]; returns at
    /// once if `activation.wake` is no longer the value in `wait`. Where the activation's virtual
    /// processor has not its processor, it also returns when that is back ([`Kernel::await_turn`]).
    fn poll(&self, activation: &'static Activation<Self>, wait: Option<u32>) -> ThreadList<Self>;

    /// Whether somebody must sit in [`Kernel::poll`] although all processors are busy.
    fn wants_poller(&self) -> bool;

    /// Asks that a poll return no later than `deadline` (nanoseconds of [`Kernel::now`]) instead of
    /// the last one asked for; `u64::MAX`: there is none. One call at a time.
    fn set_alarm(&self, deadline: u64);

    /// By how many nanoseconds the deadline of a thread that is about to park may be met late, so
    /// that others can be met with it. None, if not said.
    fn slack(&self, thread: &'static Thread<Self>) -> u64 {
        let _ = thread;
        0
    }

    /// Whether an event waits for a thread that must not sleep through it (a signal for the
    /// program). Asked when the thread has just been parked: an event that came before did not find
    /// it parked and could not end its wait.
    fn is_interrupted(&self, thread: &'static Thread<Self>) -> bool;

    /// Events that were deferred while the activation was inside the runtime and are not the
    /// runtime's own (signals for the program). Called outside of any critical section, with
    /// the thread that runs on the activation, if one does.
    fn deferred(
        &self,
        activation: &'static Activation<Self>,
        thread: Option<&'static Thread<Self>>,
    );

    /// A time slice is over on the current activation's virtual processor, on which `thread` ran: a
    /// chance to look after the machine (has the processor become crowded?). On the activation's own
    /// stack.
    fn tick(&self, activation: &'static Activation<Self>, thread: &'static Thread<Self>);

    /// Whether other programs keep the processors busy. Then the kernel chooses among the runnable
    /// activations of a virtual processor, in fairness to the others, and its choice stands.
    fn crowded(&self) -> bool {
        false
    }

    /// A blocked owner was found by chance, with threads waiting: the standby should have seen it
    /// before. Only asked for where the standby is a sentinel.
    fn overdue(&self) {}
    /// Whether a virtual processor has its processor now. Where it has not, its owner parks its
    /// thread and calls [`Kernel::await_turn`]; when that changes while the owner computes,
    /// [`Runtime::recall`](crate::Runtime::recall) tells it.
    fn may_run(&self, _vp: &'static Vp<Self>) -> bool {
        true
    }

    /// Sleeps until [`Kernel::may_run`] says yes for the activation's virtual processor, or
    /// [`Kernel::wake`]; returns at once if `activation.wake` is no longer `seen`. May return
    /// early.
    fn await_turn(&self, activation: &'static Activation<Self>, seen: u32) {
        self.sleep(activation, seen);
    }

    /// Whether another address space waits for a processor of this one: then a blocked owner
    /// must be noticed even if no thread waits for its virtual processor.
    fn is_contended(&self) -> bool {
        false
    }

    /// The current activation's virtual processor has nothing to run and is about to sleep.
    fn resting(&self, _activation: &'static Activation<Self>) {}

    /// The activation has nothing to do and is about to sleep; perhaps nobody will ever have anything to do.
    fn look_for_deadlock(&self, _activation: &'static Activation<Self>) {}

    /// Whether the kernel thread of an activation that called [`Kernel::exit_activation`] is gone,
    /// and its stack free.
    fn is_gone(&self, activation: &'static Activation<Self>) -> bool;

    /// Where the standby activation is an idle-class sentinel that never runs threads itself.
    fn sentinel(&self) -> bool;

    /// The adviser has used up a time slice for one answer. See [`crate::Runtime::become_adviser`].
    fn advice_is_late(&self) {}

    /// A broken invariant: prints what it can and ends the process.
    fn broken(&self, what: &str) -> !;
}
