//! futex(2) for the program. Private words of this process are served at user level. Words that other processes may share
//! go to the kernel.
//!
//! libc marks private words by FUTEX_PRIVATE_FLAG, with one exception: it waits for the end of a thread at the thread's id
//! word without the flag, because the kernel wakes that word so. Such a word is recognised by the thread that it names.
//! Helpers and children of vfork wait in the kernel. While any of them waits, every wake-up goes both to the runtime and to
//! the kernel.

use core::sync::atomic::Ordering;

use upcall_core::Waited;
use upcall_core::WakeReason;
use upcall_linux::{Runtime, Thread};

use crate::call::{pi, time};
use crate::ground::access::{self, Fault};
use crate::ground::attributes::GuestAttributes;
use crate::ground::caller;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::kernel_futex::{
    CLOCK_REALTIME, LOCK_PI, LOCK_PI2, OUTSIDE_CALLS, PRIVATE, SHARED_WAITS, TRYLOCK_PI, UNLOCK_PI,
    WAIT, WAIT_REQUEUE_PI, WAKE, counted, wake_outside,
};
use crate::ground::state::GUEST;
use crate::signal::seen;
use crate::thread::{bound, lifetime};

const REQUEUE: u64 = 3;
const CMP_REQUEUE: u64 = 4;
const WAKE_OP: u64 = 5;
const WAIT_BITSET: u64 = 9;
const WAKE_BITSET: u64 = 10;
const CMP_REQUEUE_PI: u64 = 12;
/// A negative error number, as the kernel returns it.
pub type Answer = i64;

pub(crate) const fn failed(number: i32) -> Answer {
    -(number as i64)
}

/// Returns true if the call is a private wake-up. It is the most frequent call, and cannot be interrupted.
#[inline]
pub fn is_wake(frame: &Frame) -> bool {
    frame.rsi == WAKE | PRIVATE
}

/// Returns true if the call is FUTEX_WAIT or FUTEX_WAIT_BITSET.
pub fn is_wait(frame: &Frame) -> bool {
    let command = frame.rsi & !(PRIVATE | CLOCK_REALTIME);
    matches!(command, WAIT | WAIT_BITSET)
}

/// Returns true if the call is a wait with a relative time limit.
pub fn waits_for_a_while(frame: &Frame) -> bool {
    frame.rsi & !(PRIVATE | CLOCK_REALTIME) == WAIT
}

/// Returns how many waiters a wake-up is for. The kernel counts after it has woken one, so zero and negative counts mean
/// one.
#[inline]
const fn to_wake(count: u64) -> u32 {
    let count = count as i32;
    if count > 0 { count as u32 } else { 1 }
}

/// Serves a call that [`is_wake`].
#[inline]
pub fn serve_wake(runtime: &'static Runtime, frame: &Frame) -> Answer {
    /// Set in no address of a program's word: the bit of the kernel's half of the addresses, and those that break
    /// alignment.
    const WRONG: u64 = 1 << 63 | 3;
    if frame.rdi & WRONG != 0 {
        return failed(if frame.rdi.is_multiple_of(4) {
            libc::EFAULT
        } else {
            libc::EINVAL
        });
    }
    wake(runtime, frame.rdi as usize, to_wake(frame.rdx), u32::MAX)
}

/// Serves the call in `frame`. Returns `None` if the kernel must serve it.
#[inline]
pub fn serve(runtime: &'static Runtime, frame: &Frame) -> Option<Answer> {
    let (address, operation, value) = (frame.rdi as usize, frame.rsi, frame.rdx as u32);
    let command = operation & !(PRIVATE | CLOCK_REALTIME);
    if operation & PRIVATE == 0
        && !is_id_word(address, command, value)
        && !pi::is_owned_here(address, command)
    {
        return None;
    }
    if let Some(error) = refused(frame, command) {
        return Some(error);
    }
    Some(match command {
        WAIT => serve_wait(runtime, frame, u32::MAX),
        WAIT_BITSET if frame.r9 as u32 == 0 => failed(libc::EINVAL),
        WAIT_BITSET => serve_wait(runtime, frame, frame.r9 as u32),
        _ => serve_rarer(runtime, frame, command),
    })
}

/// Returns the error of a call that is wrong whatever the words hold.
#[inline(always)]
fn refused(frame: &Frame, command: u64) -> Option<Answer> {
    if frame.rsi & CLOCK_REALTIME != 0
        && !matches!(command, WAIT_BITSET | WAIT_REQUEUE_PI | LOCK_PI2)
        || command > LOCK_PI2
    {
        return Some(failed(libc::ENOSYS));
    }
    (!frame.rdi.is_multiple_of(4)).then_some(failed(libc::EINVAL))
}

