//! Gets memory from the kernel, and gives it back if the runtime does not start: the program may try to start it again,
//! any number of times.
//!
//! Everything mapped between [`attempt`] and [`Attempt::succeeds`] is noted. The process has one kernel thread then, so
//! nobody else maps memory.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use upcall_core::Errno;

use crate::sys::{self, error};

/// More than a start maps; what goes beyond stays.
const ROOM: usize = 64;

static NOTED: [[AtomicUsize; 2]; ROOM] = [const { [const { AtomicUsize::new(0) }; 2] }; ROOM];
/// How many are noted; [`IDLE`] outside of an attempt.
static COUNT: AtomicUsize = AtomicUsize::new(IDLE);
const IDLE: usize = usize::MAX;
/// How many of an earlier attempt the kernel did not take back: the first of those that are noted.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Private memory, zeroed, of which only touched pages cost anything.
pub(crate) fn map(length: usize) -> Result<usize, Errno> {
    map_with(libc::MAP_NORESERVE, length)
}

/// As [`map`], but never one mapping with what [`map`] gives, by a flag in which they differ. Debuggers that write core
/// files give a mapping up at the first page that they cannot read, such as a guard.
pub(crate) fn map_apart(length: usize) -> Result<usize, Errno> {
    map_with(0, length)
}

fn map_with(flag: i32, length: usize) -> Result<usize, Errno> {
    // SAFETY: a new mapping somewhere.
    let answer = unsafe {
        sys!(
            sys::SYS_mmap,
            0,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flag,
            usize::MAX,
            0
        )
    };
    if let Some(number) = error(answer) {
        return Err(Errno(number));
    }
    note(answer as usize, length);
    Ok(answer as usize)
}

/// Puts pages there in one call that would come one by one, by faults. Where the kernel cannot do that, they do.
pub fn populate(pages: Range<usize>) {
    // SAFETY: the pages' contents stay as they are.
    unsafe {
        sys!(
            sys::SYS_madvise,
            pages.start,
            pages.len(),
            libc::MADV_POPULATE_WRITE
        )
    };
}

/// Something was mapped.
pub(crate) fn note(address: usize, length: usize) {
    let count = COUNT.load(Ordering::Relaxed);
    if count == IDLE {
        return;
    }
    if let Some([at, size]) = NOTED.get(count) {
        at.store(address, Ordering::Relaxed);
        size.store(length, Ordering::Relaxed);
        COUNT.store(count + 1, Ordering::Relaxed);
    }
}

/// A start of a runtime; unless it succeeds, its memory is given back when this is dropped.
#[derive(Debug)]
pub struct Attempt(());

/// Begins a start. The process has one kernel thread, and one start at a time.
pub fn attempt() -> Attempt {
    let kept = give_back(KEPT.load(Ordering::Relaxed));
    COUNT.store(kept, Ordering::Relaxed);
    Attempt(())
}

impl Attempt {
    /// The runtime is used from now on, whatever else fails.
    pub fn succeeds(self) {
        COUNT.store(IDLE, Ordering::Relaxed);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let count = COUNT.swap(IDLE, Ordering::Relaxed);
        if count == IDLE {
            return;
        }
        give_back(count);
    }
}

/// Where the registry of the turns between programs is mapped; 0: nowhere.
pub(crate) static REGISTRY: AtomicUsize = AtomicUsize::new(0);

/// What is mapped there, if anything, is the registry no more.
pub(crate) fn let_go(place: usize) {
    let _ = REGISTRY.compare_exchange(place, 0, Ordering::SeqCst, Ordering::Relaxed);
}

/// Gives back the first of those that are noted. Returns how many the kernel did not take, which are the first
/// then.
fn give_back(count: usize) -> usize {
    let mut kept = 0;
    for [at, size] in &NOTED[..count] {
        let (address, length) = (at.load(Ordering::Relaxed), size.load(Ordering::Relaxed));
        let_go(address);
        // SAFETY: mapped for a runtime that nobody has seen and whose parts are not used any more.
        if error(unsafe { sys!(libc::SYS_munmap, address, length) }).is_some() {
            NOTED[kept][0].store(address, Ordering::Relaxed);
            NOTED[kept][1].store(length, Ordering::Relaxed);
            kept += 1;
        }
    }
    KEPT.store(kept, Ordering::Relaxed);
    kept
}
