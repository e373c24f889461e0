//! This library's entry in `LD_PRELOAD`: it is removed where it would be of no use, and put back where it was lost.
//!
//! - `--no-children`: the program is served, but not what it executes. At start the entry is removed from the program's own
//!   environment.
//! - A process that sees other files than its parent (chroot(2), a mount namespace, a container) may not find the library
//!   by its path. The loader would complain on the standard error of everything that is executed there. So where the path
//!   leads to no readable file, execve(2) passes the environment on without the entry.
//! - A script that begins a program with a library of its own (`LD_PRELOAD=libjemalloc.so server`) replaces the list. The
//!   entry goes first again, as `upcall run` puts it. Not where the variable was removed or emptied: that is how a program says
//!   that it wants no such library; nor beside a tool that owns its threads ([`upcall_abi::preload`]).
//!
//! Other entries stay. The environment belongs to the program, and other threads read it, so execve gets a copy:
//!
//! 1. The path is opened, as the loader would, and the list is read. Mostly the entry is first, and the call is made
//!    unchanged.
//! 2. Otherwise the pointers, and the one string, are copied to a mapping of their own. The kernel reads the program's
//!    memory (process_vm_readv(2)), and judges a bad pointer in the real call. Under a filter, which may forbid that, the
//!    entry is not put back.
//! 3. If the call fails the mapping is unmapped. If it succeeds, the mapping is gone with the memory. But a child that
//!    borrows its parent's memory (vfork, posix_spawn) leaves a note in `BORROWED`, and the parent unmaps it.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use upcall_abi::preload::{entries, is_separator, owns_threads};
use upcall_linux::sys;

use crate::ground::entry::{Frame, raw_syscall};

const VARIABLE: &[u8] = b"LD_PRELOAD=";
const PAGE: usize = 4096;
/// An environment with more variables, or a longer list, is passed on as it is.
const MOST: usize = 1 << 16;
/// Variables whose beginnings are read in one call.
const TOGETHER: usize = 32;

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
        let length = rest.iter().position(is_separator).unwrap_or(rest.len());
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

