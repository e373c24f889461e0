//! The names of threads: prctl(2), and `/proc/self/task/ID/comm`, by which libc names other threads.
//!
//! The kernel has no such file for a user-level thread. Opening it, by the process's id or the thread's own name in procfs, too, gives
//! a file in memory that holds the name; who asks whether it is there is told so ([`asked`]). If it was opened for writing it is read
//! when it is closed. The first thread's name is also its kernel thread's, which other
//! processes see. With `upcall run --comm` every kernel thread has the name of the thread that it runs ([`follow`]).

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use upcall_linux::{Activation, Runtime, Thread};

use crate::ground::access::{self, Fault};
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::identity::FIRST;
use crate::ground::state::GUEST;
use crate::ground::{caller, mask, record};
use crate::signal::pending;

/// TASK_COMM_LEN, the NUL included.
const LENGTH: usize = 16;
const PREFIX: &[u8] = b"/proc/self/task/";
const SUFFIX: &[u8] = b"/comm\0";
/// How many names can be written at the same time. Beyond that a name is not changed.
const OPEN: usize = 16;

/// A descriptor plus one in the lower half, the thread's id in the upper.
static WRITTEN: [AtomicU64; OPEN] = [const { AtomicU64::new(0) }; OPEN];
static NR_WRITTEN: AtomicI32 = AtomicI32::new(0);

#[cfg_attr(feature = "inject", track_caller)]
fn raw(number: i64, words: [u64; 6]) -> i64 {
    // SAFETY: the callers pass buffers of their own.
    (unsafe { raw_syscall(number, words) }) as i64
}

/// Returns the name of a thread, with zeros at its end.
pub fn get(thread: &'static Thread) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    for (half, word) in bytes.chunks_exact_mut(8).zip(&thread.guest().name) {
        half.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes
}

fn set(thread: &'static Thread, name: &[u8; LENGTH]) {
    for (half, word) in name.chunks_exact(8).zip(&thread.guest().name) {
        let half = half.iter().rev();
        word.store(
            half.fold(0, |word, &byte| word << 8 | u64::from(byte)),
            Ordering::Relaxed,
        );
    }
    note(thread, None);
}

/// Notes a new thread's id and name for a timeline.
pub fn note_new(thread: &'static Thread) {
    note(thread, Some(thread.guest().tid.load(Ordering::Relaxed)));
}

fn note(thread: &'static Thread, id: Option<i32>) {
    let Some(runtime) = GUEST.runtime() else {
        return;
    };
    if runtime.kernel().is_traced() {
        let name = [0, 1].map(|half| thread.guest().name[half].load(Ordering::Relaxed));
        runtime.kernel().note_identity(thread, id, name);
    }
}

/// Names the thread of that id, and its kernel thread if it has one of its own.
fn name_in_kernel(thread: &'static Thread, id: i32, name: &[u8; LENGTH]) {
    let length = name.iter().position(|&byte| byte == 0);
    let name = &name[..length.unwrap_or(LENGTH)];
    if id < FIRST && !GUEST.names_kernel_threads() {
        name_kernel_thread(id, name);
    }
    if let Some(id) = record::kernel_id(thread) {
        name_kernel_thread(id, name);
    }
}