#[inline(always)]
fn serve_wait(runtime: &'static Runtime, frame: &Frame, mask: u32) -> Answer {
    let (address, operation) = (frame.rdi as usize, frame.rsi);
    let relative = operation & !(PRIVATE | CLOCK_REALTIME) == WAIT;
    let real = operation & CLOCK_REALTIME != 0;
    match time::deadline(frame.r10 as usize, relative, real) {
        Ok(deadline) => wait(runtime, address, frame.rdx as u32, mask, deadline),
        Err(number) => failed(number),
    }
}

fn serve_rarer(runtime: &'static Runtime, frame: &Frame, command: u64) -> Answer {
    let (address, operation) = (frame.rdi as usize, frame.rsi);
    match command {
        WAKE => wake(runtime, address, to_wake(frame.rdx), u32::MAX),
        WAKE_BITSET if frame.r9 as u32 == 0 => failed(libc::EINVAL),
        WAKE_BITSET => wake(runtime, address, to_wake(frame.rdx), frame.r9 as u32),
        REQUEUE | CMP_REQUEUE => requeue(runtime, frame, command == CMP_REQUEUE),
        WAKE_OP => wake_op(runtime, frame),
        LOCK_PI | LOCK_PI2 => {
            let real = command == LOCK_PI || operation & CLOCK_REALTIME != 0;
            match time::deadline(frame.r10 as usize, false, real) {
                Ok(deadline) => pi::lock(runtime, address, deadline),
                Err(number) => failed(number),
            }
        }
        TRYLOCK_PI => pi::trylock(address).unwrap_or(failed(libc::EFAULT)),
        UNLOCK_PI => pi::unlock(runtime, address),
        WAIT_REQUEUE_PI => {
            let real = operation & CLOCK_REALTIME != 0;
            match time::deadline(frame.r10 as usize, false, real) {
                Ok(deadline) => pi::wait_requeue(runtime, frame, deadline),
                Err(number) => failed(number),
            }
        }
        CMP_REQUEUE_PI => pi::requeue(runtime, frame),
        _ => failed(libc::ENOSYS),
    }
}

/// Returns true if a word without the private flag is one that the kernel would clear when a thread of ours ends: it holds
/// the thread's id, or lies in its control block (glibc 2.43).
fn is_id_word(address: usize, command: u64, value: u32) -> bool {
    let clears = |id: i32| {
        GUEST
            .identities
            .find(id)
            .is_some_and(|thread| thread.guest().clear_tid.load(Ordering::Relaxed) == address)
    };
    matches!(command, WAIT | WAIT_BITSET)
        && (clears(value as i32) || lifetime::id_beside(address).is_some_and(clears))
}

/// Serves a call on a word that other processes may share, by the kernel. The word may be one that the end of a thread
/// clears, unknown to us. So that end must know of the wait: see [`wake_shared`](crate::ground::kernel_futex::wake_shared).
pub fn shared(runtime: &'static Runtime, frame: &Frame) -> Answer {
    if let Some(answer) = pi::by_agent(runtime, frame) {
        return answer;
    }
    SHARED_WAITS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the program's own call.
    let answer = runtime.blocking(|| unsafe { frame.raw() }) as Answer;
    SHARED_WAITS.fetch_sub(1, Ordering::SeqCst);
    answer
}

/// FUTEX_WAIT_BITSET. `deadline` is a moment of CLOCK_MONOTONIC.
#[inline]
pub fn wait(
    runtime: &'static Runtime,
    address: usize,
    value: u32,
    mask: u32,
    deadline: Option<u64>,
) -> Answer {
    let read = || access::load_u32(address);
    wait_for(runtime, address, read, value, mask, deadline)
}

/// As [`wait`]; `read` reads the word.
#[inline]
pub fn wait_for(
    runtime: &'static Runtime,
    address: usize,
    read: impl Fn() -> Result<u32, Fault>,
    value: u32,
    mask: u32,
    deadline: Option<u64>,
) -> Answer {
    // The first touch happens outside the runtime, where a page fault is an upcall.
    match read() {
        Ok(now) if now != value => return failed(libc::EAGAIN),
        Ok(_) => {}
        Err(Fault) => return failed(libc::EFAULT),
    }
    let inside = runtime.enter();
    let (inside, waited) = inside.futex_wait(address, mask, deadline, || read() == Ok(value));
    seen::note_waited(&inside, &waited);
    inside.leave();
    match waited {
        Waited::Mismatch => failed(libc::EAGAIN),
        Waited::Ended(WakeReason::Woken) => 0,
        Waited::Ended(WakeReason::TimedOut) => failed(libc::ETIMEDOUT),
        Waited::Ended(WakeReason::Interrupted) => failed(libc::EINTR),
    }
}

