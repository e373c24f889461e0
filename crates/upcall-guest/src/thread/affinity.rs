//! The processors that threads ask for: sched_setaffinity(2). A thread keeps running on the virtual processors.

use upcall_linux::Thread;
use upcall_linux::affinity::{self, Set};

use crate::ground::access;
use crate::ground::entry::Frame;

const EFAULT: i64 = -(libc::EFAULT as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);

/// Returns the processors that the thread has asked for, without those that the program may not use, or all that it may
/// use.
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
pub fn get_affinity(thread: &'static Thread, frame: &Frame) -> i64 {
    let mut mask = affinity::allowed();
    if let Some(asked) = thread.kernel.asked.get()
        && !asked.and(&mask).is_empty()
    {
        mask = asked.and(&mask);
    }
    let mask = mask.0;
    if !frame.rsi.is_multiple_of(8) {
        return EINVAL;
    }
    let bytes = (frame.rsi as usize).min(size_of_val(&mask)) & !7;
    let needed = 8 * (1 + mask.iter().rposition(|&word| word != 0).unwrap_or(0));
    if bytes < needed {
        return EINVAL;
    }
    for (index, word) in mask.iter().take(bytes / 8).enumerate() {
        if access::store_u64(frame.rdx as usize + 8 * index, *word).is_err() {
            return EFAULT;
        }
    }
    bytes as i64
}

/// sched_setaffinity(2) of a thread, which keeps running on the virtual processors.
// Not inlined, as above.
#[inline(never)]
pub fn set_affinity(thread: &'static Thread, frame: &Frame) -> i64 {
    let mut asked = Set([0; affinity::WORDS]);
    for (index, word) in asked.0.iter_mut().take(frame.rsi as usize / 8).enumerate() {
        match access::load_u64(frame.rdx as usize + 8 * index) {
            Ok(wanted) => *word = wanted,
            Err(access::Fault) => return EFAULT,
        }
    }
    if asked.and(&affinity::allowed()).is_empty() {
        return EINVAL;
    }
    thread.kernel.asked.set(&asked);
    0
}
