//! What procfs tells about the program's own threads. The entries of `/proc/self/task` are the threads, and its number of
//! links counts them. `/proc/self/status` and `/proc/self/stat` tell their number ([`counts`]).
//!
//! The kernel would list its own threads: activations and outside kernel threads. Nothing is noted about descriptors, so
//! dup(2), fork(2) and rewinddir(3) need no care. A descriptor or path of the directory is recognised by device and inode,
//! and the kernel keeps the file's position. The position behind an entry tells the entry's id, so no thread is left out
//! when another one ends meanwhile.
//!
//! *Not done:* a thread without an agent has no directory of its own there. Opening one gives ENOENT, as for a thread that
//! has ended since the listing; only `comm` is there ([`names`](crate::thread::names)).

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use crate::ground::access::{self, Fault};
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::state::GUEST;
use crate::ground::text::put_number;
use crate::thread::listed;

pub mod counts;

const EINVAL: i64 = -(libc::EINVAL as i64);
const EFAULT: i64 = -(libc::EFAULT as i64);
/// Asks for a file's status as it is known, without asking a server for a newer one.
const AT_STATX_DONT_SYNC: u64 = 0x4000;
/// How many entries one call returns at most.
const MOST: usize = 128;
/// The position of the entry of an id, less the id: two entries stand before all others.
const BEFORE: u64 = 2;
/// The links of the directory itself: its own, and its parent's.
const LINKS: u32 = 2;

/// The offsets of the number of links, the mode, and the size in `struct stat` and `struct statx`.
const STAT: [usize; 3] = [16, 24, 48];
const STATX: [usize; 3] = [16, 28, 40];

/// What distinguishes a file from all others.
#[derive(Clone, Copy, PartialEq, Eq)]
struct File {
    device: u64,
    inode: u64,
}

/// Returns the file at a path, or that of a descriptor if the path is empty. Returns `None` if there is none, or it cannot
/// be a `kind` of procfs.
fn file(kind: u32, descriptor: i32, path: &'static CStr) -> Option<File> {
    let mut status = [0u64; 18];
    let flags = libc::AT_EMPTY_PATH as u64 | AT_STATX_DONT_SYNC;
    let at = status.as_mut_ptr() as u64;
    let words = [descriptor as u64, path.as_ptr() as u64, at, flags, 0, 0];
    // SAFETY: reads the path, and writes 144 bytes.
    let answer = unsafe { raw_syscall(libc::SYS_newfstatat, words) };
    let [device, inode, _, mode, _, _, size, ..] = status;
    (answer == 0 && may_be(kind, mode as u32, size)).then_some(File { device, inode })
}

/// Returns true if a file can be a `kind` (S_IFDIR, S_IFREG) of procfs.
fn may_be(kind: u32, mode: u32, size: u64) -> bool {
    mode & libc::S_IFMT == kind && size == 0
}

/// Returns the directory.
fn own() -> Option<File> {
    file(libc::S_IFDIR, libc::AT_FDCWD, c"/proc/self/task")
}

/// Calls `visit` with the id of every thread. The process's id is one of them until its end, as in the kernel.
fn each_id(mut visit: impl FnMut(i32)) {
    let first = GUEST.pid.load(Ordering::Relaxed) as i32;
    visit(first);
    GUEST.identities.each(|thread| {
        let id = thread.guest().tid.load(Ordering::Relaxed);
        if id != first {
            visit(id);
        }
        true
    });
    listed::each(visit);
}

/// Returns how many threads there are.
pub fn count() -> u32 {
    let mut count = 0;
    each_id(|_| count += 1);
    count
}

/// Writes the lowest ids from `from` on, ascending. Returns how many there are.
fn ids_from(from: i32, into: &mut [i32; MOST]) -> usize {
    let mut count = 0;
    each_id(|id| {
        if id < from || count == MOST && id > into[MOST - 1] {
            return;
        }
        let at = into[..count].partition_point(|&other| other < id);
        count = (count + 1).min(MOST);
        into[at..count].rotate_right(1);
        into[at] = id;
    });
    count
}

/// getdents(2), getdents64(2). Returns `None` for another directory.
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
pub fn entries(frame: &Frame) -> Option<i64> {
    let descriptor = frame.rdi as i32;
    let directory = file(libc::S_IFDIR, descriptor, c"")?;
    if own() != Some(directory) {
        return None;
    }
    let seek = |to: u64, whence: i32| {
        // SAFETY: moves the position of the program's descriptor, as the program's own call would.
        (unsafe {
            raw_syscall(
                libc::SYS_lseek,
                [descriptor as u64, to, whence as u64, 0, 0, 0],
            )
        }) as i64
    };
    // There is no position if it was opened with O_PATH.
    let start = u64::try_from(seek(0, libc::SEEK_CUR)).ok()?;
    let mut writer = Writer {
        at: frame.rsi as usize,
        room: frame.rdx as u32 as usize,
        is_old: frame.rax as i64 == libc::SYS_getdents,
        position: start,
    };
    let listed = list(&mut writer, directory);
    if writer.position != start {
        seek(writer.position, libc::SEEK_SET);
    }
    Some(match (writer.at - frame.rsi as usize, listed) {
        (0, Err(error)) => error,
        (written, _) => written as i64,
    })
}

