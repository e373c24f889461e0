//! Keyrings of threads (keyrings(7)): add_key(2), request_key(2), keyctl(2).
//!
//! The kernel keeps with a kernel thread which keyrings belong to its thread, its process and its session. If a call names
//! one that does not exist, the kernel makes it. So a call may change the calling thread if it names one of the first two,
//! or the session's where there is none yet. Later calls must find that change, so the call binds the thread
//! ([`crate::thread::bound`]). A session's keyring that the process has already is the same for all activations.

use crate::ground::entry::{Frame, raw_syscall};

const OF_THREAD: i32 = -1;
const OF_PROCESS: i32 = -2;
const OF_SESSION: i32 = -3;
/// The keyring that the kernel uses as the session's where there is none.
const OF_USER_SESSION: i32 = -5;

const GET_KEYRING_ID: i32 = 0;
const JOIN_SESSION_KEYRING: i32 = 1;
const LINK: i32 = 8;
const UNLINK: i32 = 9;
const SEARCH: i32 = 10;
const INSTANTIATE: i32 = 12;
const NEGATE: i32 = 13;
const SET_REQKEY_KEYRING: i32 = 14;
const ASSUME_AUTHORITY: i32 = 16;
const SESSION_TO_PARENT: i32 = 18;
const REJECT: i32 = 19;
const INSTANTIATE_IOV: i32 = 20;
const GET_PERSISTENT: i32 = 22;
const MOVE: i32 = 30;

/// Returns true if a call about keys may change the calling thread.
pub fn is_change(frame: &Frame) -> bool {
    match frame.rax as i64 {
        libc::SYS_add_key => is_own(frame.r8),
        libc::SYS_request_key => is_own(frame.r10),
        _ => {
            let names = match frame.rdi as i32 {
                JOIN_SESSION_KEYRING | SET_REQKEY_KEYRING | ASSUME_AUTHORITY => return true,
                SESSION_TO_PARENT => return false,
                GET_PERSISTENT => [frame.rdx, 0, 0],
                LINK | UNLINK => [frame.rsi, frame.rdx, 0],
                SEARCH | INSTANTIATE | INSTANTIATE_IOV | REJECT => [frame.rsi, frame.r8, 0],
                NEGATE => [frame.rsi, frame.r10, 0],
                MOVE => [frame.rsi, frame.rdx, frame.r10],
                _ => [frame.rsi, 0, 0],
            };
            names.into_iter().any(is_own)
        }
    }
}

/// Returns true if this names a keyring that can belong to a single kernel thread.
fn is_own(name: u64) -> bool {
    let id_of = |name: i32| {
        let words = [GET_KEYRING_ID as u64, name as u64, 0, 0, 0, 0];
        // SAFETY: asks only, and makes no keyring.
        unsafe { raw_syscall(libc::SYS_keyctl, words) }
    };
    match name as i32 {
        OF_THREAD | OF_PROCESS => true,
        OF_SESSION => id_of(OF_SESSION) == id_of(OF_USER_SESSION),
        _ => false,
    }
}
