//! Mapping and protecting memory with system calls of our own.
//!
//! Code is written while it is also executable: the writing thread, or another one, may be executing the same page (a stub,
//! or libc's code around it). Then the page gets its old protection back at once.

use std::ops::Range;

use crate::ground::entry::raw_syscall;

const PAGE: usize = 4096;

fn pages(range: &Range<usize>) -> (usize, usize) {
    let start = range.start & !(PAGE - 1);
    (start, range.end.next_multiple_of(PAGE) - start)
}

fn result(value: isize) -> Result<usize, i32> {
    if (-4095..0).contains(&value) {
        Err(-value as i32)
    } else {
        Ok(value as usize)
    }
}

fn protect(range: &Range<usize>, protection: i32) -> Result<(), i32> {
    let (start, length) = pages(range);
    let args = [start as u64, length as u64, protection as u64, 0, 0, 0];
    // SAFETY: the callers pass code that they own, and only ever add to the rights that it has,
    // or restore them.
    result(unsafe { raw_syscall(libc::SYS_mprotect, args) }).map(drop)
}

/// Runs `write` while the code in `range` can be written, then gives it back `protection`: where the
/// kernel does not do that, for want of memory, the code stays writable, and is written all the same.
/// The error, an error number, says that nothing was written.
pub fn while_writable<T>(
    range: &Range<usize>,
    protection: i32,
    write: impl FnOnce() -> T,
) -> Result<T, i32> {
    protect(range, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)?;
    let value = write();
    let _ = protect(range, protection);
    Ok(value)
}

/// Maps `length` bytes of executable memory (not yet writable) at exactly `address`, if nothing
/// is there. The error is an error number.
pub fn map_code_at(address: usize, length: usize) -> Result<(), i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
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
    for (i, byte) in bytes.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { ((address + i) as *mut u8).write_volatile(*byte) };
    }
}