/// FUTEX_WAKE_BITSET.
#[inline]
pub fn wake(runtime: &'static Runtime, address: usize, count: u32, mask: u32) -> Answer {
    let inside = runtime.enter();
    let woken = inside.futex_wake(address, count as usize, mask);
    inside.leave();
    woken as Answer + wake_outside(address, count as usize - woken.min(count as usize))
}

/// As [`Inside::futex_change_and_wake`](upcall_linux::Inside), but also wakes kernel threads, of which `change` is not told. Returns the result
/// of `change`.
#[inline]
pub fn change_and_wake(
    runtime: &'static Runtime,
    address: usize,
    change: impl FnOnce(bool) -> bool,
) -> bool {
    let inside = runtime.enter();
    let woken = inside.futex_change_and_wake(address, change);
    inside.leave();
    if let Some(woken) = woken {
        wake_outside(address, 1 - woken);
    }
    woken.is_some()
}

/// Serves a call of a helper, or of a child of vfork that shares the memory. They wait in the kernel.
pub fn outside(frame: &mut Frame) {
    // SAFETY: the program's own call.
    let answer = counted(|| unsafe { frame.raw() } as Answer);
    frame.rax = wake_threads_too(frame, answer) as u64;
}

/// Serves a call of a bound thread. It waits in the kernel, which does not know the ids of threads. Mutexes with priority
/// inheritance are therefore served here, and by the thread's agent if it has one. Calls that move other threads from word
/// to word are served in the runtime.
pub fn of_bound(thread: &'static Thread, frame: &mut Frame) -> Answer {
    let (address, operation) = (frame.rdi as usize, frame.rsi);
    let command = operation & !(PRIVATE | CLOCK_REALTIME);
    let Some(runtime) = GUEST.runtime() else {
        outside(frame);
        return frame.rax as Answer;
    };
    let is_private = operation & PRIVATE != 0;
    match command {
        LOCK_PI | LOCK_PI2 | TRYLOCK_PI | UNLOCK_PI | WAIT_REQUEUE_PI | CMP_REQUEUE_PI
            if is_private || pi::is_owned_here(address, command) =>
        {
            refused(frame, command).unwrap_or_else(|| serve_rarer(runtime, frame, command))
        }
        REQUEUE | CMP_REQUEUE | WAKE_OP if is_private => {
            let visited = |runtime| serve_rarer(runtime, frame, command);
            refused(frame, command)
                .or_else(|| bound::visit(thread, visited))
                .unwrap_or(failed(libc::ENOSYS))
        }
        _ => {
            let by_agent = (operation & PRIVATE == 0).then(|| pi::by_agent(runtime, frame));
            by_agent.flatten().unwrap_or_else(|| {
                outside(frame);
                frame.rax as Answer
            })
        }
    }
}

/// As [`wait`], for an outside kernel thread.
pub(crate) fn wait_outside(address: usize, value: u32, deadline: Option<u64>) -> Answer {
    const NS: u64 = 1_000_000_000;
    let time = deadline.map(|at| [at / NS, at % NS]);
    let at = time.as_ref().map_or(0, |time| time.as_ptr() as u64);
    let words = [
        address as u64,
        WAIT_BITSET | PRIVATE,
        value.into(),
        at,
        0,
        u32::MAX.into(),
    ];
    // SAFETY: reads the word and the time.
    counted(|| unsafe { raw_syscall(libc::SYS_futex, words) } as Answer)
}

/// Extends a wake-up that such a kernel thread makes to user-level threads.
fn wake_threads_too(frame: &Frame, answer: Answer) -> Answer {
    let command = frame.rsi & !(PRIVATE | CLOCK_REALTIME);
    let count = Answer::from(to_wake(frame.rdx));
    if !matches!(command, WAKE | WAKE_BITSET) || !(0..count).contains(&answer) {
        return answer;
    }
    let left = (count - answer) as usize;
    let Some(runtime) = GUEST.runtime() else {
        return answer;
    };
    let mask = if command == WAKE {
        u32::MAX
    } else {
        frame.r9 as u32
    };
    answer + wake_from_outside(runtime, frame.rdi as usize, left, mask)
}

