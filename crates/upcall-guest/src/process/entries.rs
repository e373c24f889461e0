//! What a fork copies of code. See docs/adr/0032.
//!
//! Of a mapping of a file the kernel copies no page-table entries at a fork if no page of it was written: a child faults in
//! what it needs. Code that was rewritten has pages that were written, so all its entries are copied, and taken down at each
//! child's end. There are hundreds, since the kernel maps sixteen pages around each one that is touched. So a process that
//! forks again and again gives back the entries of the pages that nobody has written. What it still uses comes back with
//! its next faults, once.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use upcall_linux::sys;

use crate::ground::entry::raw_syscall;
use crate::ground::file::File;
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
    if number % OF == AT && GUEST.runtime().is_none() && !sys::is_filtered() {
        give_all_back();
    }
}

#[cold]
fn give_all_back() {
    let Some(map) = page_map() else {
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

/// Gives back the entries of the pages of this code that are the file's own.
fn give_back(map: &File, text: &Range<usize>) {
    let mut run = text.start..text.start;
    let mut has_any = false;
    let mut bytes = [0; 64 * WORD];
    let mut at = text.start;
    while at < text.end {
        let count = ((text.end - at) / PAGE * WORD).min(bytes.len());
        let read = map.read_at(at / PAGE * WORD, &mut bytes[..count]);
        for page in words(&bytes[..read]) {
            if is_written(page) {
                run.end = at;
                drop_run(&run, has_any);
                run.start = at + PAGE;
                has_any = false;
            } else {
                has_any |= is_there(page);
            }
            at += PAGE;
        }
        if read < WORD {
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

/// Opens proc_pid_pagemap(5), which has a word for each page.
fn page_map() -> Option<File> {
    File::open(libc::AT_FDCWD, b"/proc/self/pagemap\0")
}

const WORD: usize = size_of::<u64>();

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().copied().map(u64::from_ne_bytes)
}

/// What a page's word says of it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    const PAGES: usize = 150;
    const WRITTEN: [usize; 4] = [0, 63, 64, 149];

    /// A file's pages, of which the process has written some, and others nobody has touched.
    fn mapped() -> Range<usize> {
        let path = std::env::temp_dir().join(format!("entries-{}", std::process::id()));
        let mut file = fs::File::create_new(&path).expect("a file");
        file.write_all(&[7; PAGES * PAGE]).expect("its contents");
        let file = fs::File::open(&path).expect("the file");
        fs::remove_file(&path).expect("its name");
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

    fn there(range: &Range<usize>) -> Vec<bool> {
        let map = page_map().expect("our own map of pages");
        let mut bytes = vec![0; PAGES * WORD];
        let read = map.read_at(range.start / PAGE * WORD, &mut bytes);
        assert_eq!(read, bytes.len());
        words(&bytes).map(is_there).collect()
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
        assert_eq!(there(&range), [true; PAGES]);
        give_back(&page_map().expect("our own map of pages"), &range);
        let there = there(&range);
        assert!((0..PAGES).all(|page| there[page] == WRITTEN.contains(&page)));
        assert!((0..PAGES).all(|page| byte(page) == wanted(page)));
    }
}