/// Takes the entry out of the process's own environment, and leaves all others that it passes on as they are.
///
/// # Safety
///
/// `variables` is an environment that may be written, and nobody reads it meanwhile.
pub unsafe fn leave(mut variables: *mut *mut c_char) {
    let Some(own) = path() else { return };
    PATH.store(ptr::null_mut(), Ordering::Relaxed);
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

/// Copies memory of the program, as far as it can be read, one piece after the other. Returns how much it was.
fn copy_pieces(from: &[[usize; 2]], to: &mut [u8]) -> usize {
    let local = [to.as_mut_ptr() as usize, to.len()];
    // SAFETY: writes to the buffer alone.
    let copied = unsafe {
        let own = raw_syscall(libc::SYS_getpid, [0; 6]) as u64;
        let (local, remote, count) = (local.as_ptr(), from.as_ptr(), from.len() as u64);
        let words = [own, local as u64, 1, remote as u64, count, 0];
        raw_syscall(libc::SYS_process_vm_readv, words)
    };
    usize::try_from(copied).unwrap_or(0)
}

fn copy(from: usize, to: &mut [u8]) -> usize {
    copy_pieces(&[[from, to.len()]], to)
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

/// Where an environment has its list of libraries.
struct List {
    /// How many variables there are.
    count: usize,
    /// Which of them it is.
    index: usize,
    /// Its text, with its name.
    text: usize,
    /// Bytes of it.
    length: usize,
}

impl List {
    /// Returns `None` if the environment has none, or cannot be read.
    #[inline(never)]
    fn find(environment: usize) -> Option<Self> {
        const HEAD: usize = VARIABLE.len();
        let count = length::<8>(environment)?;
        for begin in (0..count).step_by(TOGETHER) {
            let mut pointers = [[0u8; 8]; TOGETHER];
            let pointers = &mut pointers[..TOGETHER.min(count - begin)];
            copy(environment + begin * 8, pointers.as_flattened_mut());
            let mut pieces = [[0, HEAD]; TOGETHER];
            for (piece, pointer) in pieces.iter_mut().zip(&*pointers) {
                piece[0] = usize::from_le_bytes(*pointer);
            }
            let mut heads = [[0u8; HEAD]; TOGETHER];
            let heads = &mut heads[..pointers.len()];
            let pieces = &pieces[..pointers.len()];
            // The kernel stops at one that ends before the memory does, such as the last of all.
            let mut at = copy_pieces(pieces, heads.as_flattened_mut()) / HEAD;
            while at < pieces.len() {
                copy(pieces[at][0], &mut heads[at]);
                at += 1;
                at += copy_pieces(&pieces[at..], heads[at..].as_flattened_mut()) / HEAD;
            }
            if let Some(at) = heads.iter().position(|head| head == VARIABLE) {
                let text = pieces[at][0];
                return Some(List {
                    count,
                    index: begin + at,
                    text,
                    length: length::<1>(text)?,
                });
            }
        }
        None
    }

    /// Returns true if its first entry is the library's.
    fn begins_with(&self, own: &CStr) -> bool {
        let mut begins = true;
        let mut at = self.text + VARIABLE.len();
        let mut piece = [0u8; 64];
        for part in own.to_bytes().chunks(piece.len()) {
            let piece = &mut piece[..part.len()];
            begins &= copy(at, piece) == part.len() && piece == part;
            at += part.len();
        }
        let mut end = [0u8; 1];
        begins && copy(at, &mut end) == 1 && (end[0] == 0 || is_separator(&end[0]))
    }

    /// Writes the environment, with another list, to memory that is zero. Returns false if it stays as it is, or cannot be read.
    fn pass_on(&self, change: Change, own: &[u8], environment: usize, memory: &mut [u8]) -> bool {
        let pointers = (self.count + 1) * 8;
        let address = memory.as_ptr() as usize + pointers;
        let (array, rest) = memory.split_at_mut(pointers);
        let end = self.count * 8;
        // The text has its own place before it for the entry.
        let place = own.len() + 1;
        let text = &mut rest[place..][..self.length];
        if copy(environment, &mut array[..end]) != end || copy(self.text, text) != self.length {
            return false;
        }
        let list = &mut text[VARIABLE.len()..];
        let has_own = entries(list).any(|entry| entry == own);
        let begin = match change {
            Change::Out if has_own => {
                let left = keep_others(list, own);
                list[left..].fill(0);
                if left == 0 {
                    array.copy_within((self.index + 1) * 8.., self.index * 8);
                    return true;
                }
                place
            }
            Change::First if !has_own && has_others(list) => {
                rest[..VARIABLE.len()].copy_from_slice(VARIABLE);
                rest[VARIABLE.len()..][..own.len()].copy_from_slice(own);
                rest[VARIABLE.len() + own.len()] = b':';
                0
            }
            Change::Out | Change::First => return false,
        };
        array[self.index * 8..][..8].copy_from_slice(&(address + begin).to_le_bytes());
        true
    }
}

/// Returns true if a list has entries, and the library may be one of them.
fn has_others(list: &[u8]) -> bool {
    entries(list).next().is_some() && !entries(list).any(owns_threads)
}

/// What becomes of the library's entry in an environment that is passed on.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Out,
    First,
}

/// An environment with another list: a mapping that begins with the pointers.
struct Copied {
    address: usize,
    length: usize,
}

impl Copied {
    /// Returns `None` if the environment stays as it is, or cannot be copied.
    fn with(list: &List, change: Change, own: &CStr, environment: usize) -> Option<Self> {
        // Room for the pointers with their null, the entry, and the list with its zero.
        let pointers = (list.count + 1) * 8;
        let size = pointers + own.to_bytes().len() + 1 + list.length + 1;
        let size = size.next_multiple_of(PAGE);
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
        if list.pass_on(change, own.to_bytes(), environment, memory) {
            return Some(copied);
        }
        copied.unmap();
        None
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
    let change = |path| match is_hidden(path) {
        true => Some((Change::Out, path)),
        false => (!sys::is_filtered()).then_some((Change::First, path)),
    };
    let copied = path().and_then(change).and_then(|(change, path)| {
        let list = List::find(words[at] as usize)?;
        if change == Change::First && list.begins_with(path) {
            return None;
        }
        let note = Borrowed::take()?;
        let Some(copied) = Copied::with(&list, change, path, words[at] as usize) else {
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
    use std::ffi::CString;

    use super::*;

    /// What a program gets for a list, with the entry `/a/own.so`; the same text if it gets the same.
    fn changed(change: Change, list: &str) -> Option<String> {
        let text = |value: &str| CString::new(format!("LD_PRELOAD={value}")).unwrap();
        let (first, list, last) = (c"A=1", text(list), c"B=2");
        let environment = [
            first.as_ptr(),
            list.as_ptr(),
            last.as_ptr(),
            core::ptr::null(),
        ];
        let address = environment.as_ptr() as usize;
        let found = List::find(address).expect("it has a list");
        assert_eq!((found.count, found.index), (3, 1));
        let copied = Copied::with(&found, change, c"/a/own.so", address)?;
        // SAFETY: an environment, which is unmapped afterwards.
        let passed: Vec<String> = unsafe {
            let array = copied.address as *const *const c_char;
            let strings = (0..).map(|at| *array.add(at));
            let strings = strings.take_while(|string| !string.is_null());
            strings
                .map(|it| CStr::from_ptr(it).to_str().unwrap().to_owned())
                .collect()
        };
        copied.unmap();
        let (ends, list) = match &passed[..] {
            [first, list, last] => ([first, last], list.strip_prefix("LD_PRELOAD=")),
            [first, last] => ([first, last], Some("none")),
            _ => panic!("{passed:?}"),
        };
        assert_eq!(ends, ["A=1", "B=2"]);
        list.map(str::to_owned)
    }

    #[test]
    fn only_our_entry_is_taken_out() {
        for (list, left) in [
            ("/a/own.so", Some("none")),
            ("/a/own.so:libx.so", Some("libx.so")),
            ("libx.so /a/own.so:liby.so", Some("libx.so:liby.so")),
            ("libx.so:/a/own.so ::", Some("libx.so")),
            ("libx.so::/a/own.so2: /own.so", None),
            ("", None),
            (":", None),
        ] {
            assert_eq!(changed(Change::Out, list).as_deref(), left, "{list}");
        }
    }

    #[test]
    fn our_entry_goes_first_again_where_there_are_others() {
        for (list, becomes) in [
            ("libx.so", Some("/a/own.so:libx.so")),
            ("/b/libx.so liby.so:", Some("/a/own.so:/b/libx.so liby.so:")),
            ("libx.so:/a/own.so", None),
            ("/a/own.so", None),
            ("/usr/lib/libasan.so.8", None),
            ("", None),
            (" :", None),
        ] {
            assert_eq!(changed(Change::First, list).as_deref(), becomes, "{list}");
        }
    }

    #[test]
    fn the_list_is_found_among_many_and_beside_a_hole() {
        // The last one ends with a page, behind which there is nothing.
        // SAFETY: a mapping of ours, whose second page goes.
        let short = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(ptr::null_mut(), 2 * PAGE, rights, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            libc::munmap(base.byte_add(PAGE), PAGE);
            let short = base.byte_add(PAGE - 4).cast::<c_char>();
            ptr::copy_nonoverlapping(c"A=1".as_ptr(), short, 4);
            short
        };
        let list = c"LD_PRELOAD=/a/own.so:x".as_ptr();
        for count in [1, 2, 31, 32, 33, 64, 100] {
            for index in [0, count / 2, count - 1] {
                let mut environment = vec![short.cast_const(); count];
                environment[index] = list;
                environment.push(ptr::null());
                let found = List::find(environment.as_ptr() as usize).expect("it is there");
                assert_eq!((found.count, found.index), (count, index));
                assert_eq!(found.length, 22);
                assert!(found.begins_with(c"/a/own.so") && !found.begins_with(c"/a/own.s"));
                environment[index] = short;
                assert!(List::find(environment.as_ptr() as usize).is_none());
            }
        }
        assert!(List::find(8).is_none());
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
