//! What the backend keeps with the process: the settings, the hooks of the layer above, and its parts.

use core::sync::atomic::{AtomicBool, Ordering};

use upcall_core::{Errno, Slot};

use crate::blocked::observe::Probe;
use crate::blocked::page::{Looks, Scheduler};
use crate::blocked::watch::Watch;
use crate::processors::quota::Quota;
use crate::record::Recorder;
use crate::state::barriers::Barriers;
use crate::state::{Activation, Entered, Inside, Poller, Thread};
use crate::sys::clone::Starter;
use crate::turns::Turns;

/// What the layer above does at events that are its own.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Before the calling kernel thread starts that of an activation: whether that one will have what
    /// `begin` gives it.
    pub may_start: fn() -> Result<(), Errno>,
    /// Who starts a kernel thread in place of the calling one, which inherits what the kernel keeps with its creator.
    /// `None`: the caller itself, since it has what every activation has.
    pub starter: fn() -> Option<Starter>,
    /// The first steps of an activation in its own kernel thread, inside the runtime: what each
    /// kernel thread of the process must have.
    pub begin: fn(),
    /// A thread is made: its attributes in the layer above become those of a new thread of this creator. See
    /// [`upcall_core::kernel::Attributes::begin`].
    pub new_thread: fn(&Thread, &Thread),
    /// Which thread begins for a ticket. See [`upcall_core::kernel::Attributes::begins`].
    pub begins: fn(&Inside, &'static Thread) -> &'static Thread,
    /// Signals of the program were deferred on an activation; leaves the runtime. See
    /// [`upcall_core::kernel::Attributes::deferred`].
    pub deferred: fn(Entered),
    /// The same where the activation has no thread. See [`upcall_core::kernel::Attributes::pass_on`].
    pub pass_on: fn(&Inside),
    /// The signals that an activation without a thread should take on behalf of parked threads: the
    /// mask to sleep with.
    pub resting_mask: fn() -> u64,
    /// A virtual processor is about to sleep: perhaps no thread will ever run again.
    pub stuck: fn(&Inside),
    /// The system call that the thread is about to make: its number, and its first argument in the upper half. For a timeline.
    pub call: fn(&Thread) -> u64,
    /// A time slice of this thread is over, which is parked. See [`upcall_core::kernel::Share::tick`].
    pub tick: fn(&Inside, &'static Thread),
    /// The thread is about to run on the calling activation, if that is asked for.
    pub runs: Option<fn(&Activation, &'static Thread)>,
}

/// How the backend is set up.
#[derive(Clone, Copy)]
pub struct Settings {
    /// Use an idle-class sentinel instead of an ordinary standby.
    pub sentinel: bool,
    /// The probe that tells blocked from preempted.
    pub probe: Probe,
    /// Ask a daemon of root for the page of what the kernel's scheduler does with activations.
    pub is_observed: bool,
    /// Time slice in nanoseconds.
    pub slice_ns: u64,
    /// Take turns with the user's other programs under the runtime.
    pub takes_turns: bool,
    /// With how many processors the program goes on at least, where a daemon gives it fewer than it wants; 0: it needs all at
    /// once.
    pub adapts: u32,
    /// For which share of the time the program asks a daemon; 0: for what is configured there.
    pub share: u32,
    /// Callbacks.
    pub hooks: Hooks,
}

/// The kernel interface.
pub struct Linux {
    pub(crate) settings: Settings,
    pub(crate) pid: i32,
    pub(crate) poller: Poller,
    /// Standbys are sentinels: from the start, or since an ordinary one was seen not to give way.
    pub(crate) sentinels: AtomicBool,
    /// Whether owners are watched for want of a sentinel that runs.
    pub(crate) watch: Watch,
    /// The activation of the process's first kernel thread.
    pub(crate) first: Slot<Activation>,
    pub(crate) turns: Turns,
    /// How many virtual processors are in use.
    pub(crate) quota: Quota,
    pub(crate) recorder: Recorder,
    pub(crate) scheduler: Scheduler,
    /// There may be a filter (seccomp(2)).
    pub(crate) filtered: AtomicBool,
    pub(crate) barriers: Barriers,
}

impl Linux {
    /// The activation of the process's first kernel thread, whose id is the process's.
    pub(crate) fn first(&self) -> Option<&'static Activation> {
        self.first.get(Ordering::Relaxed)
    }

    /// The program is about to install a filter. The kernel is asked for no barrier any more, when this returns. Nothing of the
    /// runtime needs one then ([`Runtime::forbid_barriers`](upcall_core::Runtime::forbid_barriers)).
    pub fn expect_filter(&self) {
        self.filtered.store(true, Ordering::Relaxed);
        self.barriers.forbid();
    }

    /// The turns with other processes.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// What the kernel's own account of the activations was good for.
    pub fn looks(&self) -> Looks {
        self.scheduler.looks()
    }

    /// Returns true if the kernel's own account of the activations is in use. Waits for it for this time at most, in
    /// milliseconds.
    pub fn is_observed_within(&self, patience_ms: i32) -> bool {
        self.scheduler.is_linked_within(patience_ms)
    }

    /// Returns true if the daemon's scheduler had all kernel threads when that account came into use.
    pub fn was_scheduled(&self) -> bool {
        self.scheduler.was_scheduled()
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The poller.
    pub fn poller(&self) -> &Poller {
        &self.poller
    }
}
