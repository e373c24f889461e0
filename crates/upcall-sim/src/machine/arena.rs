//! The memory of a run: one range at one address, so that addresses depend on nothing but the seed.
//!
//! Every run finds the range zeroed. Between runs the pages that are present are cleared. Giving them back to the kernel
//! costs a page fault each in the next run, which was two thirds of a run's time.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr;

/// Where the range begins in every process, in a part of the address space that nobody uses by itself.
const PLACE: usize = 0x1000_0000_0000;
const LENGTH: usize = 1 << 30;
const PAGE: usize = 4096;
/// More pages than this are given back: clearing those that one large run has touched would cost every
/// run after it.
const MOST_CLEARED: usize = 4096;

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
        let start: *mut u8 = ptr::with_exposed_provenance_mut(self.start);
        match touched(self.start, length) {
            Ok(pages) if pages.len() <= MOST_CLEARED => {
                for page in pages {
                    // SAFETY: in our own range, which nobody uses between runs.
                    unsafe { ptr::write_bytes(start.add(page * PAGE), 0, PAGE) };
                }
            }
            _ => {
                // SAFETY: as above.
                unsafe { libc::madvise(start.cast(), length, libc::MADV_DONTNEED) };
            }
        }
    }
}

/// Which pages of a range are in memory or swapped out: the others are zeroed. The file is that of the
/// process that opens it, and runs are made in children.
fn touched(start: usize, length: usize) -> io::Result<Vec<usize>> {
    const ENTRY: usize = 8;
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    let mut entries = vec![0; length / PAGE * ENTRY];
    let at = (start / PAGE * ENTRY) as u64;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, at)?;
    let (entries, _) = entries.as_chunks::<ENTRY>();
    let is_there = |entry: &[u8; ENTRY]| u64::from_ne_bytes(*entry) & PRESENT_OR_SWAPPED != 0;
    let pages = entries.iter().enumerate();
    Ok(pages
        .filter(|(_, entry)| is_there(entry))
        .map(|(page, _)| page)
        .collect())
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
