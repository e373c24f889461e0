//! Calls that the kernel continues after every interruption but a handler of the program's: several messages at once, files
//! to sockets, random bytes. They block, and continue after a signal of the runtime's own has cut them short.

use upcall_linux::poller::Kind;
use upcall_linux::{Runtime, preempt};

use crate::ground::access;
use crate::ground::entry::{Frame, NEVER, program_call, raw_syscall};

use super::{begin_undisturbed, block, rest, was_disturbed};

/// The offset of the number of moved bytes in a `struct mmsghdr`, and the size of that struct.
const MOVED: usize = 56;
const MESSAGE: u64 = 64;
const MSG_WAITFORONE: u64 = libc::MSG_WAITFORONE as u64;
/// The most messages of one call.
const MOST: u64 = 1024;
/// The error that a signal leaves to the next call on a socket from which recvmmsg(2) had something.
const ERESTARTSYS: i64 = -512;
/// How many random bytes getrandom(2) gives at once.
pub const NEVER_SHORT: u64 = 256;
const EINTR: i64 = -(libc::EINTR as i64);

/// Makes a call that moves `total`, and then its rest by `rest`, which gets its words and how much is done and returns
/// false if no rest is wanted.
fn in_parts(
    runtime: &'static Runtime,
    frame: &Frame,
    total: u64,
    mut rest: impl FnMut(&mut [u64; 7], u64) -> bool,
) -> i64 {
    let mut moved = 0;
    let mut words = frame.words();
    loop {
        begin_undisturbed();
        // SAFETY: the program's own call, or the rest of it.
        let make = || unsafe { program_call(&words, &frame.made, &NEVER) };
        let answer = runtime.blocking(make) as i64;
        let interrupted = matches!(answer, EINTR | ERESTARTSYS);
        if interrupted && moved > 0 && was_disturbed() {
            continue;
        }
        let Ok(more) = u64::try_from(answer) else {
            return if moved > 0 { moved as i64 } else { answer };
        };
        moved += more;
        if more == 0 || !was_disturbed() {
            return moved as i64;
        }
        words = frame.words();
        if !rest(&mut words, moved) || moved >= total {
            return moved as i64;
        }
    }
}

/// sendfile(2). The kernel has moved the offset already.
// Not inlined, as the others: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
pub fn send_file(runtime: &'static Runtime, frame: &Frame) -> i64 {
    in_parts(runtime, frame, frame.r10, |words, moved| {
        words[4] -= moved;
        true
    })
}

/// getrandom(2).
#[inline(never)]
pub fn fill(runtime: &'static Runtime, frame: &Frame) -> i64 {
    in_parts(runtime, frame, frame.rsi, |words, moved| {
        words[1] += moved;
        words[2] -= moved;
        true
    })
}

/// fallocate(2). For a file in memory the kernel undoes everything when a signal comes, and would start again for ever. So
/// the runtime's own signals wait for the end.
#[inline(never)]
pub fn allocate(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let own = 1u64 << (preempt::SIGNAL - 1);
    let change = |how: i32| {
        let words = [how as u64, (&raw const own) as u64, 0, 8, 0, 0];
        // SAFETY: reads eight bytes.
        unsafe { raw_syscall(libc::SYS_rt_sigprocmask, words) };
    };
    runtime.blocking(|| {
        change(libc::SIG_BLOCK);
        // SAFETY: the program's own call.
        let answer = unsafe { frame.raw() } as i64;
        change(libc::SIG_UNBLOCK);
        answer
    })
}

/// Returns how many messages the call is about.
fn messages(frame: &Frame) -> u64 {
    u64::from(frame.rdx as u32).min(MOST)
}

/// recvmmsg(2). The kernel counts its time limit down.
#[inline(never)]
pub fn receive_many(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let waits = frame.r10 & (MSG_WAITFORONE | rest::MSG_DONTWAIT) == 0;
    let count = messages(frame);
    in_parts(runtime, frame, count, |words, moved| {
        words[2] += MESSAGE * moved;
        words[3] = count - moved;
        waits
    })
}

/// sendmmsg(2). The last message that was sent may have been sent in part.
#[inline(never)]
pub fn send_many(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let count = messages(frame);
    in_parts(runtime, frame, count, |words, sent| {
        words[2] += MESSAGE * sent;
        words[3] = count - sent;
        finish_message(runtime, frame, words[2] - MESSAGE)
    })
}

/// Sends the rest of a message of sendmmsg(2). Returns false if it cannot be sent.
fn finish_message(runtime: &'static Runtime, frame: &Frame, message: u64) -> bool {
    let mut one = frame.clone();
    one.rax = libc::SYS_sendmsg as u64;
    one.rsi = message;
    one.rdx = frame.r10;
    let at = message as usize + MOVED;
    let Ok(moved) = access::load_u32(at) else {
        return false;
    };
    let total = rest::total(&one);
    if moved as usize >= total {
        return true;
    }
    let moved = block(
        runtime,
        &one,
        frame.rdi as i32,
        Kind::Socket,
        moved as usize,
    );
    let stored = access::store_u32(at, moved as u32);
    stored.is_ok() && moved as usize >= total
}
