//! Mutexes with priority inheritance: FUTEX_LOCK_PI and its kin. Words of this process are served at user level. Words that
//! other processes may share are served by the thread's agent.
//!
//! The word holds the owner's id, and a bit that is set while others wait. A priority is inherited only where threads have
//! ranks ([`lending`]).

use core::sync::atomic::Ordering;

use upcall_linux::{Runtime, Thread};

use crate::call::futex_calls::{self, Answer, failed, wait, wait_outside, wake};
use crate::ground::access::{self, Fault};
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::kernel_futex::{
    LOCK_PI, LOCK_PI2, TRYLOCK_PI, UNLOCK_PI, takes_pi, wake_kernel,
};
use crate::ground::state::GUEST;
use crate::ground::{caller, record};
use crate::thread::{agents, lending};

const TID_MASK: u32 = 0x3fff_ffff;
const OWNER_DIED: u32 = 0x4000_0000;
const WAITERS: u32 = 0x8000_0000;

/// Returns true if the operation is one with priority inheritance, threads have no agents, and the word's owner is a thread
/// of this process or nobody. libc omits the private flag for every robust mutex, and the kernel cannot understand the ids
/// of these threads.
pub fn is_owned_here(address: usize, command: u64) -> bool {
    let is_here = |value: u32| {
        let owner = (value & TID_MASK) as i32;
        owner == 0 || GUEST.identities.find(owner).is_some()
    };
    !agents::are_used()
        && matches!(command, LOCK_PI | LOCK_PI2 | TRYLOCK_PI | UNLOCK_PI)
        && access::load_u32(address).is_ok_and(is_here)
}

/// Has the thread's agent make a call in the kernel, on a word that other processes may share and that holds the caller's
/// id.
pub fn by_agent(runtime: &'static Runtime, frame: &Frame) -> Option<Answer> {
    if !takes_pi(frame.rax, frame.rsi) && frame.rsi != UNLOCK_PI {
        return None;
    }
    let agent = agents::of(own_thread()?)?;
    Some(agent.ask(runtime, frame.words()))
}

/// Returns the calling thread, which is on an activation or bound.
fn own_thread() -> Option<&'static Thread> {
    caller::current_thread().or_else(record::current_thread)
}

fn own_tid() -> u32 {
    own_thread().map_or(0, |thread| {
        thread.guest().tid.load(Ordering::Relaxed) as u32
    })
}

/// Tries to take the word. Returns `None` if another thread owns it.
fn acquire(address: usize, waiters: u32) -> Result<Option<Answer>, Fault> {
    let tid = own_tid();
    let mut value = access::load_u32(address)?;
    loop {
        if value & TID_MASK == tid {
            return Ok(Some(failed(libc::EDEADLK)));
        }
        if value & TID_MASK != 0 {
            return Ok(None);
        }
        let was = access::swap_u32(
            address,
            value,
            tid | value & (WAITERS | OWNER_DIED) | waiters,
        )?;
        if was == value {
            if lending::lends() && (value | waiters) & WAITERS != 0 {
                lending::took_awaited();
            }
            return Ok(Some(0));
        }
        value = was;
    }
}

/// Waits at a word. The caller is on an activation or bound.
fn wait_here(
    runtime: &'static Runtime,
    address: usize,
    value: u32,
    deadline: Option<u64>,
) -> Answer {
    match record::current() {
        Some(_) => wait_outside(address, value, deadline),
        None => wait(runtime, address, value, u32::MAX, deadline),
    }
}

/// Wakes threads that wait in [`wait_here`].
fn wake_here(runtime: &'static Runtime, address: usize, count: u32) -> Answer {
    if record::current().is_none() {
        return wake(runtime, address, count, u32::MAX);
    }
    let woken = wake_kernel(address, count as usize, true);
    let left = (count as usize).saturating_sub(woken as usize);
    if left == 0 {
        return woken;
    }
    woken + futex_calls::wake_from_outside(runtime, address, left, u32::MAX)
}

/// Returns true if the word names an owner that is neither a live thread of this process nor a helper.
fn is_orphaned(address: usize) -> Result<bool, Fault> {
    let value = access::load_u32(address)?;
    let owner = (value & TID_MASK) as i32;
    if owner == 0 || GUEST.identities.find(owner).is_some() {
        return Ok(false);
    }
    let process = u64::from(GUEST.pid.load(Ordering::Relaxed));
    // SAFETY: asks only, by signal 0.
    let answer = unsafe { raw_syscall(libc::SYS_tgkill, [process, owner as u64, 0, 0, 0, 0]) };
    // The owner may have freed the mutex as its last act.
    Ok(answer != 0 && access::load_u32(address)? == value)
}

