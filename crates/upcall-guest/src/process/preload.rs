//! This library's entry in `LD_PRELOAD`, which is removed where it would be of no use.
//!
//! - `--no-children`: the program is served, but not what it executes. At start the entry is removed from the program's own
//!   environment.
//! - A process that sees other files than its parent (chroot(2), a mount namespace, a container) may not find the library
//!   by its path. The loader would complain on the standard error of everything that is executed there. So where the path
//!   leads to no readable file, execve(2) passes the environment on without the entry.
//!
//! Other entries stay. The environment belongs to the program, and other threads read it, so execve gets a copy:
//!
//! 1. The path is opened, as the loader would. If that works the call is made unchanged: the common case.
//! 2. Otherwise the pointers, and the one string, are copied to a mapping of their own. The kernel reads the program's
//!    memory (process_vm_readv(2)), and judges a bad pointer in the real call.
//! 3. If the call fails the mapping is unmapped. If it succeeds, the mapping is gone with the memory. But a child that
//!    borrows its parent's memory (vfork, posix_spawn) leaves a note in `BORROWED`, and the parent unmaps it.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use crate::ground::entry::{Frame, raw_syscall};

const VARIABLE: &[u8] = b"LD_PRELOAD=";
const PAGE: usize = 4096;
/// An environment with more variables, or a longer list, is passed on as it is.
const MOST: usize = 1 << 16;

/// The path by which the loader has found the library; null in a program that links the crate.
static PATH: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Notes the path by which the loader has found the library.
pub fn note(path: &'static CStr) {
    PATH.store(path.as_ptr().cast_mut(), Ordering::Relaxed);
}

fn path() -> Option<&'static CStr> {
    let path = PATH.load(Ordering::Relaxed);
    // SAFETY: null, or a string that lives as long as the library.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

/// Moves the entries of `list` that are not `own` to its beginning. Returns the length of what is left.
fn keep_others(list: &mut [u8], own: &[u8]) -> usize {
    let (mut from, mut to) = (0, 0);
    while from < list.len() {
        let rest = &list[from..];
        let separator = |&byte: &u8| matches!(byte, b' ' | b':');
        let length = rest.iter().position(separator).unwrap_or(rest.len());
        if length != 0 && &rest[..length] != own {
            if to != 0 {
                list[to] = b':';
                to += 1;
            }
            list.copy_within(from..from + length, to);
            to += length;
        }
        from += length + 1;
    }
    to
}

/// Takes the entry out of the process's own environment.
///
/// # Safety
///
/// `variables` is an environment that may be written, and nobody reads it meanwhile.
pub unsafe fn leave(mut variables: *mut *mut c_char) {
    let Some(own) = path() else { return };
    // SAFETY: the caller's promise: pointers to strings, up to a null.
    unsafe {
        while !(*variables).is_null() {
            let text = CStr::from_ptr(*variables).to_bytes().len();
            let variable = core::slice::from_raw_parts_mut((*variables).cast::<u8>(), text + 1);
            if !variable.starts_with(VARIABLE) {
                variables = variables.add(1);
                continue;
            }
            let left = keep_others(&mut variable[VARIABLE.len()..text], own.to_bytes());
            variable[VARIABLE.len() + left] = 0;
            if left != 0 {
                variables = variables.add(1);
                continue;
            }
            let mut at = variables;
            while !(*at).is_null() {
                *at = *at.add(1);
                at = at.add(1);
            }
        }
    }
}

/// Returns true if the path leads to nothing that the loader can open. Returns false if that cannot be found out.
fn is_hidden(path: &CStr) -> bool {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    let words = [libc::AT_FDCWD as u64, path.as_ptr() as u64, flags, 0, 0, 0];
    // SAFETY: a string of ours; the descriptor is closed at once.
    unsafe {
        let opened = raw_syscall(libc::SYS_openat, words);
        if opened >= 0 {
            raw_syscall(libc::SYS_close, [opened as u64, 0, 0, 0, 0, 0]);
        }
        matches!(
            -opened as i32,
            libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::EPERM | libc::ELOOP
        ) && opened < 0
    }
}

