//! System calls and memory, without libc.
//!
//! Loops over bytes read them as volatile: the compiler would make calls of libc's functions out of some.

use std::arch::asm;

/// Makes a system call.
///
/// # Safety
///
/// The call's own conditions.
#[inline(always)]
pub unsafe fn call(number: i64, words: [usize; 6]) -> isize {
    let answer;
    // SAFETY: the kernel leaves the stack and all registers but three as they were; the rest is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") words[0],
            in("rsi") words[1],
            in("rdx") words[2],
            in("r10") words[3],
            in("r8") words[4],
            in("r9") words[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Returns the byte at `at`.
///
/// # Safety
///
/// It can be read.
#[inline(always)]
pub unsafe fn byte(at: *const u8) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { at.read_volatile() }
}

/// Returns the bytes of a C string, without its end.
///
/// # Safety
///
/// It is one, and lives for ever.
pub unsafe fn text(start: *const u8) -> &'static [u8] {
    let mut length = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while byte(start.add(length)) != 0 {
            length += 1;
        }
        std::slice::from_raw_parts(start, length)
    }
}

/// Returns true if the bytes are the same.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && starts_with(one, other)
}

/// Returns true if `all` begins with `start`.
pub fn starts_with(all: &[u8], start: &[u8]) -> bool {
    if all.len() < start.len() {
        return false;
    }
    let mut at = 0;
    while at < start.len() {
        // SAFETY: both are at least that long.
        if unsafe { byte(all.as_ptr().add(at)) != byte(start.as_ptr().add(at)) } {
            return false;
        }
        at += 1;
    }
    true
}

/// Returns where `wanted` is for the first time.
pub fn position(all: &[u8], wanted: u8) -> Option<usize> {
    let mut at = 0;
    while at < all.len() {
        // SAFETY: within.
        if unsafe { byte(all.as_ptr().add(at)) } == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Fills with zeroes.
///
/// # Safety
///
/// The bytes can be written, and nobody else uses them.
pub unsafe fn clear(start: usize, length: usize) {
    // SAFETY: the caller's promise; the direction flag is clear at every function's start.
    unsafe {
        asm!(
            "rep stosb",
            inout("rdi") start => _,
            inout("rcx") length => _,
            in("al") 0u8,
            options(nostack, preserves_flags),
        );
    }
}

/// Bytes that are written one after the other, in a place of fixed length.
pub struct Text<'a> {
    place: &'a mut [std::mem::MaybeUninit<u8>],
    length: usize,
}

impl<'a> Text<'a> {
    /// An empty one.
    pub fn new(place: &'a mut [std::mem::MaybeUninit<u8>]) -> Self {
        Self { place, length: 0 }
    }

    /// Appends; `None` if there is no room.
    pub fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let mut at = 0;
        while at < bytes.len() {
            let to = self.place.get_mut(self.length)?;
            // SAFETY: within the slice.
            to.write(unsafe { byte(bytes.as_ptr().add(at)) });
            self.length += 1;
            at += 1;
        }
        Some(())
    }

    /// Returns what was written.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: so many were written.
        unsafe { std::slice::from_raw_parts(self.place.as_ptr().cast(), self.length) }
    }
}
