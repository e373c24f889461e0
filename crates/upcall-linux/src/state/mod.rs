//! What the backend keeps with each activation and with each thread.
//!
//! The rooms above work with it. It is declared here, below them, so that they need not import each other.

pub mod activations;
pub mod base;
mod begin;
pub mod cpu_time;
mod inbox;
mod linux;
pub mod slack;
mod waits;

pub use inbox::{Inbox, Noted, OWN, SIGNAL};
pub use linux::{Hooks, Linux, Settings};
pub use waits::Poller;
pub(crate) use waits::{Choice, DESCRIPTORS, Descriptor, Entry, Known, Node, READERS};

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::blocked::observe::Observer;
use crate::blocked::watch::Glance;
use crate::processors::asked::Asked;
use crate::processors::binding::Binding;
use crate::processors::slice::Slice;
use crate::state::slack::Slack;

/// An activation on Linux.
pub type Activation = upcall_core::Activation<Linux>;
/// A virtual processor on Linux.
pub type Vp = upcall_core::Vp<Linux>;
/// A thread on Linux.
pub type Thread = upcall_core::Thread<Linux>;
/// A runtime on Linux.
pub type Runtime = upcall_core::Runtime<Linux>;
/// See [`upcall_core::Inside`].
pub type Inside = upcall_core::Inside<Linux>;

/// Where an activation sleeps: what [`Linux::wake`](crate::state::Linux) must do.
pub(crate) const AWAKE: u32 = 0;
pub(crate) const IN_FUTEX: u32 = 1;
pub(crate) const IN_POLL: u32 = 2;
pub(crate) const IN_TURN: u32 = 3;

/// What the backend keeps with each activation.
pub struct LinuxActivation {
    /// The kernel thread's id; the kernel clears it when the thread is gone.
    pub tid: AtomicI32,
    /// The processor that it bound itself to.
    pub(crate) binding: Binding,
    /// How its last time slice went.
    pub(crate) slice: Slice,
    pub(crate) waiting: AtomicU32,
    /// The timer of its time slices plus one, or 0.
    pub(crate) timer: AtomicI32,
    /// When one was last asked for.
    pub(crate) timer_tried_ns: AtomicU64,
    /// The kernel's copy of the thread pointer and mask: what the activation's
    /// kernel thread has now.
    pub(crate) thread_pointer: AtomicUsize,
    /// The signal mask of the kernel thread.
    pub mask: AtomicU64,
    /// The timer slack of the kernel thread; `u64::MAX` when it is not known.
    pub(crate) slack: AtomicU64,
    /// What its own clock said when its thread began to run; 0 when nobody has asked.
    pub(crate) cpu_mark: AtomicU64,
    /// Signals that wait for the activation to leave the runtime.
    pub inbox: Inbox,
    /// The signals of the program that it has taken and has not passed on yet. Kept by the guest.
    pub at_hand: AtomicU64,
    /// Whether it looks for signals of the process that parked threads accept. Kept by the guest.
    pub looks: AtomicBool,
    /// The last signal that the runtime has queued to the kernel thread. Kept by the guest.
    pub queued: Noted,
    /// The number of the last call of [`new_call`](crate::activation::preempt::new_call) that it has made.
    pub(crate) served: AtomicU32,
    /// How to learn whether it is blocked.
    pub(crate) observer: Observer,
    /// What it saw as sentinel.
    pub(crate) glance: Glance,
    /// How often its kernel thread had gone to sleep by itself when last asked.
    pub(crate) sleeps: AtomicU64,
    /// Whether it is a sentinel: it stays in the idle scheduling class.
    pub(crate) sentinel: AtomicBool,
    /// Not 0 in what only looks like an activation, for a kernel thread that is none. Kept by the guest.
    pub outside: AtomicUsize,
}

impl Default for LinuxActivation {
    fn default() -> Self {
        LinuxActivation {
            tid: AtomicI32::new(0),
            binding: Binding::default(),
            slice: Slice::default(),
            waiting: AtomicU32::new(AWAKE),
            timer: AtomicI32::new(0),
            timer_tried_ns: AtomicU64::new(0),
            thread_pointer: AtomicUsize::new(0),
            mask: AtomicU64::new(0),
            slack: AtomicU64::new(u64::MAX),
            cpu_mark: AtomicU64::new(0),
            inbox: Inbox::default(),
            at_hand: AtomicU64::new(0),
            looks: AtomicBool::new(false),
            queued: Noted::default(),
            served: AtomicU32::new(0),
            observer: Observer::default(),
            glance: Glance::default(),
            sleeps: AtomicU64::new(0),
            sentinel: AtomicBool::new(false),
            outside: AtomicUsize::new(0),
        }
    }
}

impl LinuxActivation {
    /// The kernel thread, on which the thread runs, has this thread pointer: the program may have written it.
    pub fn note_thread_pointer(&self, thread: &Thread, pointer: usize) {
        self.thread_pointer.store(pointer, Ordering::Relaxed);
        let own = &thread.kernel.thread_pointer;
        own.store(pointer, Ordering::Relaxed);
    }

    /// A new kernel thread: what it has of the attributes kept here.
    pub(crate) fn forget_kernel_state(&self, thread_pointer: usize) {
        self.binding.forget();
        self.slice.forget();
        self.glance.forget();
        self.timer_tried_ns.store(0, Ordering::Relaxed);
        self.waiting.store(AWAKE, Ordering::Relaxed);
        self.thread_pointer.store(thread_pointer, Ordering::Relaxed);
        self.mask.store(0, Ordering::Relaxed);
        self.at_hand.store(0, Ordering::Relaxed);
        self.looks.store(false, Ordering::Relaxed);
        self.slack.store(u64::MAX, Ordering::Relaxed);
        self.cpu_mark.store(0, Ordering::Relaxed);
    }
}