/// Copies memory of the program, as far as it can be read. Returns how much it was.
fn copy(from: usize, to: &mut [u8]) -> usize {
    let local = [to.as_mut_ptr() as usize, to.len()];
    let remote = [from, to.len()];
    // SAFETY: writes to the buffer alone.
    let copied = unsafe {
        let own = raw_syscall(libc::SYS_getpid, [0; 6]) as u64;
        let (local, remote) = (local.as_ptr() as u64, remote.as_ptr() as u64);
        raw_syscall(libc::SYS_process_vm_readv, [own, local, 1, remote, 1, 0])
    };
    usize::try_from(copied).unwrap_or(0)
}

/// Returns what a C string or an array of pointers has before the zero that ends it, in units of `SIZE` bytes. Returns
/// `None` if it cannot be read, or is too long.
fn length<const SIZE: usize>(from: usize) -> Option<usize> {
    let mut buffer = [0u8; 256];
    let mut before = 0;
    while before < MOST {
        let at = from.checked_add(before * SIZE)?;
        // Not over the end of a page: the next one need not be there.
        let ask = buffer.len().min(PAGE - at % PAGE).max(SIZE);
        let units = copy(at, &mut buffer[..ask]) / SIZE;
        if units == 0 {
            return None;
        }
        let mut pieces = buffer[..units * SIZE].chunks_exact(SIZE);
        if let Some(end) = pieces.position(|unit| unit.iter().all(|&byte| byte == 0)) {
            return Some(before + end);
        }
        before += units;
    }
    None
}

/// An environment without the library: a mapping that begins with the pointers.
struct Copied {
    address: usize,
    length: usize,
}

impl Copied {
    /// Returns `None` if the environment has no entry of the library's, or cannot be copied.
    #[inline(never)]
    fn without(own: &CStr, environment: usize) -> Option<Self> {
        let count = length::<8>(environment)?;
        // Room for the pointers with their null, and for the one list.
        let mut list = None;
        for index in 0..count {
            let mut pointer = [0u8; 8];
            let mut head = [0u8; VARIABLE.len()];
            copy(environment + index * 8, &mut pointer);
            let string = usize::from_le_bytes(pointer);
            if copy(string, &mut head) == head.len() && head == *VARIABLE {
                list = Some((index, string, length::<1>(string)?));
                break;
            }
        }
        let (index, string, text) = list?;
        let pointers = (count + 1) * 8;
        let size = (pointers + text + 1).next_multiple_of(PAGE);
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let words = [0, size as u64, rights as u64, flags as u64, u64::MAX, 0];
        // SAFETY: a new mapping somewhere, which is zero.
        let address = unsafe { raw_syscall(libc::SYS_mmap, words) };
        let address = usize::try_from(address).ok()?;
        let copied = Copied {
            address,
            length: size,
        };
        // SAFETY: the mapping is ours, and has this size.
        let memory = unsafe { core::slice::from_raw_parts_mut(address as *mut u8, size) };
        let (array, string_room) = memory.split_at_mut(pointers);
        let read = copy(environment, &mut array[..count * 8]) == count * 8
            && copy(string, &mut string_room[..text]) == text;
        if !read {
            copied.unmap();
            return None;
        }
        let before = text - VARIABLE.len();
        let left = keep_others(&mut string_room[VARIABLE.len()..text], own.to_bytes());
        if left == before {
            copied.unmap();
            return None;
        }
        string_room[VARIABLE.len() + left] = 0;
        if left == 0 {
            array.copy_within((index + 1) * 8.., index * 8);
        } else {
            let place = (address + pointers).to_le_bytes();
            array[index * 8..][..8].copy_from_slice(&place);
        }
        Some(copied)
    }

    fn unmap(self) {
        let words = [self.address as u64, self.length as u64, 0, 0, 0, 0];
        // SAFETY: a mapping of ours that nobody uses any more.
        unsafe { raw_syscall(libc::SYS_munmap, words) };
    }
}

