//! Mapping and protecting memory with system calls of our own.
//!
//! Code is written while it is also executable: the writing thread, or another one, may be executing the same page (a stub,
//! or libc's code around it). Then the page gets its old protection back at once.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ground::entry::raw_syscall;

/// A page's bytes.
pub const PAGE: usize = 4096;

/// Returns the pages in which the range lies.
pub fn whole_pages(range: &Range<usize>) -> Range<usize> {
    range.start & !(PAGE - 1)..range.end.next_multiple_of(PAGE)
}

fn result(value: isize) -> Result<usize, i32> {
    if (-4095..0).contains(&value) {
        Err(-value as i32)
    } else {
        Ok(value as usize)
    }
}

fn protect(range: &Range<usize>, protection: i32) -> Result<(), i32> {
    let pages = whole_pages(range);
    let args = [
        pages.start as u64,
        pages.len() as u64,
        protection as u64,
        0,
        0,
        0,
    ];
    // SAFETY: the callers pass code that they own, and only ever add to the rights that it has,
    // or restore them.
    result(unsafe { raw_syscall(libc::SYS_mprotect, args) }).map(drop)
}

/// Runs `write` while what is in `range` can be written, then gives it back `protection`: where the
/// kernel does not do that, for want of memory, it stays writable, and is written all the same.
/// The error, an error number, says that nothing was written.
pub fn while_writable<T>(
    range: &Range<usize>,
    protection: i32,
    write: impl FnOnce() -> T,
) -> Result<T, i32> {
    if is_open(range) {
        return Ok(write());
    }
    protect(range, protection | libc::PROT_WRITE)?;
    let value = write();
    let _ = protect(range, protection);
    Ok(value)
}

/// Ranges of pages that stay writable ([`Open`]); 0 where there is none.
static OPEN: [[AtomicUsize; 2]; 2] = [const { [const { AtomicUsize::new(0) }; 2] }; 2];

fn is_open(range: &Range<usize>) -> bool {
    let pages = whole_pages(range);
    OPEN.iter().any(|[from, to]| {
        from.load(Ordering::Relaxed) <= pages.start && pages.end <= to.load(Ordering::Relaxed)
    })
}

/// Code that can be written until this is dropped, and then gets its protection back. [`while_writable`] need not change it
/// meanwhile, which takes several microseconds each time.
pub struct Open {
    range: Range<usize>,
    protection: i32,
    place: &'static [AtomicUsize; 2],
}

impl Open {
    /// Opens the code in `range`, whose protection is `protection`. For start-up, while there is one thread. `None`: the
    /// kernel refuses, or two are open already; then [`while_writable`] does what it does.
    pub fn new(range: Range<usize>, protection: i32) -> Option<Self> {
        let place = OPEN
            .iter()
            .find(|[_, to]| to.load(Ordering::Relaxed) == 0)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        protect(&range, rights).ok()?;
        let pages = whole_pages(&range);
        place[0].store(pages.start, Ordering::Relaxed);
        place[1].store(pages.end, Ordering::Relaxed);
        Some(Self {
            range,
            protection,
            place,
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        for word in self.place {
            word.store(0, Ordering::Relaxed);
        }
        let _ = protect(&self.range, self.protection);
    }
}

/// Maps `length` bytes of executable memory (not yet writable) at exactly `address`, if nothing
/// is there. The error is an error number.
pub fn map_code_at(address: usize, length: usize) -> Result<(), i32> {
    // What was writable counts as reserved from then on: without the flag a part that was would be a mapping of its own.
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let args = [
        address as u64,
        length as u64,
        (libc::PROT_READ | libc::PROT_EXEC) as u64,
        flags as u64,
        u64::MAX,
        0,
    ];
    // SAFETY: NOREPLACE never touches an existing mapping.
    let mapped = result(unsafe { raw_syscall(libc::SYS_mmap, args) })?;
    if mapped == address {
        return Ok(());
    }
    // Before Linux 4.17 the flag was unknown and the address a hint.
    // SAFETY: the mapping was just made and nobody knows it.
    unsafe { raw_syscall(libc::SYS_munmap, [mapped as u64, length as u64, 0, 0, 0, 0]) };
    Err(libc::EEXIST)
}

/// Maps a stack of `length` bytes somewhere, whose lowest page cannot be touched. The error is an
/// error number.
pub fn map_stack(length: usize) -> Result<usize, i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let args = [0, length as u64, rights as u64, flags as u64, u64::MAX, 0];
    // SAFETY: a new mapping somewhere, and its first page, which nobody uses yet.
    unsafe {
        let stack = result(raw_syscall(libc::SYS_mmap, args))?;
        let guard = [stack as u64, PAGE as u64, libc::PROT_NONE as u64, 0, 0, 0];
        result(raw_syscall(libc::SYS_mprotect, guard))?;
        Ok(stack)
    }
}

/// Copies `bytes` to `address` without calling anything (memcpy may be in the page that is
/// being changed).
///
/// # Safety
/// The target is writable, and nobody executes the bytes meanwhile.
pub unsafe fn store(address: usize, bytes: &[u8]) {
    #[repr(C, packed)]
    struct Word(u64);
    let (words, rest) = bytes.as_chunks();
    let at_rest = address + size_of_val(words);
    for (i, word) in words.iter().enumerate() {
        let word = Word(u64::from_le_bytes(*word));
        // SAFETY: the caller's promise; a packed word may lie anywhere.
        unsafe { ((address + 8 * i) as *mut Word).write_volatile(word) };
    }
    for (i, byte) in rest.iter().enumerate() {
        // SAFETY: as above.
        unsafe { ((at_rest + i) as *mut u8).write_volatile(*byte) };
    }
}
