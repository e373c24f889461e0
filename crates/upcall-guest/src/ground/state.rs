//! The library's one global object: the runtime, if there is one, and the options with which the program was started.
//!
//! A program begins with one kernel thread and no runtime: its system calls pass through. The first thread that it creates
//! starts the runtime. A program that never creates one pays nothing for most of its system calls, and a few nanoseconds
//! for those that must be seen before there are threads. After fork
//! the child is such a program again: its only thread leaves the parent's runtime behind, and starts a new one when it
//! needs it.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use upcall_core::Errno;
use upcall_core::numbered::{AtomicEnum, numbered_enum};
use upcall_linux::Runtime;
use upcall_linux::observe::Probe;

use crate::ground::hooks::hooks;
use crate::ground::identity::Identities;

/// The time slice unless another one is asked for, in nanoseconds: what the kernel gives its threads where its clock ticks 250
/// times a second.
pub const SLICE_NS: u64 = 4_000_000;

/// The decisions of `upcall run`, from the environment.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Virtual processors; 0: as many as there are allowed processors.
    pub vps: u32,
    /// With how many of them the program goes on at least, where a daemon gives it fewer processors; 0: it needs all at once.
    pub adapts: u32,
    /// For which share of the time the program asks a daemon; 0: for what is configured there.
    pub share: u32,
    /// Print counters at exit.
    pub stats: bool,
    /// The directory for a file in which events are noted, if they are.
    pub trace: Option<&'static CStr>,
    /// The path of the command `upcall`, if it is to show threads.
    pub command: Option<&'static CStr>,
    /// Have it show them in a deadlock.
    pub deadlocks: bool,
    /// The signal at which it shows them; 0: none.
    pub stacks: i32,
    /// Kernel threads have the names of the threads that they run.
    pub comm: bool,
    /// Use a sentinel instead of a standby; otherwise as the kernel's scheduler needs.
    pub sentinel: bool,
    /// The probe to use.
    pub probe: Probe,
    /// How to learn what the kernel does with activations.
    pub backend: Backend,
    /// The time slice in nanoseconds.
    pub slice_ns: u64,
    /// Take turns with the user's other programs under the runtime.
    pub takes_turns: bool,
    /// Which ready thread runs first.
    pub policy: Policy,
}

numbered_enum! {
    /// How to learn what the kernel does with activations.
    pub enum Backend {
        /// A daemon of root is asked, if there is one.
        Auto = 0,
        /// By the standby alone.
        Standby = 1,
        /// By the daemon, or not at all.
        Observed = 2,
        /// By the daemon, while its scheduler has all kernel threads, or not at all.
        SchedExt = 3,
    }
}

impl Backend {
    /// The backend of that name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "auto" => Backend::Auto,
            "standby" => Backend::Standby,
            "observed" => Backend::Observed,
            "sched_ext" => Backend::SchedExt,
            _ => return None,
        })
    }
}

numbered_enum! {
    /// Which ready thread runs first. From [`Policy::Priority`] on by ranks.
    #[derive(PartialOrd, Ord)]
    pub enum Policy {
        /// Threads take turns; a new one of the crate goes first.
        ForkedFirst = 0,
        /// As that, and every new thread goes first.
        Lifo = 1,
        /// Threads take turns.
        RoundRobin = 2,
        /// Threads run until they wait or give way.
        Fifo = 3,
        /// By the scheduling policies and priorities that threads ask for; equals take turns.
        Priority = 4,
        /// By the deadlines that threads ask for; equals, and those without, take turns.
        Deadline = 5,
        /// By what the program's own policy says; equals take turns.
        Advised = 6,
    }
}

impl Policy {
    /// By its name, which is that of `upcall run --policy`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "lifo" => Policy::Lifo,
            "round-robin" => Policy::RoundRobin,
            "fifo" => Policy::Fifo,
            "priority" => Policy::Priority,
            "deadline" => Policy::Deadline,
            _ => return None,
        })
    }
}

