//! What the backend keeps with each activation and with each thread.
//!
//! The rooms above work with it. It is declared here, below them, so that they need not import each other.
//!
//! An attribute of a thread belongs to the lowest layer that touches it. [`LinuxThread`] has those of the backend, and
//! room for those of the layer above, which the backend does not know. Each layer has a function `begin` that names all
//! attributes of its own.

pub mod activations;
pub(crate) mod barriers;
pub mod base;
mod begin;
pub mod cpu_time;
pub(crate) mod follows;
mod inbox;
pub mod kernel_slices;
mod linux;
mod room;
pub mod slack;
mod waits;

pub use inbox::{Inbox, Noted, OWN, SIGNAL};
pub use linux::{Hooks, Linux, Settings};
pub use room::Room;
pub use waits::Poller;
pub(crate) use waits::{Choice, DESCRIPTORS, Descriptor, Entry, Known, Node, READERS, Waiters};

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use upcall_core::numbered::{AtomicEnum, numbered_enum};

use crate::blocked::observe::Observer;
use crate::blocked::page::Seen;
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
/// See [`upcall_core::Entered`].
pub type Entered = upcall_core::Entered<Linux>;
/// See [`upcall_core::Inside`].
pub type Inside = upcall_core::Inside<Linux>;

numbered_enum! {
    /// Where an activation sleeps: what [`Linux::wake`](crate::state::Linux) must do.
    pub(crate) enum Sleeps {
        Nowhere = 0,
        InFutex = 1,
        InPoll = 2,
        InTurn = 3,
    }
}

/// What the backend keeps with each activation.
pub struct LinuxActivation {
    /// The kernel thread's id; the kernel clears it when the thread is gone.
    pub tid: AtomicI32,
    /// The processor that it bound itself to.
    pub(crate) binding: Binding,
    /// How its last time slice went.
    pub(crate) slice: Slice,
    /// Whether it has asked the kernel for short slices ([`kernel_slices`]).
    pub(crate) has_short_slices: AtomicBool,
    pub(crate) waiting: AtomicEnum<Sleeps>,
    /// The timer of its time slices plus one, or 0.
    pub(crate) timer: AtomicI32,
    /// When one was last asked for.
    pub(crate) timer_tried_ns: AtomicU64,
    /// The timer that stops its thread in critical code ([`critical_code`](crate::activation::critical_code)), plus one, or 0;
    /// whether it runs.
    pub(crate) watch: AtomicI32,
    pub(crate) watches: AtomicBool,
    /// What a standby has seen of it as owner: the dispatches of its virtual processor, and its processor time then.
    pub(crate) watched_dispatches: AtomicU64,
    pub(crate) watched_ns: AtomicU64,
    /// The kernel's copy of the thread pointer and mask: what the activation's
    /// kernel thread has now.
    pub(crate) thread_pointer: AtomicUsize,
    /// The signal mask of the kernel thread.
    pub mask: AtomicU64,
    /// The timer slack of the kernel thread; `u64::MAX` when it is not known.
    pub(crate) slack: AtomicU64,
    /// The name of the kernel thread, where that follows the thread. Kept by the guest.
    pub name: [AtomicU64; 2],
    /// What its own clock said when its thread began to run; 0 when nobody has asked. See [`cpu_time`].
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
    /// What it saw of itself when it asked about another.
    pub(crate) seen: Seen,
    /// What it saw as sentinel.
    pub(crate) glance: Glance,
    /// How often its kernel thread had gone to sleep by itself when last asked.
    pub(crate) sleeps: AtomicU64,
    /// Whether it is a sentinel: it stays in the idle scheduling class.
    pub(crate) sentinel: AtomicBool,
    /// The ring in which it notes what happens, or 0.
    pub(crate) ring: AtomicUsize,
    /// Not 0 in what only looks like an activation, for a kernel thread that is none. Kept by the guest.
    pub outside: AtomicUsize,
}

