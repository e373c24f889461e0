//! What a fork copies of code. See docs/adr/0032.
//!
//! Of a mapping of a file the kernel copies no page-table entries at a fork if no page of it was written: a child faults in
//! what it needs. Code that was rewritten has pages that were written, so all its entries are copied, and taken down at each
//! child's end. There are hundreds, since the kernel maps sixteen pages around each one that is touched. So a process that
//! forks again and again gives back the entries of the pages that nobody has written. What it still uses comes back with
//! its next faults, once.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use upcall_linux::descriptors;

use crate::ground::entry::raw_syscall;
use crate::ground::memory::PAGE;
use crate::ground::state::GUEST;
use crate::rewrite::patch;

/// At which of so many forks entries are given back: a process that forks once would lose by it.
const AT: u32 = 2;
const OF: u32 = 64;

/// The forks of this process. It is on the page of what else a fork writes.
#[unsafe(link_section = ".data")]
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called before a fork.
pub fn before_fork() {
    let number = FORKS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if number % OF == AT && GUEST.runtime().is_none() && !is_filtered() {
        give_all_back();
    }
}

#[cold]
fn give_all_back() {
    let Some(map) = PageMap::open() else {
        return;
    };
    for text in patch::texts() {
        give_back(&map, text);
    }
}

/// Called in the child.
pub fn forget() {
    FORKS.store(0, Ordering::Relaxed);
}

/// Returns true if a filter may end the process for a call that it does not expect.
fn is_filtered() -> bool {
    // SAFETY: asks only.
    let mode = unsafe {
        raw_syscall(
            libc::SYS_prctl,
            [libc::PR_GET_SECCOMP as u64, 0, 0, 0, 0, 0],
        )
    };
    mode != 0
}

/// Gives back the entries of the pages of this code that are the file's own.
fn give_back(map: &PageMap, text: &Range<usize>) {
    let mut run = text.start..text.start;
    let mut has_any = false;
    let mut pages = [0; 64];
    let mut at = text.start;
    while at < text.end {
        let count = ((text.end - at) / PAGE).min(pages.len());
        let read = map.read(at, &mut pages[..count]);
        for page in &pages[..read] {
            if is_written(*page) {
                run.end = at;
                drop_run(&run, has_any);
                run.start = at + PAGE;
                has_any = false;
            } else {
                has_any |= is_there(*page);
            }
            at += PAGE;
        }
        if read == 0 {
            break;
        }
    }
    run.end = at;
    drop_run(&run, has_any);
}

fn drop_run(run: &Range<usize>, has_any: bool) {
    if has_any {
        let [start, length] = [run.start, run.len()].map(|word| word as u64);
        let advice = libc::MADV_DONTNEED as u64;
        // SAFETY: these pages are the file's own, and read from there again when they are touched. The kernel refuses where
        // they are locked.
        unsafe { raw_syscall(libc::SYS_madvise, [start, length, advice, 0, 0, 0]) };
    }
}

/// What a page's word in proc_pid_pagemap(5) says of it.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// Returns true if there is an entry.
fn is_there(page: u64) -> bool {
    page & (PRESENT | SWAPPED | OF_FILE) != 0
}

/// Returns true if a page is the process's own: nobody else could give back what is in it.
fn is_written(page: u64) -> bool {
    is_there(page) && page & (PRESENT | SWAPPED | OF_FILE) != PRESENT | OF_FILE
}

/// `/proc/self/pagemap`, open.
struct PageMap(i64);

impl PageMap {
    fn open() -> Option<Self> {
        let _opening = descriptors::opening();
        let path = c"/proc/self/pagemap".as_ptr() as u64;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let directory = libc::AT_FDCWD as u64;
        // SAFETY: reads the path.
        let file = unsafe { raw_syscall(libc::SYS_openat, [directory, path, flags, 0, 0, 0]) };
        (file >= 0).then_some(Self(file as i64))
    }

    /// Reads the words of the pages from `address` on. Returns how many.
    fn read(&self, address: usize, pages: &mut [u64]) -> usize {
        let room = [pages.as_mut_ptr() as u64, size_of_val(pages) as u64];
        let offset = (address / PAGE * size_of::<u64>()) as u64;
        // SAFETY: writes no more than there is room for.
        let length = unsafe {
            raw_syscall(
                libc::SYS_pread64,
                [self.0 as u64, room[0], room[1], offset, 0, 0],
            )
        };
        usize::try_from(length).map_or(0, |length| length / size_of::<u64>())
    }
}

impl Drop for PageMap {
    fn drop(&mut self) {
        // SAFETY: our own file.
        unsafe { raw_syscall(libc::SYS_close, [self.0 as u64, 0, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    const PAGES: usize = 150;
    const WRITTEN: [usize; 4] = [0, 63, 64, 149];

    /// A file's pages, of which the process has written some, and others nobody has touched.
    fn mapped() -> Range<usize> {
        let path = std::env::temp_dir().join(format!("entries-{}", std::process::id()));
        let mut file = File::create_new(&path).expect("a file");
        file.write_all(&[7; PAGES * PAGE]).expect("its contents");
        let file = File::open(&path).expect("the file");
        std::fs::remove_file(&path).expect("its name");
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let descriptor = file.as_raw_fd();
        // SAFETY: a new mapping somewhere.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE;
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * PAGE,
                rights,
                flags,
                descriptor,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let start = start as usize;
        for page in WRITTEN {
            // SAFETY: in the mapping.
            unsafe { ((start + page * PAGE) as *mut u8).write_volatile(9) };
        }
        start..start + PAGES * PAGE
    }

    fn words(range: &Range<usize>) -> Vec<u64> {
        let map = PageMap::open().expect("our own map of pages");
        let mut words = vec![0; PAGES];
        assert_eq!(map.read(range.start, &mut words), PAGES);
        words
    }

    #[test]
    fn what_was_written_stays_and_the_rest_comes_back_from_the_file() {
        let range = mapped();
        let byte = |page: usize| {
            // SAFETY: in the mapping.
            unsafe { ((range.start + page * PAGE) as *const u8).read_volatile() }
        };
        let wanted = |page| if WRITTEN.contains(&page) { 9 } else { 7 };
        assert!((0..PAGES).all(|page| byte(page) == wanted(page)));
        assert!(words(&range).into_iter().all(is_there));
        give_back(&PageMap::open().expect("our own map of pages"), &range);
        let there: Vec<_> = words(&range).into_iter().map(is_there).collect();
        assert!((0..PAGES).all(|page| there[page] == WRITTEN.contains(&page)));
        assert!((0..PAGES).all(|page| byte(page) == wanted(page)));
    }
}