/// Writes the entries that follow the position, as many as fit.
fn list(writer: &mut Writer, directory: File) -> Result<(), i64> {
    if writer.position == 0 {
        writer.put(directory.inode, b".", 1)?;
    }
    if writer.position == 1 {
        writer.put(directory.inode - 1, b"..", BEFORE)?;
    }
    let mut ids = [0; MOST];
    let from = (writer.position - BEFORE).min(i32::MAX as u64);
    let count = ids_from(from as i32, &mut ids);
    for &id in &ids[..count] {
        let mut name = [0; 12];
        let length = put_number(&mut name, id as u32);
        writer.put(id as u64, &name[..length], id as u64 + BEFORE + 1)?;
    }
    Ok(())
}

/// Writes entries where the program wants them.
struct Writer {
    at: usize,
    room: usize,
    /// True for the form of getdents(2).
    is_old: bool,
    /// The position behind the last entry.
    position: u64,
}

impl Writer {
    fn put(&mut self, inode: u64, name: &[u8], next: u64) -> Result<(), i64> {
        let header = if self.is_old { 18 } else { 19 };
        // A zero ends the name; the old form has the type behind it.
        let length = (19 + name.len() + 1).next_multiple_of(8);
        if length > self.room {
            return Err(EINVAL);
        }
        let mut bytes = [0u8; 40];
        bytes[..8].copy_from_slice(&inode.to_le_bytes());
        bytes[8..16].copy_from_slice(&next.to_le_bytes());
        bytes[16..18].copy_from_slice(&(length as u16).to_le_bytes());
        bytes[header..header + name.len()].copy_from_slice(name);
        bytes[if self.is_old { length - 1 } else { 18 }] = libc::DT_DIR;
        access::store(self.at, &bytes[..length]).map_err(|Fault| EFAULT)?;
        self.at += length;
        self.room -= length;
        self.position = next;
        Ok(())
    }
}

/// Called when the kernel has told a file's status. If the file is the directory, its links are set to count the program's
/// threads.
// Not inlined, as above.
#[inline(never)]
pub fn count_links(frame: &Frame, answer: i64) {
    let is_new = frame.rax as i64 == libc::SYS_statx;
    let at = match frame.rax as i64 {
        _ if answer != 0 => return,
        libc::SYS_statx => frame.r8,
        libc::SYS_newfstatat => frame.rdx,
        _ => frame.rsi,
    } as usize;
    let [links, mode, size] = if is_new { STATX } else { STAT }.map(|offset| at + offset);
    let (Ok(mode), Ok(size)) = (access::load_u32(mode), access::load_u64(size)) else {
        return;
    };
    // The upper half of the word is another field in `struct statx`; and the program may write meanwhile.
    if !may_be(libc::S_IFDIR, mode & 0xffff, size) {
        return;
    }
    let (device, inode) = if is_new {
        let part = |offset| access::load_u32(at + offset).unwrap_or(0);
        (
            libc::makedev(part(136), part(140)),
            access::load_u64(at + 32),
        )
    } else {
        (access::load_u64(at).unwrap_or(0), access::load_u64(at + 8))
    };
    if inode.is_ok_and(|inode| own() == Some(File { device, inode })) {
        let _ = access::store_u32(links, LINKS + count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_form_of_their_call() {
        for is_old in [false, true] {
            let mut room = [!0u64; 8];
            let mut writer = Writer {
                at: room.as_mut_ptr() as usize,
                room: 56,
                is_old,
                position: 0,
            };
            assert_eq!(writer.put(7, b"123456", 9), Ok(()));
            assert_eq!(writer.put(8, b"1", 10), Ok(()));
            assert_eq!(writer.put(8, b"1", 11), Err(EINVAL));
            let bytes: Vec<u8> = room.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(room[..2], [7, 9]);
            assert_eq!(bytes[16..18], [32, 0]);
            let (name, kind) = if is_old { (18, 31) } else { (19, 18) };
            assert_eq!(&bytes[name..name + 7], b"123456\0");
            assert_eq!(bytes[kind], libc::DT_DIR);
            assert_eq!(room[4..6], [8, 10]);
            assert_eq!(room[7], !0);
        }
    }
}
