//! Robust lists (set_robust_list(2)): the locks of a thread that ends are handed on as the kernel does.
//!
//! The list lies in the program's memory, which may hold anything: every word is read with care, and the walk is bounded.

use core::sync::atomic::Ordering;

use upcall_linux::{Inside, Thread};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::raw_syscall;
use crate::ground::{access, kernel_futex};

/// As the kernel's ROBUST_LIST_LIMIT.
const LIMIT: usize = 2048;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
const FUTEX_WAITERS: u32 = 0x8000_0000;

/// Returns true if the thread holds none: the list ends where it begins.
pub fn is_empty(thread: &'static Thread) -> bool {
    let head = thread.guest().robust_list.load(Ordering::Relaxed);
    head == 0 || access::load_u64(head) == Ok(head as u64)
}

/// Returns where the list of the calling kernel thread is, as libc has told the kernel before there was a runtime; 0
/// without one.
pub fn of_kernel_thread() -> usize {
    let (mut head, mut size) = (0usize, 0usize);
    let words = [0, (&raw mut head) as u64, (&raw mut size) as u64, 0, 0, 0];
    // SAFETY: writes two words.
    unsafe { raw_syscall(libc::SYS_get_robust_list, words) };
    head
}

/// Returns true if the thread holds or takes any lock, as far as its list says.
pub fn holds(thread: &'static Thread) -> bool {
    let head = thread.guest().robust_list.load(Ordering::Relaxed);
    !is_empty(thread) || head != 0 && access::load_u64(head.wrapping_add(16)) != Ok(0)
}

/// Marks every lock that the thread still holds as orphaned and wakes a waiter of each. Inside the
/// runtime.
pub fn release_all(inside: &Inside, thread: &'static Thread) {
    let head = thread.guest().robust_list.swap(0, Ordering::Relaxed);
    if head == 0 {
        return;
    }
    let tid = thread.guest().tid.load(Ordering::Relaxed) as u32;
    // struct robust_list_head: next, futex_offset, list_op_pending
    let word = |address: usize| access::load_u64(address).map(|value| value as usize);
    let (Ok(mut entry), Ok(offset), Ok(pending)) = (
        word(head),
        word(head.wrapping_add(8)),
        word(head.wrapping_add(16)),
    ) else {
        return;
    };
    for _ in 0..LIMIT {
        if entry & !1 == head {
            break;
        }
        let next = word(entry & !1);
        if entry & !1 != pending & !1 {
            release(inside, (entry & !1).wrapping_add(offset), tid);
        }
        let Ok(next) = next else { break };
        entry = next;
    }
    if pending != 0 {
        release(inside, (pending & !1).wrapping_add(offset), tid);
    }
}

fn release(inside: &Inside, lock: usize, tid: u32) {
    let Ok(mut value) = access::load_u32(lock) else {
        return;
    };
    while value & FUTEX_TID_MASK == tid {
        let orphaned = value & FUTEX_WAITERS | FUTEX_OWNER_DIED;
        match access::swap_u32(lock, value, orphaned) {
            Ok(was) if was == value => {
                if value & FUTEX_WAITERS != 0 {
                    inside.futex_wake(lock, 1, u32::MAX);
                    kernel_futex::wake_kernel(lock, 1, false);
                }
                return;
            }
            Ok(was) => value = was,
            Err(access::Fault) => return,
        }
    }
}