/// What a thread asked for with SCHED_DEADLINE, and the job that it is in; all in nanoseconds. Kept by the guest.
#[derive(Default)]
pub struct Job {
    /// Processor time that each job takes.
    pub runtime: AtomicU64,
    /// When a job must be done, after its release.
    pub deadline: AtomicU64,
    /// From one release to the next one. 0: the thread has asked for nothing.
    pub period: AtomicU64,
    /// When this job must be done, of CLOCK_MONOTONIC.
    pub due: AtomicU64,
    /// When the next one is released.
    pub next: AtomicU64,
    /// Processor time that the thread had had when this one began.
    pub before: AtomicU64,
}

/// The program's own Syscall User Dispatch. Kept by the guest.
#[derive(Default)]
pub struct UserDispatch {
    /// Not 0: it is on.
    pub on: AtomicU32,
    /// Where calls are let through.
    pub start: AtomicUsize,
    /// How much of that.
    pub length: AtomicUsize,
    /// Where the byte is that says what happens elsewhere, or 0.
    pub selector: AtomicUsize,
    /// Where the answer goes to a call that is not made, or 0.
    pub answer: AtomicUsize,
}

/// What the kernel would keep with a thread, were it a kernel thread.
#[derive(Default)]
pub struct LinuxThread {
    /// The thread pointer (FS base).
    pub thread_pointer: AtomicUsize,
    /// What the program has put into the register that is the activation's pseudo-register (the GS base), or 0: it
    /// has put nothing there. True while the thread is in the runtime. Kept by the guest.
    pub program_base: AtomicUsize,
    /// Its id: the number that libc and the program know.
    pub tid: AtomicI32,
    /// Blocked signals.
    pub mask: AtomicU64,
    /// The alternate signal stack: address, size, flags. Size 0 when disabled. Kept by the guest.
    pub altstack: [AtomicUsize; 3],
    /// Signals sent to the thread that it has not seen yet.
    pub pending: AtomicU64,
    /// What runs it again when it has ended, or 0. Kept by the guest.
    pub shell: AtomicUsize,
    /// Where to store 0 and wake when the thread ends (set_tid_address).
    pub clear_tid: AtomicUsize,
    /// The robust list (set_robust_list).
    pub robust_list: AtomicUsize,
    /// The kernel thread that stands for it in the kernel, or 0. Kept by the guest.
    pub agent: AtomicUsize,
    /// The system call in which it is: the address of the registers at its site, or 0.
    pub frame: AtomicUsize,
    /// Set while the runtime's own signal has stopped it in its own code: the kernel's frame on its stack is
    /// its exact state, and what comes for it is delivered when that frame returns. Kept by the guest.
    pub stopped: AtomicBool,
    /// Set while a child of vfork runs on the thread's memory: its calls are not the thread's.
    pub lent: AtomicBool,
    /// The signals that sigtimedwait waits for, or that a call with a mask of its own lets through.
    pub waited_for: AtomicU64,
    /// Whether it is in a call with a mask of its own. Kept by the guest.
    pub suspended: AtomicBool,
    /// 1 when the call that it is about to make must not wait. Kept by the guest.
    pub forbidden: AtomicU32,
    /// The queue behind `pending`. Kept by the guest.
    pub queue: AtomicUsize,
    /// Where the outermost handler was called that returns into the runtime, or 0. Kept by the guest.
    pub called_back: AtomicUsize,
    /// The record of the kernel thread of its own that it has or is to have, or 0. Kept by the guest.
    pub bound: AtomicUsize,
    /// The id of that kernel thread once signals for the thread go there, or 0. Kept by the guest.
    pub outside_tid: AtomicI32,
    /// Whether it is in the handler by which libc has all threads take part in a change of identity. Kept by the guest.
    pub takes_part: AtomicBool,
    /// Whether handlers ran since the current system call began. Kept by the guest.
    pub seen: AtomicU32,
    /// Whether a signal of the runtime's own came since it was last cleared, which may have cut a call short. Kept
    /// by the guest.
    pub disturbed: AtomicBool,
    /// Processor time used, up to when it last stopped running ([`cpu_time`]).
    pub cpu_ns: AtomicU64,
    /// The policy and priority that it has asked for. Kept by the guest.
    pub asked_urgency: AtomicU32,
    /// Its own rank, the most urgent one lent to it (`u64::MAX`: none), how many mutexes it holds, and the number of the
    /// thread that holds the one that it waits for. The guest's, where threads have ranks.
    pub own_rank: AtomicU64,
    /// See `own_rank`.
    pub lent_rank: AtomicU64,
    /// See `own_rank`.
    pub locks: AtomicU32,
    /// See `own_rank`.
    pub waits_for: AtomicU32,
    /// The shell that it is making.
    pub makes: AtomicUsize,
    /// What the program's policy knows of it: the number that the program gave it, and the policy's own.
    pub tag: AtomicU64,
    /// See `tag`.
    pub advised: AtomicU64,
    /// The job that it is in, if it has asked for deadlines. Kept by the guest.
    pub job: Job,
    /// What calls the program wants to have dispatched to its own handler.
    pub user_dispatch: UserDispatch,
    /// Its timer slack.
    pub slack: Slack,
    /// The processors that it has asked for.
    pub asked: Asked,
    /// Its name (PR_SET_NAME), 16 bytes.
    pub name: [AtomicU64; 2],
    /// Whether it blocks or parks in a wait for several descriptors.
    pub(crate) choice: Choice,
    /// Its place in the list of the first descriptor that it waits for.
    pub(crate) node: Node,
}