/// The state of the library in its process.
pub struct Guest {
    pub(crate) runtime: AtomicPtr<Runtime>,
    pub(crate) starting: AtomicBool,
    pub(crate) vps: AtomicU32,
    adapts: AtomicU32,
    share: AtomicU32,
    pub(crate) stats: AtomicBool,
    trace: AtomicPtr<c_char>,
    command: AtomicPtr<c_char>,
    deadlocks: AtomicBool,
    stacks: AtomicI32,
    comm: AtomicBool,
    /// Where to print them: standard error as it was when the runtime started, which many programs
    /// close before they end.
    pub(crate) report_to: AtomicI32,
    pub(crate) sentinel: AtomicBool,
    pub(crate) probe: AtomicEnum<Probe>,
    pub(crate) backend: AtomicEnum<Backend>,
    pub(crate) slice_ns: AtomicU64,
    pub(crate) takes_turns: AtomicBool,
    policy: AtomicEnum<Policy>,
    /// The process's own id, which is also its first thread's.
    pub pid: AtomicU32,
    /// Threads of the program by id.
    pub identities: Identities,
    /// Threads that have not called exit(2) yet.
    pub living: AtomicUsize,
    /// Set when the first thread has called it.
    pub first_ended: AtomicBool,
    /// How many helpers there are.
    pub helpers: AtomicUsize,
    /// Set when the program has used io_uring(7): activations must stay because of requests in flight.
    pub uses_io_uring: AtomicBool,
}

/// This process's state.
pub static GUEST: Guest = Guest {
    runtime: AtomicPtr::new(ptr::null_mut()),
    starting: AtomicBool::new(false),
    vps: AtomicU32::new(0),
    adapts: AtomicU32::new(0),
    share: AtomicU32::new(0),
    stats: AtomicBool::new(false),
    trace: AtomicPtr::new(ptr::null_mut()),
    command: AtomicPtr::new(ptr::null_mut()),
    deadlocks: AtomicBool::new(false),
    stacks: AtomicI32::new(0),
    comm: AtomicBool::new(false),
    report_to: AtomicI32::new(libc::STDERR_FILENO),
    sentinel: AtomicBool::new(false),
    probe: AtomicEnum::new(Probe::Perf),
    backend: AtomicEnum::new(Backend::Standby),
    slice_ns: AtomicU64::new(SLICE_NS),
    takes_turns: AtomicBool::new(false),
    policy: AtomicEnum::new(Policy::ForkedFirst),
    pid: AtomicU32::new(0),
    identities: Identities::new(),
    living: AtomicUsize::new(0),
    first_ended: AtomicBool::new(false),
    helpers: AtomicUsize::new(0),
    uses_io_uring: AtomicBool::new(false),
};

/// One of the texts that [`Guest::configure`] has stored.
fn text_of(text: &AtomicPtr<c_char>) -> Option<&'static CStr> {
    let text = text.load(Ordering::Relaxed);
    // SAFETY: null, or a string that lives for ever.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

impl Guest {
    /// Notes the options before the program's own code runs.
    pub fn configure(&self, options: Options) {
        self.vps.store(options.vps, Ordering::Relaxed);
        self.adapts.store(options.adapts, Ordering::Relaxed);
        self.share.store(options.share, Ordering::Relaxed);
        self.stats.store(options.stats, Ordering::Relaxed);
        for (place, text) in [
            (&self.trace, options.trace),
            (&self.command, options.command),
        ] {
            let text = text.map_or(ptr::null(), CStr::as_ptr);
            place.store(text.cast_mut(), Ordering::Relaxed);
        }
        self.deadlocks.store(options.deadlocks, Ordering::Relaxed);
        self.stacks.store(options.stacks, Ordering::Relaxed);
        self.comm.store(options.comm, Ordering::Relaxed);
        self.sentinel.store(options.sentinel, Ordering::Relaxed);
        self.probe.store(options.probe, Ordering::Relaxed);
        self.backend.store(options.backend, Ordering::Relaxed);
        self.slice_ns.store(options.slice_ns, Ordering::Relaxed);
        self.takes_turns
            .store(options.takes_turns, Ordering::Relaxed);
        self.policy.store(options.policy, Ordering::Relaxed);
    }

    /// [`Options::adapts`].
    pub fn adapts(&self) -> u32 {
        self.adapts.load(Ordering::Relaxed)
    }

    /// [`Options::share`].
    pub fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// [`Options::slice_ns`].
    pub fn slice_ns(&self) -> u64 {
        self.slice_ns.load(Ordering::Relaxed)
    }