impl Default for LinuxActivation {
    fn default() -> Self {
        LinuxActivation {
            tid: AtomicI32::new(0),
            binding: Binding::default(),
            slice: Slice::default(),
            has_short_slices: AtomicBool::new(false),
            waiting: AtomicEnum::new(Sleeps::Nowhere),
            timer: AtomicI32::new(0),
            timer_tried_ns: AtomicU64::new(0),
            watch: AtomicI32::new(0),
            watches: AtomicBool::new(false),
            watched_dispatches: AtomicU64::new(0),
            watched_ns: AtomicU64::new(0),
            thread_pointer: AtomicUsize::new(0),
            mask: AtomicU64::new(0),
            slack: AtomicU64::new(u64::MAX),
            name: [const { AtomicU64::new(0) }; 2],
            cpu_mark: AtomicU64::new(0),
            inbox: Inbox::default(),
            at_hand: AtomicU64::new(0),
            looks: AtomicBool::new(false),
            queued: Noted::default(),
            served: AtomicU32::new(0),
            observer: Observer::default(),
            seen: Seen::default(),
            glance: Glance::default(),
            sleeps: AtomicU64::new(0),
            sentinel: AtomicBool::new(false),
            ring: AtomicUsize::new(0),
            outside: AtomicUsize::new(0),
        }
    }
}

/// For debuggers: offsets in a [`Thread`] of where it waits for a descriptor, the first one of a wait for several.
impl LinuxThread {
    const NODE: usize = offset_of!(Thread, kernel) + offset_of!(LinuxThread, node);
    /// Of the byte that is 1 while it does.
    pub const OFFSET_WAITS: usize = Self::NODE + offset_of!(Node, linked);
    /// Of the 32-bit word of the descriptor.
    pub const OFFSET_DESCRIPTOR: usize = Self::NODE + offset_of!(Node, descriptor);
    /// Of the 32-bit word that says what for: the bits of [`Wants`](crate::poller::Wants).
    pub const OFFSET_WANTS: usize = Self::NODE + offset_of!(Node, wants);
    /// Of the word that is not 0 if there are more.
    pub const OFFSET_SIBLING: usize = Self::NODE + offset_of!(Node, sibling);
    /// Of its thread pointer.
    pub const OFFSET_THREAD_POINTER: usize =
        offset_of!(Thread, kernel) + offset_of!(LinuxThread, thread_pointer);
    /// Of what the layer above keeps.
    pub const OFFSET_ROOM: usize = offset_of!(Thread, kernel) + offset_of!(LinuxThread, room);
}

/// For debuggers.
impl LinuxActivation {
    /// Offset in an [`Activation`] of the 32-bit word of its kernel thread's id.
    pub const OFFSET_TID: usize = offset_of!(Activation, kernel) + offset_of!(LinuxActivation, tid);
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
        self.watched_dispatches.store(u64::MAX, Ordering::Relaxed);
        self.waiting.store(Sleeps::Nowhere, Ordering::Relaxed);
        self.thread_pointer.store(thread_pointer, Ordering::Relaxed);
        self.mask.store(0, Ordering::Relaxed);
        self.at_hand.store(0, Ordering::Relaxed);
        self.looks.store(false, Ordering::Relaxed);
        self.slack.store(u64::MAX, Ordering::Relaxed);
        self.name[0].store(0, Ordering::Relaxed);
        self.cpu_mark.store(0, Ordering::Relaxed);
    }
}

/// What the kernel would keep with a thread, were it a kernel thread, as far as the backend itself uses it. The rest is
/// in [`Room`].
#[derive(Default)]
pub struct LinuxThread {
    /// The thread pointer (FS base).
    pub thread_pointer: AtomicUsize,
    /// What the program has put into the register that is the activation's pseudo-register (the GS base), or 0: it
    /// has put nothing there. True while the thread is in the runtime.
    pub program_base: AtomicUsize,
    /// Blocked signals.
    pub mask: AtomicU64,
    /// Its activation need not have that mask. The layer above keeps what comes and is blocked.
    pub has_lazy_mask: AtomicBool,
    /// It was stopped in code that is a critical section, and entered one for that
    /// ([`critical_code`](crate::activation::critical_code)).
    pub(crate) in_critical_code: AtomicBool,
    /// Signals sent to the thread that it has not seen yet.
    pub pending: AtomicU64,
    /// Whether handlers ran since the current system call began.
    pub seen: AtomicU32,
    /// Processor time used, up to when it last stopped running ([`cpu_time`]).
    pub cpu_ns: AtomicU64,
    /// Its timer slack.
    pub slack: Slack,
    /// The processors that it has asked for.
    pub asked: Asked,
    /// Whether it blocks or parks in a wait for several descriptors.
    pub(crate) choice: Choice,
    /// Its place in the list of the first descriptor that it waits for.
    pub(crate) node: Node,
    /// What the layer above keeps.
    pub room: Room,
}