/// Writes the first thread's name where the kernel keeps it.
fn name_kernel_thread(id: i32, name: &[u8]) {
    let mut path = [0u8; 40];
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    let mut rest = id;
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut length = 0;
    for part in [PREFIX, &digits[at..], SUFFIX] {
        path[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as u64;
    let folder = libc::AT_FDCWD as u64;
    let file = raw(
        libc::SYS_openat,
        [folder, path.as_ptr() as u64, flags, 0, 0, 0],
    );
    if file >= 0 {
        let length = name.len() as u64;
        let words = [file as u64, name.as_ptr() as u64, length, 0, 0, 0];
        raw(libc::SYS_write, words);
        raw(libc::SYS_close, [file as u64, 0, 0, 0, 0, 0]);
    }
}

/// Notes the name of the thread that is there when the runtime starts; others inherit it.
pub fn adopt_first(thread: &'static Thread) {
    let mut name = [0u8; LENGTH];
    let option = libc::PR_GET_NAME as u64;
    raw(
        libc::SYS_prctl,
        [option, name.as_mut_ptr() as u64, 0, 0, 0, 0],
    );
    set(thread, &name);
}

/// Gives the calling kernel thread, which is to carry this thread alone, its name.
pub fn give_back(thread: &'static Thread) {
    let name = get(thread);
    let words = [libc::PR_SET_NAME as u64, name.as_ptr() as u64, 0, 0, 0, 0];
    raw(libc::SYS_prctl, words);
}

/// Gives the calling kernel thread, an activation's, the name of the thread that it is about to run.
pub fn follow(activation: &Activation, thread: &'static Thread) {
    let mut differs = false;
    for (has, wanted) in activation.kernel.name.iter().zip(&thread.guest().name) {
        let wanted = wanted.load(Ordering::Relaxed);
        differs |= has.load(Ordering::Relaxed) != wanted;
        has.store(wanted, Ordering::Relaxed);
    }
    if differs {
        give_back(thread);
    }
}

/// PR_SET_NAME.
pub fn set_own(thread: &'static Thread, at: usize) -> i64 {
    let mut bytes = [0u8; LENGTH];
    for (index, byte) in bytes.iter_mut().take(LENGTH - 1).enumerate() {
        match byte_at(at + index) {
            Ok(0) => break,
            Ok(value) => *byte = value,
            Err(Fault) => return -i64::from(libc::EFAULT),
        }
    }
    set(thread, &bytes);
    name_in_kernel(thread, thread.guest().tid.load(Ordering::Relaxed), &bytes);
    0
}

/// PR_GET_NAME.
pub fn get_own(thread: &'static Thread, at: usize) -> i64 {
    for (index, word) in thread.guest().name.iter().enumerate() {
        if access::store_u64(at + 8 * index, word.load(Ordering::Relaxed)).is_err() {
            return -i64::from(libc::EFAULT);
        }
    }
    0
}

/// Reads one byte of the program: a string may end at the end of a page.
fn byte_at(address: usize) -> Result<u8, Fault> {
    Ok(access::load_u32(address & !3)?.to_le_bytes()[address & 3])
}

/// Serves open(2) and openat(2) if they are about a thread's name; else returns `None`.
pub fn open(runtime: &'static Runtime, frame: &Frame) -> Option<i64> {
    let (path, flags) = match frame.rax as i64 {
        libc::SYS_open => (frame.rdi as usize, frame.rsi),
        _ => (frame.rsi as usize, frame.rdx),
    };
    let (id, part) = named_by(path, own_id)?;
    let thread = GUEST.identities.find(id)?;
    if part == Part::Folder {
        return None;
    }
    let mut name = [0; LENGTH];
    if !while_it_lives(runtime, (thread, id), || name = get(thread)) {
        return None;
    }
    let in_memory = flags & libc::O_CLOEXEC as u64 != 0;
    let file = raw(
        libc::SYS_memfd_create,
        [c"comm".as_ptr() as u64, u64::from(in_memory), 0, 0, 0, 0],
    );
    if file < 0 {
        return Some(file);
    }
    if flags & libc::O_ACCMODE as u64 == libc::O_RDONLY as u64 {
        let mut text = [0u8; LENGTH + 1];
        text[..LENGTH].copy_from_slice(&name);
        let length = text.iter().position(|&byte| byte == 0).unwrap_or(0);
        text[length] = b'\n';
        let words = [
            file as u64,
            text.as_ptr() as u64,
            length as u64 + 1,
            0,
            0,
            0,
        ];
        raw(libc::SYS_pwrite64, words);
        return Some(file);
    }
    let entry = u64::from(id as u32) << 32 | (file as u64 + 1);
    let free = |slot: &&AtomicU64| {
        slot.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    if WRITTEN.iter().find(free).is_some() {
        NR_WRITTEN.fetch_add(1, Ordering::SeqCst);
    }
    Some(file)
}

/// What a path of procfs is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Folder,
    Name,
}

/// A path of the program's, from some byte on.
struct Rest(usize);

impl Rest {
    /// Passes over this text, if it is next.
    fn take(&mut self, text: &[u8]) -> Option<()> {
        for (index, &expected) in text.iter().enumerate() {
            if byte_at(self.0 + index).ok()? != expected {
                return None;
            }
        }
        self.0 += text.len();
        Some(())
    }

    fn number(&mut self) -> Option<i32> {
        let (mut number, begin) = (0i32, self.0);
        while let Some(digit) = byte_at(self.0).ok().filter(u8::is_ascii_digit) {
            number = number
                .checked_mul(10)?
                .checked_add(i32::from(digit - b'0'))?;
            self.0 += 1;
        }
        (self.0 != begin).then_some(number)
    }
}

/// Returns the id of the thread of which a path is, if it has one of the forms `/proc/self/task/ID` and `/proc/PID/task/ID`, also with
/// `/comm`, or is `/proc/thread-self/comm`. `own`: the id of the calling thread.
fn named_by(path: usize, own: impl Fn() -> Option<i32>) -> Option<(i32, Part)> {
    // Few paths begin so, and this is in the way of each call with one.
    const BEGIN: &[u8; 6] = b"/proc/";
    let first = access::load_u64(path).ok()?.to_le_bytes();
    if first[..BEGIN.len()] != *BEGIN {
        return None;
    }
    let mut rest = Rest(path + BEGIN.len());
    if rest.take(b"thread-self/comm\0").is_some() {
        return Some((own()?, Part::Name));
    }
    if rest.take(b"self").is_none() {
        let pid = GUEST.pid.load(Ordering::Relaxed) as i32;
        rest.number().filter(|&number| number == pid)?;
    }
    rest.take(b"/task/")?;
    let id = rest.number()?;
    if rest.take(SUFFIX).is_some() {
        return Some((id, Part::Name));
    }
    let _ = rest.take(b"/");
    rest.take(b"\0")?;
    Some((id, Part::Folder))
}

/// Returns the calling thread's id, if it is one of the program's.
fn own_id() -> Option<i32> {
    let id = caller::own_thread()?.guest().tid.load(Ordering::Relaxed);
    Some(id)
}

/// A call that asks about a file by its path, access(2) or stat(2) and their kin: where that is a thread's folder or name, which the kernel
/// does not have, the same call for another of this process, which looks the same. Else `None`.
pub fn asked(frame: &Frame) -> Option<Frame> {
    let has_folder = match frame.rax as i64 {
        libc::SYS_fstat => return None,
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_access => false,
        _ => true,
    };
    let path = if has_folder { frame.rsi } else { frame.rdi };
    let (id, part) = named_by(path as usize, own_id)?;
    let is_first = id == GUEST.pid.load(Ordering::Relaxed) as i32;
    GUEST.identities.find(id).filter(|_| !is_first)?;
    let other = match part {
        Part::Folder => c"/proc/thread-self/.",
        Part::Name => c"/proc/self/comm",
    };
    let mut frame = frame.clone();
    let place = if has_folder {
        &mut frame.rsi
    } else {
        &mut frame.rdi
    };
    *place = other.as_ptr() as u64;
    Some(frame)
}

/// Called when these descriptors are about to be closed: names may have been written to them.
#[inline]
pub fn closes(runtime: &'static Runtime, first: u32, last: u32) {
    if NR_WRITTEN.load(Ordering::Relaxed) != 0 {
        take(runtime, first, last);
    }
}

/// Looks at the thread of that id, or changes it, unless it has ended. Returns true if it had not.
fn while_it_lives(
    runtime: &'static Runtime,
    whose: (&'static Thread, i32),
    act: impl FnOnce(),
) -> bool {
    if !caller::is_outside() {
        return pending::while_it_lives(runtime, whose, |_| act()).is_some();
    }
    let before = mask::change_kernel_mask(mask::ALL);
    let done = pending::holds_while(runtime, whose, || {
        act();
        true
    });
    mask::set_kernel_mask(before);
    done
}

#[cold]
fn take(runtime: &'static Runtime, first: u32, last: u32) {
    for slot in &WRITTEN {
        let entry = slot.load(Ordering::Acquire);
        let descriptor = (entry as u32).wrapping_sub(1);
        if entry == 0
            || !(first..=last).contains(&descriptor)
            || slot
                .compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
        {
            continue;
        }
        NR_WRITTEN.fetch_sub(1, Ordering::SeqCst);
        let mut text = [0u8; LENGTH];
        let words = [
            u64::from(descriptor),
            text.as_mut_ptr() as u64,
            LENGTH as u64 - 1,
            0,
            0,
            0,
        ];
        let id = (entry >> 32) as i32;
        let read = raw(libc::SYS_pread64, words) >= 0;
        let end = text.iter().position(|&byte| byte == 0);
        text[end.unwrap_or(LENGTH)..].fill(0);
        if read
            && let Some(thread) = GUEST.identities.find(id)
            && while_it_lives(runtime, (thread, id), || set(thread, &text))
        {
            name_in_kernel(thread, id, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn paths_of_threads_are_known_by_their_forms() {
        let pid = GUEST.pid.swap(77, Ordering::Relaxed);
        let (name, folder) = (Some((4, Part::Name)), Some((4, Part::Folder)));
        for (path, expected) in [
            ("/proc/self/task/4/comm", name),
            ("/proc/77/task/4/comm", name),
            ("/proc/self/task/4", folder),
            ("/proc/77/task/4/", folder),
            ("/proc/thread-self/comm", Some((9, Part::Name))),
            ("/proc/78/task/4/comm", None),
            ("/proc/self/task/", None),
            ("/proc/self/task/comm", None),
            ("/proc/self/task/4/status", None),
            ("/proc/self/task/4/common", None),
            ("/proc/self/task/99999999999/comm", None),
            ("/proc/self/comm", None),
            ("/proc/cpuinfo", None),
            ("/", None),
        ] {
            let text = CString::new(path).unwrap();
            assert_eq!(
                named_by(text.as_ptr() as usize, || Some(9)),
                expected,
                "{path}"
            );
        }
        GUEST.pid.store(pid, Ordering::Relaxed);
    }
}
