//! Puts all activations into one range of addresses, so that the address of one can be told from any other value.
//!
//! The pseudo-register may be a register that a program writes too (GS on x86-64). So its value is believed only if it is
//! in this range, or if it is one of the *marks* that the layer above gives to kernel threads which are no activations.
//!
//! The runtime reserves the range when it makes its first activations, and makes pages of it usable as it grows. If the
//! kernel does not give so many addresses (RLIMIT_AS, locked memory), the first piece is all there is.
//!
//! Rejected: looking into a table at each entry. That costs time, and the range does not.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use upcall_core::Errno;

use crate::sys::{self, error, memory};

/// Room for more activations than a kernel has kernel threads by default.
const ROOM: usize = 64 << 20;

/// A range of addresses: where it begins, and its length. Written while there is one kernel thread.
struct Place {
    start: AtomicUsize,
    length: AtomicUsize,
}

impl Place {
    const fn none() -> Self {
        Place {
            start: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
        }
    }

    #[inline(always)]
    fn contains(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Relaxed);
        address.wrapping_sub(start) < self.length.load(Ordering::Relaxed)
    }

    fn set(&self, range: Range<usize>) {
        self.start.store(range.start, Ordering::Relaxed);
        self.length.store(range.len(), Ordering::Relaxed);
    }
}

static RESERVED: Place = Place::none();
static MARKS: Place = Place::none();
/// Those of kernel threads to which threads are bound.
static BOUND_MARKS: Place = Place::none();
/// How much of the range is in use. Changed under the lock of the slab.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Whether the value leads to an activation of this runtime.
#[inline(always)]
pub fn contains(value: usize) -> bool {
    RESERVED.contains(value)
}

/// Whether the value leads to a mark.
pub fn is_mark(value: usize) -> bool {
    MARKS.contains(value) || BOUND_MARKS.contains(value)
}

/// Addresses for the marks of kernel threads to which threads are bound, without memory. Once, under the caller's lock.
pub fn reserve_bound_marks(length: usize) -> Result<usize, Errno> {
    if BOUND_MARKS.length.load(Ordering::Relaxed) == 0 {
        let start = reserve(length)?;
        memory::note(start, length);
        // The length last: others may look at it now.
        BOUND_MARKS.start.store(start, Ordering::Relaxed);
        BOUND_MARKS.length.store(length, Ordering::Release);
    }
    Ok(BOUND_MARKS.start.load(Ordering::Relaxed))
}

/// Makes a part of what was reserved usable.
pub fn open_marks(start: usize, length: usize) -> Result<(), Errno> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller's part of a reservation.
    match error(unsafe { sys!(sys::SYS_mprotect, start, length, rights) }) {
        Some(number) => Err(Errno(number)),
        None => Ok(()),
    }
}

/// Notes where the marks are. At start, while there is one kernel thread.
pub fn note_marks(range: Range<usize>) {
    MARKS.set(range);
}

/// The process has no runtime: what the range was for belongs to the parent's, or to one that did not start.
pub fn forget() {
    RESERVED.set(0..0);
    USED.store(0, Ordering::Relaxed);
}

/// Memory for more activations, zeroed.
pub(crate) fn map(length: usize) -> Result<usize, Errno> {
    if RESERVED.length.load(Ordering::Relaxed) == 0 {
        let room = [ROOM, length];
        let reserved = room
            .iter()
            .find_map(|&room| Some((reserve(room).ok()?, room)));
        let (start, room) = reserved.ok_or(Errno(libc::ENOMEM))?;
        memory::note(start, room);
        RESERVED.set(start..start + room);
    }
    let used = USED.load(Ordering::Relaxed);
    if used + length > RESERVED.length.load(Ordering::Relaxed) {
        return Err(Errno(libc::EAGAIN));
    }
    let start = RESERVED.start.load(Ordering::Relaxed) + used;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the part of the reservation that nobody has.
    match error(unsafe { sys!(sys::SYS_mprotect, start, length, rights) }) {
        Some(number) => Err(Errno(number)),
        None => {
            USED.store(used + length, Ordering::Relaxed);
            Ok(start)
        }
    }
}

/// Addresses without memory.
fn reserve(length: usize) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping somewhere.
    let answer = unsafe {
        sys!(
            sys::SYS_mmap,
            0,
            length,
            libc::PROT_NONE,
            flags,
            usize::MAX,
            0
        )
    };
    match error(answer) {
        Some(number) => Err(Errno(number)),
        None => Ok(answer as usize),
    }
}