/// What a child that borrows the memory has mapped for an execve that may have succeeded.
struct Borrowed {
    /// The child's id; 0: the note is free.
    tid: AtomicI32,
    address: AtomicUsize,
    length: AtomicUsize,
}

/// Where there is no free note, the environment is passed on as it is.
static BORROWED: [Borrowed; 64] = [const {
    Borrowed {
        tid: AtomicI32::new(0),
        address: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
    }
}; 64];
/// How many notes are taken.
static NOTES: AtomicUsize = AtomicUsize::new(0);

impl Borrowed {
    fn take() -> Option<&'static Self> {
        // SAFETY: asks only.
        let tid = unsafe { raw_syscall(libc::SYS_gettid, [0; 6]) } as i32;
        let free = |note: &&Borrowed| {
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            note.tid.compare_exchange(0, tid, acquire, relaxed).is_ok()
        };
        let note = BORROWED.iter().find(free)?;
        NOTES.fetch_add(1, Ordering::Relaxed);
        Some(note)
    }

    fn leave(&self) {
        NOTES.fetch_sub(1, Ordering::Relaxed);
        // Release: pairs with the Acquire in `take`.
        self.tid.store(0, Ordering::Release);
    }
}

/// Called when the child with this id, which has borrowed the memory, is gone or executes another program.
pub fn reclaim(child: i64) {
    if NOTES.load(Ordering::Relaxed) == 0 || child <= 0 {
        return;
    }
    let of_child = |note: &&Borrowed| i64::from(note.tid.load(Ordering::Relaxed)) == child;
    if let Some(note) = BORROWED.iter().find(of_child) {
        let copied = Copied {
            address: note.address.swap(0, Ordering::Relaxed),
            length: note.length.load(Ordering::Relaxed),
        };
        if copied.address != 0 {
            copied.unmap();
        }
        note.leave();
    }
}

/// Makes execve(2) or execveat(2) with the program's arguments. Returns only if it fails.
pub fn execute(frame: &Frame) -> i64 {
    let [number, mut words @ ..] = frame.words();
    let at = if number as i64 == libc::SYS_execve {
        2
    } else {
        3
    };
    let copied = path()
        .filter(|path| is_hidden(path))
        .and_then(|path| Some((Borrowed::take()?, path)))
        .and_then(|(note, path)| {
            let Some(copied) = Copied::without(path, words[at] as usize) else {
                note.leave();
                return None;
            };
            note.address.store(copied.address, Ordering::Relaxed);
            note.length.store(copied.length, Ordering::Relaxed);
            Some((note, copied))
        });
    if let Some((_, copied)) = &copied {
        words[at] = copied.address as u64;
    }
    // SAFETY: the program's own call, or the same with a copy of its environment.
    let answer = unsafe { crate::ground::entry::pass_through(number as i64, words) } as i64;
    if let Some((note, copied)) = copied {
        note.address.store(0, Ordering::Relaxed);
        copied.unmap();
        note.leave();
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_entry_is_taken_out() {
        for (list, left) in [
            ("/a/own.so", ""),
            ("/a/own.so:libx.so", "libx.so"),
            ("libx.so /a/own.so:liby.so", "libx.so:liby.so"),
            ("libx.so::/a/own.so2: /own.so", "libx.so:/a/own.so2:/own.so"),
            ("", ""),
            (":", ""),
        ] {
            let mut bytes = list.as_bytes().to_vec();
            let length = keep_others(&mut bytes, b"/a/own.so");
            assert_eq!(&bytes[..length], left.as_bytes(), "{list}");
        }
    }

    #[test]
    fn strings_and_arrays_are_measured_up_to_their_end_or_a_hole() {
        let text = [b'x'; 5000];
        let mut long = text.to_vec();
        long.push(0);
        assert_eq!(length::<1>(long.as_ptr() as usize), Some(5000));
        let mut words = vec![1usize; 700];
        words.push(0);
        assert_eq!(length::<8>(words.as_ptr() as usize), Some(700));
        assert_eq!(length::<8>(8), None);
    }
}