    /// [`Options::stats`].
    pub fn prints_stats(&self) -> bool {
        self.stats.load(Ordering::Relaxed)
    }

    /// [`Options::trace`].
    pub fn trace(&self) -> Option<&'static CStr> {
        text_of(&self.trace)
    }

    /// [`Options::command`].
    pub fn command(&self) -> Option<&'static CStr> {
        text_of(&self.command)
    }

    /// [`Options::command`], if it shows deadlocks.
    pub fn reports_deadlocks(&self) -> Option<&'static CStr> {
        let shows = self.deadlocks.load(Ordering::Relaxed);
        shows.then(|| self.command())?
    }

    /// [`Options::stacks`].
    #[inline]
    pub fn stacks(&self) -> i32 {
        self.stacks.load(Ordering::Relaxed)
    }

    /// [`Options::comm`].
    pub fn names_kernel_threads(&self) -> bool {
        self.comm.load(Ordering::Relaxed)
    }

    /// [`Options::policy`].
    #[inline]
    pub fn policy(&self) -> Policy {
        self.policy.load(Ordering::Relaxed)
    }

    /// Returns true if threads have ranks.
    #[inline]
    pub fn has_ranks(&self) -> bool {
        self.policy() >= Policy::Priority
    }

    /// Returns true if it is [`Policy::Priority`].
    pub fn orders_by_priority(&self) -> bool {
        self.policy() == Policy::Priority
    }

    /// Returns the runtime, once the program has created a thread.
    #[inline]
    pub fn runtime(&self) -> Option<&'static Runtime> {
        let runtime = self.runtime.load(Ordering::Acquire);
        // SAFETY: null, or a runtime that lives for ever.
        unsafe { runtime.as_ref() }
    }

    /// Starts the runtime, if there is none: the caller becomes the first thread on the first activation.
    ///
    /// # Errors
    ///
    /// The kernel's error when it gives no memory, descriptors or threads.
    pub fn start(&self) -> Result<&'static Runtime, Errno> {
        self.runtime().map_or_else(hooks().start, Ok)
    }

    /// Called when the process is about to end: tells the other programs, and prints the counters if asked to.
    pub fn report(&self) {
        (hooks().at_exit)();
    }

    /// Called in the child of a fork, which has one kernel thread and no runtime.
    pub fn forget_runtime(&self) {
        self.runtime.store(ptr::null_mut(), Ordering::Release);
        self.helpers.store(0, Ordering::Relaxed);
        self.first_ended.store(false, Ordering::Relaxed);
        self.identities.forget();
        (hooks().in_child)();
    }

    /// Returns true if the runtime is being started.
    pub fn is_starting(&self) -> bool {
        self.starting.load(Ordering::Relaxed)
    }
}

/// See [`is_ready`].
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Returns true if the process is ready for threads: all its sites are rewritten that can be. Before the first thread only
/// those are that must be seen without one.
pub fn is_ready() -> bool {
    IS_READY.load(Ordering::Relaxed)
}

/// Notes that the process is ready. Returns false if it was.
pub fn become_ready() -> bool {
    !IS_READY.swap(true, Ordering::Relaxed)
}

/// Set while a child of vfork runs on the memory of a process without a runtime.
static LENT: AtomicI32 = AtomicI32::new(0);

/// See [`is_lent`].
pub fn set_lent(lent: bool) {
    LENT.store(i32::from(lent), Ordering::SeqCst);
}

/// Returns true if the calling kernel thread is a child of vfork on borrowed memory.
pub fn is_lent() -> bool {
    LENT.load(Ordering::Relaxed) != 0
}

/// The process is the child of a fork in a handler that returned, or will, into the runtime, and has no runtime of
/// its own.
static IN_HANDLER: AtomicBool = AtomicBool::new(false);

/// Returns true if the process was forked in a handler and has no runtime: there is a pseudo-register all the same.
pub fn was_forked_in_handler() -> bool {
    IN_HANDLER.load(Ordering::Relaxed)
}

/// See [`was_forked_in_handler`].
pub fn set_forked_in_handler(is_so: bool) {
    IN_HANDLER.store(is_so, Ordering::Relaxed);
}
