//! The memory of a run: one range at one address, so that addresses do not depend on anything but
//! the seed, and given back to the kernel between runs, so that every run finds it zeroed.

use std::cell::Cell;
use std::ptr;

/// Where the range begins in every process, in a part of the address space that nobody uses by itself.
const PLACE: usize = 0x1000_0000_0000;
const LENGTH: usize = 1 << 30;
const PAGE: usize = 4096;

thread_local! {
    /// Whether this kernel thread has the range: another one of the process cannot have it too.
    static RANGE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The memory of one run.
pub(crate) struct Arena {
    start: usize,
    next: Cell<usize>,
}

impl Arena {
    pub(crate) fn new() -> Self {
        let start = RANGE.get().unwrap_or_else(map);
        RANGE.set(Some(start));
        Arena {
            start,
            next: Cell::new(start),
        }
    }

    /// Zeroed memory, page-aligned; null if there is none left.
    pub(crate) fn take(&self, length: usize) -> *mut u8 {
        let at = self.next.get();
        let length = length.next_multiple_of(PAGE);
        if at + length > self.start + LENGTH {
            return ptr::null_mut();
        }
        self.next.set(at + length);
        ptr::with_exposed_provenance_mut(at)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let length = self.next.get() - self.start;
        // SAFETY: our own range, which nobody uses between runs.
        unsafe {
            let start = ptr::with_exposed_provenance_mut(self.start);
            libc::madvise(start, length, libc::MADV_DONTNEED);
        }
    }
}

/// Maps the range, elsewhere only if somebody else of the process has it.
fn map() -> usize {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping; nothing is replaced.
    unsafe {
        let wish = ptr::without_provenance_mut(PLACE);
        let range = libc::mmap(wish, LENGTH, protection, kind, -1, 0);
        assert_ne!(range, libc::MAP_FAILED, "no memory for the machine");
        // Huge pages would be zeroed whole for the few pages that a run touches.
        libc::madvise(range, LENGTH, libc::MADV_NOHUGEPAGE);
        range.cast::<u8>().expose_provenance()
    }
}
