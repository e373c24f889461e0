//! The file in which a program that is traced notes what happens, and which `upcall trace` reads: a [`Head`], then *rings*.
//!
//! Each activation has a ring, and writes to it alone, without a lock: a [`RingHead`], then [`RECORDS`] records, of which new
//! ones replace the oldest. The first ring is everybody's: kernel threads that are no activations write there, and what names
//! threads is there, so that it is not replaced soon.
//!
//! Protocol:
//! 1. A writer fills a record, stores its [`Record::word`] last, and then counts it in [`RingHead::written`]. In the first ring,
//!    which has many writers, it counts first.
//! 2. A reader reads `written`, then records, then `written` again: what may have been replaced meanwhile is not believed. A
//!    record whose number is another one's is not written yet.
//!
//! The file is the program's memory and stays when the program ends, however it does. A reader believes nothing of it: every
//! number may be wrong.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// What the file begins with.
pub const MAGIC: u64 = 0x6563_6172_7475_0001;
/// The version of the layout and of the numbers.
pub const VERSION: u32 = 1;
/// Bytes before the first ring, and of a ring before its first record.
pub const PAGE: usize = 4096;
/// Records in a ring, a power of two.
pub const RECORDS: usize = 1 << 14;
/// Bytes of a ring.
pub const RING: usize = PAGE + RECORDS * size_of::<Record>();

/// The file's first page.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    /// [`MAGIC`]. Written last, when the first ring is there.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// When it began, in nanoseconds of the monotonic clock.
    pub began_ns: AtomicU64,
    /// How many rings there are.
    pub nr_rings: AtomicU32,
    /// Set by the reader: nothing more is to be noted.
    pub stop: AtomicU32,
    /// Activations for which there was no ring: no memory, or no room.
    pub without_ring: AtomicU32,
    /// The virtual processors.
    pub nr_vps: AtomicU32,
    /// The command's name, with zeros at its end.
    pub name: [AtomicU64; 2],
}

/// The first page of a ring.
#[repr(C)]
#[derive(Debug)]
pub struct RingHead {
    /// Records that were ever written.
    pub written: AtomicU64,
    /// The id of the kernel thread that writes, or 0.
    pub tid: AtomicU32,
}

/// An event.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// When, in nanoseconds of the monotonic clock.
    pub time: AtomicU64,
    /// Its number in the ring, plus one, in the low 32 bits; then 16 bits of the virtual processor's index, and 16 of what
    /// has happened.
    pub word: AtomicU64,
    /// The address of the thread, or 0.
    pub thread: AtomicU64,
    /// See [`what`].
    pub argument: AtomicU64,
}

const _: () = assert!(size_of::<Head>() <= PAGE && size_of::<RingHead>() <= PAGE);
const _: () = assert!(size_of::<Record>() == 32 && RING.is_multiple_of(PAGE));

/// What the word of a record is.
pub const fn word(number: u64, vp: u32, what: u32) -> u64 {
    (number.wrapping_add(1) & 0xffff_ffff) | ((vp as u64 & 0xffff) << 32) | ((what as u64) << 48)
}

/// What has happened: those of `upcall_core::event::What`, and what the backend and the library in the program add.
pub mod what {
    /// A thread is new, and ready.
    pub const CREATED: u32 = 1;
    /// A thread has ended.
    pub const ENDED: u32 = 2;
    /// A thread waits. The argument: an address, and in the low two bits what is there ([`super::wait`]).
    pub const BLOCKED: u32 = 3;
    /// A thread is ready again.
    pub const UNBLOCKED: u32 = 4;
    /// A thread is ready, and lets others go first.
    pub const YIELDED: u32 = 5;
    /// A thread is ready, and was stopped in favour of another.
    pub const PREEMPTED: u32 = 6;
    /// A thread runs on the activation.
    pub const RUNS: u32 = 7;
    /// The thread goes on where it was.
    pub const RESUMES: u32 = 8;
    /// The thread goes into a system call. The argument: its number in the low 32 bits, its first argument in the others.
    pub const CALLS: u32 = 9;
    /// It is back.
    pub const RETURNS: u32 = 10;
    /// Upcall: the activation with the thread has blocked. The argument: 1 in an announced system call.
    pub const ABSENT: u32 = 11;
    /// Upcall: the activation with the thread was preempted for one that came back.
    pub const DISPLACED: u32 = 12;
    /// The virtual processor has nothing to run.
    pub const IDLE: u32 = 13;
    /// It is not idle any more.
    pub const BUSY: u32 = 14;
    /// Upcall: an idle virtual processor is put to work.
    pub const RUNG: u32 = 15;
    /// Upcall: the virtual processor's processor was taken.
    pub const TAKEN: u32 = 16;
    /// Upcall: it is back.
    pub const ADDED: u32 = 17;
    /// The thread was taken from the ready list of the virtual processor.
    pub const STOLEN: u32 = 18;
    /// The activation waits for descriptors and deadlines.
    pub const POLLS: u32 = 19;
    /// It does not any more.
    pub const POLLED: u32 = 20;

    /// The virtual processor is bound to the processor in the argument.
    pub const PLACED: u32 = 32;
    /// A kernel thread begins to write to the ring. The argument: its id.
    pub const BEGAN: u32 = 33;
    /// A new thread has the id in the argument.
    pub const IDENTITY: u32 = 34;
    /// The first eight bytes of the thread's name.
    pub const NAME: u32 = 35;
    /// The others.
    pub const NAME_REST: u32 = 36;
}

/// What a thread waits for: the low two bits of the argument of [`what::BLOCKED`].
pub mod wait {
    /// A word at the address; if that is 0, what is not known.
    pub const WORD: u64 = 0;
    /// A deadline.
    pub const SLEEP: u64 = 1;
    /// The end of another thread.
    pub const END: u64 = 2;
    /// A descriptor: its number from bit 8 on; bit 2: to read, bit 3: to write.
    pub const DESCRIPTOR: u64 = 3;
}