/// Wakes user-level threads from an outside kernel thread.
pub fn wake_from_outside(
    runtime: &'static Runtime,
    address: usize,
    count: usize,
    mask: u32,
) -> Answer {
    caller::outside_with(|| runtime.futex_wake_from_outside(address, count, mask)) as Answer
}

fn requeue(runtime: &'static Runtime, frame: &Frame, compare: bool) -> Answer {
    let (from, to) = (frame.rdi as usize, frame.r8 as usize);
    if !to.is_multiple_of(4) {
        return failed(libc::EINVAL);
    }
    // Without a comparison the kernel does not read the words either.
    if compare && access::load_u32(from).is_err() {
        return failed(libc::EFAULT);
    }
    if (frame.rdx as i32) < 0 || (frame.r10 as i32) < 0 {
        return failed(libc::EINVAL);
    }
    let inside = runtime.enter();
    let moved = inside.futex_requeue(
        from,
        to,
        frame.rdx as u32 as usize,
        frame.r10 as u32 as usize,
        || !compare || access::load_u32(from) == Ok(frame.r9 as u32),
    );
    inside.leave();
    match moved {
        Some((woken, moved)) => {
            let asked = [frame.rdx, frame.r10].map(|count| count as u32 as usize);
            let left = [
                asked[0].saturating_sub(woken),
                asked[1].saturating_sub(moved),
            ];
            (woken + moved) as Answer + requeue_outside(from, to, left)
        }
        None => failed(libc::EAGAIN),
    }
}

/// Wakes and moves outside kernel threads, if any may wait, up to these counts.
fn requeue_outside(from: usize, to: usize, [to_wake, to_move]: [usize; 2]) -> Answer {
    if OUTSIDE_CALLS.load(Ordering::SeqCst) == 0 {
        return 0;
    }
    let words = [from, (REQUEUE | PRIVATE) as usize, to_wake, to_move, to, 0];
    // SAFETY: wakes and moves only.
    let changed = unsafe { raw_syscall(libc::SYS_futex, words.map(|word| word as u64)) };
    changed.max(0) as Answer
}

fn wake_op(runtime: &'static Runtime, frame: &Frame) -> Answer {
    let (first, second) = (frame.rdi as usize, frame.r8 as usize);
    /// FUTEX_OP_XOR and FUTEX_OP_CMP_GE.
    const LAST: (u32, u32) = (4, 5);
    let encoded = frame.r9 as u32;
    if !second.is_multiple_of(4) {
        return failed(libc::EINVAL);
    }
    if encoded >> 28 & 7 > LAST.0 || encoded >> 24 & 15 > LAST.1 {
        return failed(libc::ENOSYS);
    }
    if access::load_u32(second).is_err() {
        return failed(libc::EFAULT);
    }
    let mut fault = false;
    let inside = runtime.enter();
    let woken = inside.futex_wake_op(
        first,
        to_wake(frame.rdx) as usize,
        second,
        to_wake(frame.r10) as usize,
        || match apply(second, frame.r9 as u32) {
            Ok(also) => also,
            Err(Fault) => {
                fault = true;
                false
            }
        },
    );
    inside.leave();
    if fault {
        failed(libc::EFAULT)
    } else {
        woken as Answer
    }
}

/// Applies the operation of FUTEX_WAKE_OP to the word: op (4 bits), cmp (4), operand (12), comparand (12).
fn apply(address: usize, encoded: u32) -> Result<bool, Fault> {
    let shift = encoded >> 31 != 0;
    let operand = (encoded << 8) as i32 >> 20;
    let comparand = (encoded << 20) as i32 >> 20;
    let operand = if shift {
        1 << (operand & 31)
    } else {
        operand as u32
    };
    let mut old = access::load_u32(address)?;
    loop {
        let new = match encoded >> 28 & 7 {
            0 => operand,
            1 => old.wrapping_add(operand),
            2 => old | operand,
            3 => old & !operand,
            _ => old ^ operand,
        };
        let was = access::swap_u32(address, old, new)?;
        if was == old {
            break;
        }
        old = was;
    }
    let old = old as i32;
    Ok(match encoded >> 24 & 15 {
        0 => old == comparand,
        1 => old != comparand,
        2 => old < comparand,
        3 => old <= comparand,
        4 => old > comparand,
        _ => old >= comparand,
    })
}
