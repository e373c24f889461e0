//! What others may read of a program while it runs: the counters of its runtime.
//!
//! 1. They are in a segment of System V shared memory (shmget(2)) of [`SIZE`] bytes without a key, of the user as whom
//!    the program started its runtime. It is marked for removal as soon as it is attached, so it goes with the program.
//!    Linux lets others attach it until then, and lists it in /proc/sysvipc/shm with the process that made it.
//! 2. The program writes the version in [`Live::head`] last.
//! 3. Each word is read for itself. All are hints: whoever reads bounds them.
//! 4. Whoever may write asks for a timeline ([`crate::trace`]) by [`Live::directory`], then [`Live::timeline`], then signals
//!    that have the program look. A program that runs the runtime of another version cannot be asked: the word is 0.
//!
//! The runtime's own counters are these words (`upcall_core::stats::Shared`), so nothing is done for those who look.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::Head;

/// What the segment begins with.
pub const MAGIC: u64 = 0x6576_696c_7075_0001;
/// The version of this layout.
pub const VERSION: u32 = 1;
/// Of the segment, in bytes, as it is listed. No other segment is likely to have this size.
pub const SIZE: usize = size_of::<Live>();

/// Bytes of [`Live::directory`].
pub const DIRECTORY: usize = 40;

/// What [`Live::timeline`] says.
pub mod timeline {
    /// The program may be asked for a timeline.
    pub const MAY_BE_ASKED: u32 = 1;
    /// Somebody asks.
    pub const ASKED: u32 = 2;
    /// Events are noted, in a file that the program has open.
    pub const NOTED: u32 = 3;
    /// There can be no file: plus errno(3).
    pub const REFUSED: u32 = 0x1_0000;
}

/// The counters.
#[repr(C)]
#[derive(Debug)]
pub struct Live {
    /// What it is.
    pub head: Head,
    /// Virtual processors.
    pub nr_vps: AtomicU32,
    /// See [`timeline`].
    pub timeline: AtomicU32,
    /// Where a file of events is wanted: an absolute path, with zeros at its end. It must be the user's, and nobody else's.
    pub directory: [AtomicU32; DIRECTORY / 4],
    /// Threads created; the first one does not count.
    pub created: AtomicU64,
    /// Threads now.
    pub threads: AtomicU64,
    /// The most there ever were.
    pub threads_peak: AtomicU64,
    /// Activations now.
    pub activations: AtomicU64,
    /// The most there ever were.
    pub activations_peak: AtomicU64,
    /// Upcalls: a thread blocked in the kernel, and its virtual processor went to another activation.
    pub blocked: AtomicU64,
    /// Upcalls: such a thread came back. What `blocked` is more than this is blocked now.
    pub returned: AtomicU64,
    /// Upcalls: threads that were parked on the poller can run again.
    pub delivered: AtomicU64,
    /// Upcalls: an activation was preempted for another one of its virtual processor.
    pub displaced: AtomicU64,
    /// Upcalls: an idle virtual processor was put to work.
    pub rung: AtomicU64,
    /// Upcalls: a processor was taken for another program.
    pub taken: AtomicU64,
    /// Threads preempted at the end of their time slice.
    pub preempted: AtomicU64,
    /// Threads stolen from another virtual processor's ready list.
    pub stolen: AtomicU64,
    /// Activations taken from the pool instead of being created.
    pub recycled: AtomicU64,
    /// Activations that the kernel refused.
    pub refused: AtomicU64,
    /// Threads parked on the poller.
    pub polled: AtomicU64,
}

const _: () = {
    assert!(SIZE == 192);
    assert!(offset_of!(Live, nr_vps) == 16);
    assert!(offset_of!(Live, created) == 64);
    assert!(offset_of!(Live, blocked) == 104);
    assert!(offset_of!(Live, polled) == 184);
};
