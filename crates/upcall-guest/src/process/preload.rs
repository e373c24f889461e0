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

/// The path by which the loader has found the library; null in a program that links the crate.
static PATH: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// The list with which the process was started, where the library is first in it.
static LIST: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Notes the path by which the loader has found the library, and where the list is that led to it.
///
/// # Safety
///
/// `variables` is the environment with which the process was started: strings that stay, up to a null.
pub unsafe fn note(path: &'static CStr, variables: *const *mut c_char) {
    PATH.store(path.as_ptr().cast_mut(), Ordering::Relaxed);
    // SAFETY: the caller's promise.
    let mut lists = (0..)
        .map(|at| unsafe { *variables.add(at) })
        .take_while(|variable| !variable.is_null());
    // SAFETY: the same.
    let is_first = |list: &*mut c_char| unsafe { begins_with(CStr::from_ptr(*list), path) };
    LIST.store(
        lists.find(is_first).unwrap_or(ptr::null_mut()),
        Ordering::Relaxed,
    );
}

/// Returns true if a variable is the list, and the library is first in it. `byte` reads the variable with its zero.
fn is_first(mut byte: impl FnMut(usize) -> Option<u8>, own: &CStr) -> bool {
    let mut wanted = VARIABLE.iter().chain(own.to_bytes()).zip(0..);
    wanted.all(|(&wanted, at)| byte(at) == Some(wanted))
        && byte(VARIABLE.len() + own.to_bytes().len())
            .is_some_and(|next| next == 0 || is_separator(&next))
}

/// The same of a variable that can be read directly.
fn begins_with(variable: &CStr, own: &CStr) -> bool {
    is_first(|at| variable.to_bytes_with_nul().get(at).copied(), own)
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

/// Reads memory of the program by large pieces: to ask the kernel for each string would cost more than all of the rest.
struct Reader {
    from: usize,
    length: usize,
    bytes: [u8; 512],
}

impl Reader {
    const fn new() -> Self {
        Reader {
            from: 0,
            length: 0,
            bytes: [0; 512],
        }
    }

    /// Returns so many bytes from this address on, or `None` if they cannot be read.
    fn read(&mut self, at: usize, count: usize) -> Option<&[u8]> {
        let end = at.checked_add(count)?;
        if at < self.from || end > self.from + self.length {
            // Not over the end of a page: the next one need not be there.
            let ask = self.bytes.len().min(PAGE - at % PAGE).max(count);
            (self.from, self.length) = (at, copy(at, &mut self.bytes[..ask]));
        }
        self.bytes[..self.length].get(at - self.from..end - self.from)
    }
}

/// Shows the variables of an environment, up to one at which `is_last` says so. Returns how many there were before that, or
/// `None` if the array cannot be read, or is too long.
fn walk(environment: usize, mut is_last: impl FnMut(usize) -> bool) -> Option<usize> {
    let mut array = Reader::new();
    for index in 0..MOST {
        let pointer = array.read(environment.checked_add(index * 8)?, 8)?;
        let pointer = usize::from_le_bytes(pointer.try_into().ok()?);
        if pointer == 0 || is_last(pointer) {
            return Some(index);
        }
    }
    None
}

/// Returns true if an environment has the list with which the process was started, and the library is still first in it. Most
/// have, and then nothing but the array is read.
fn has_old_list(environment: usize, own: &CStr) -> bool {
    let list = LIST.load(Ordering::Relaxed);
    // SAFETY: a string of the process's first environment, which the program may have overwritten.
    if list.is_null() || !begins_with(unsafe { CStr::from_ptr(list) }, own) {
        return false;
    }
    let mut has = false;
    walk(environment, |pointer| {
        has = pointer == list as usize;
        has
    });
    has
}

/// Where an environment has its list of libraries.
struct List {
    /// How many variables there are.
    count: usize,
    /// Which of them it is.
    index: usize,
    /// Its text, with its name.
    text: usize,
    /// Bytes of it, without its zero.
    length: usize,
    /// The library is first in it.
    is_first: bool,
}

impl List {
    /// Returns `None` if the environment has none, or cannot be read.
    #[inline(never)]
    fn find(environment: usize, own: &CStr) -> Option<Self> {
        let mut strings = Reader::new();
        let (mut found, mut index) = (None, 0);
        let count = walk(environment, |text| {
            if found.is_none() && strings.read(text, VARIABLE.len()) == Some(VARIABLE) {
                found = Some((index, text));
            }
            index += 1;
            false
        })?;
        let (index, text) = found?;
        let mut byte = |at: usize| strings.read(text + at, 1).map(|bytes| bytes[0]);
        let end = (0..MOST).find(|&at| byte(at).is_none_or(|byte| byte == 0))?;
        byte(end)?;
        Some(List {
            count,
            index,
            text,
            length: end,
            is_first: is_first(byte, own),
        })
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
        let environment = words[at] as usize;
        if change == Change::First && has_old_list(environment, path) {
            return None;
        }
        let list = List::find(environment, path)?;
        if change == Change::First && list.is_first {
            return None;
        }
        let note = Borrowed::take()?;
        let Some(copied) = Copied::with(&list, change, path, environment) else {
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
        let found = List::find(address, c"/a/own.so").expect("it has a list");
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
                let find = |environment: &[*const c_char], own: &CStr| {
                    List::find(environment.as_ptr() as usize, own)
                };
                let found = find(&environment, c"/a/own.so").expect("it is there");
                assert_eq!((found.count, found.index), (count, index));
                assert_eq!((found.length, found.is_first), (22, true));
                for other in [c"/a/own.s", c"/a/own.so:", c"/a/own.so:x:y", c"x"] {
                    assert!(!find(&environment, other).expect("it is there").is_first);
                }
                environment[index] = short;
                assert!(find(&environment, c"/a/own.so").is_none());
            }
        }
        assert!(List::find(8, c"/a/own.so").is_none());
    }

    #[test]
    fn the_list_of_the_start_is_known_while_the_library_is_first_in_it() {
        let path = c"/a/own.so";
        for (list, known) in [
            (c"LD_PRELOAD=/a/own.so:x", true),
            (c"LD_PRELOAD=/a/own.so", true),
            (c"LD_PRELOAD=x:/a/own.so", false),
            (c"LD_PRELOAD=/a/own.so2", false),
        ] {
            let mut text = list.to_bytes_with_nul().to_vec();
            let list = text.as_mut_ptr().cast::<c_char>();
            let other = c"A=1".as_ptr().cast_mut();
            let environment = [other, list, ptr::null_mut()];
            // SAFETY: an environment that stays until it is forgotten below.
            unsafe { note(path, environment.as_ptr()) };
            let has =
                |environment: &[*mut c_char]| has_old_list(environment.as_ptr() as usize, path);
            assert_eq!(has(&environment), known);
            assert!(!has(&[other, ptr::null_mut(), list]));
            // The program gives itself a title there.
            text[11] = b'!';
            assert!(!has(&environment));
            LIST.store(ptr::null_mut(), Ordering::Relaxed);
            PATH.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }
}