/// FUTEX_TRYLOCK_PI.
pub fn trylock(address: usize) -> Result<Answer, Fault> {
    Ok(match acquire(address, 0)? {
        Some(answer) => answer,
        None if is_orphaned(address)? => failed(libc::ESRCH),
        None => failed(libc::EAGAIN),
    })
}

/// FUTEX_LOCK_PI. A priority is inherited only where threads have ranks.
pub fn lock(runtime: &'static Runtime, address: usize, deadline: Option<u64>) -> Answer {
    let mut waiters = 0;
    loop {
        match acquire(address, waiters) {
            Ok(Some(answer)) => return answer,
            Ok(None) => {}
            Err(Fault) => return failed(libc::EFAULT),
        }
        match is_orphaned(address) {
            Ok(true) => return failed(libc::ESRCH),
            Ok(false) => {}
            Err(Fault) => return failed(libc::EFAULT),
        }
        let Ok(value) = access::load_u32(address) else {
            return failed(libc::EFAULT);
        };
        if value & TID_MASK == 0 {
            continue;
        }
        let mark = || Ok(access::swap_u32(address, value, value | WAITERS)? == value);
        let marked = match lending::lends() {
            true => lending::mark_and_lend(value & TID_MASK, value & WAITERS == 0, mark),
            false => mark(),
        };
        match marked {
            Ok(true) => {}
            Ok(false) => continue,
            Err(Fault) => return failed(libc::EFAULT),
        }
        // There may be other waiters now or later, so the next owner keeps the mark.
        waiters = WAITERS;
        let answer = wait_here(runtime, address, value | WAITERS, deadline);
        if lending::lends() {
            lending::waited();
        }
        if answer == failed(libc::ETIMEDOUT) {
            return answer;
        }
    }
}

/// FUTEX_UNLOCK_PI.
pub fn unlock(runtime: &'static Runtime, address: usize) -> Answer {
    let Ok(mut value) = access::load_u32(address) else {
        return failed(libc::EFAULT);
    };
    loop {
        if value & TID_MASK != own_tid() {
            return failed(libc::EPERM);
        }
        match access::swap_u32(address, value, 0) {
            Ok(was) if was == value => break,
            Ok(was) => value = was,
            Err(Fault) => return failed(libc::EFAULT),
        }
    }
    wake_here(runtime, address, 1);
    // This comes last: the thread needs the lent rank until it has woken the lender.
    if lending::lends() && value & WAITERS != 0 {
        lending::freed_awaited();
    }
    0
}

/// FUTEX_WAIT_REQUEUE_PI. Waits at the frame's first word, and then for the mutex at its second. A caller of [`requeue`]
/// makes the thread try for the mutex itself.
pub fn wait_requeue(runtime: &'static Runtime, frame: &Frame, deadline: Option<u64>) -> Answer {
    let (from, mutex) = (frame.rdi as usize, frame.r8 as usize);
    if from == mutex || !mutex.is_multiple_of(4) {
        return failed(libc::EINVAL);
    }
    if access::load_u32(mutex).is_err() {
        return failed(libc::EFAULT);
    }
    loop {
        let answer = wait_here(runtime, from, frame.rdx as u32, deadline);
        if answer == 0 {
            return lock(runtime, mutex, deadline);
        }
        if answer != failed(libc::EINTR) {
            return answer;
        }
    }
}

/// FUTEX_CMP_REQUEUE_PI. Threads in [`wait_requeue`] try for the mutex.
pub fn requeue(runtime: &'static Runtime, frame: &Frame) -> Answer {
    let (from, mutex) = (frame.rdi as usize, frame.r8 as usize);
    let (to_wake, to_move) = (frame.rdx as i32, frame.r10 as i32);
    if to_wake != 1 || to_move < 0 || from == mutex || !mutex.is_multiple_of(4) {
        return failed(libc::EINVAL);
    }
    match access::load_u32(from) {
        Ok(value) if value != frame.r9 as u32 => failed(libc::EAGAIN),
        Ok(_) => wake_here(runtime, from, 1 + to_move as u32),
        Err(Fault) => failed(libc::EFAULT),
    }
}
