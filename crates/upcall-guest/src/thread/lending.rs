//! How urgent threads are: what each asks for, and what is lent to it.
//!
//! A thread has the more urgent one of two ranks: its own, and the most urgent that was lent to it. A thread that waits for
//! a mutex of the crate lends its rank to the holder, and to the one for which the holder waits (priority inheritance: Sha,
//! Rajkumar and Lehoczky 1990). A holder gives back what was lent when it has freed its last mutex. The same holds for
//! mutexes of libc with PTHREAD_PRIO_INHERIT. Only awaited ones are known: the word that FUTEX_LOCK_PI(2const) waits for
//! names its holder.
//!
//! Protocol, under one lock:
//! 1. A waiter marks the mutex as awaited before it looks for the holder ([`lend`]).
//! 2. A thread that frees an awaited mutex removes its name afterwards ([`freed`]). A waiter that looks later lends
//!    nothing; one that has looked before is seen.
//!
//! Approach rejected: giving back at each mutex what was lent for it. It takes a list of waiters for every mutex that a
//! thread holds, and few threads hold two.

use core::sync::atomic::{AtomicU32, Ordering};

use upcall_core::{Rank, SpinLock};
use upcall_linux::{Inside, Thread};

use crate::ground::attributes::GuestAttributes;
use crate::ground::caller;
use crate::ground::state::{GUEST, Policy};
use crate::thread::{deadlines, scheduling, shell};

/// At most this many threads that wait for one another are followed.
const LONGEST_CHAIN: u32 = 64;

static LENDING: SpinLock<()> = SpinLock::new(());

/// What a thread of the crate asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asks {
    /// From 1 to 99, the larger the more urgent; counts where threads are ordered by priority.
    pub priority: Option<u8>,
    /// When its work must be done, in nanoseconds of CLOCK_MONOTONIC; counts where threads are ordered by that.
    pub deadline: Option<u64>,
    /// For the program's own policy.
    pub tag: u64,
    /// It serves the program's threads. From its beginning it blocks all signals: they are theirs.
    pub serves: bool,
}

impl Asks {
    fn rank(self) -> Option<Rank> {
        match GUEST.policy() {
            Policy::Deadline => self
                .deadline
                .map(|deadline| Rank(deadline.min(Rank::COMMON.0 - 1))),
            _ => None,
        }
    }
}

/// Called when the runtime starts, with its first thread.
pub fn adopt_first(first: &'static Thread) {
    first.guest().lent_rank.store(u64::MAX, Ordering::Relaxed);
}

/// Returns true if threads have ranks. Then [`took`] and [`freed`] must be called.
#[inline]
pub fn lends() -> bool {
    GUEST.has_ranks()
}

/// Called when a thread of the crate begins, in a block that may have been another's.
#[cold]
pub fn begin(inside: &Inside, thread: &'static Thread, asks: Asks) {
    inherit(inside, (inside.thread(), thread));
    ask(inside, thread, asks);
}

/// Gives a new thread what its creator has.
pub fn inherit(inside: &Inside, (creator, thread): (Option<&'static Thread>, &'static Thread)) {
    let state = thread.guest();
    state.locks.store(0, Ordering::Relaxed);
    state.waits_for.store(0, Ordering::Relaxed);
    state.tag.store(0, Ordering::Relaxed);
    state.lent_rank.store(u64::MAX, Ordering::Relaxed);
    deadlines::forget(thread);
    if GUEST.orders_by_priority() {
        scheduling::inherit(inside, (creator, thread));
    } else {
        let own = creator
            .filter(|&creator| !deadlines::has(creator))
            .map(own_rank);
        // Of one that is held a policy would have to know, which has perhaps just ended.
        let own = own.filter(|&rank| rank != Rank::HELD);
        let own = own.unwrap_or(Rank::COMMON);
        set_own(inside, thread, own);
    }
    if let Some(asks) = creator.and_then(shell::asked_by) {
        ask(inside, thread, asks);
    }
}

/// Called when a thread asks for something.
pub fn ask(inside: &Inside, thread: &'static Thread, asks: Asks) {
    thread.guest().tag.store(asks.tag, Ordering::Relaxed);
    if asks.serves {
        thread
            .kernel
            .mask
            .store(shell::ALL_OF_PROGRAM, Ordering::Relaxed);
    }
    change(inside, thread, asks);
}

/// As [`ask`], of a thread that keeps its tag.
pub fn change(inside: &Inside, thread: &'static Thread, asks: Asks) {
    if let Some(priority) = asks.priority {
        scheduling::ask(inside, thread, priority);
    }
    if let Some(rank) = asks.rank() {
        set_own(inside, thread, rank);
    }
}

/// Returns what a thread asks for, or the program's policy for it.
pub fn own_rank(thread: &'static Thread) -> Rank {
    Rank(thread.guest().own_rank.load(Ordering::Relaxed))
}

/// Called in the child of a fork: the holder of the lock stayed in the parent.
///
/// # Safety
///
/// The only thread of the process.
pub unsafe fn forget() {
    // SAFETY: nobody has it, and ranks are of threads that are not here.
    unsafe { LENDING.unlock() };
}

/// Gives a thread a rank of its own.
pub fn set_own(inside: &Inside, thread: &'static Thread, rank: Rank) {
    let _lending = LENDING.lock(inside.runtime().kernel());
    thread.guest().own_rank.store(rank.0, Ordering::Relaxed);
    publish(inside, thread);
}

/// With `LENDING` locked.
fn publish(inside: &Inside, thread: &'static Thread) {
    let lent = Rank(thread.guest().lent_rank.load(Ordering::Relaxed));
    inside.set_rank(thread, own_rank(thread).min(lent));
}

/// Called when the calling thread has taken a mutex, and writes its name there.
#[cold]
pub fn took(holder: &AtomicU32) {
    if let Some(thread) = caller::own_thread() {
        thread.guest().locks.fetch_add(1, Ordering::Relaxed);
        let name = thread.guest().tid.load(Ordering::Relaxed) as u32;
        holder.store(name, Ordering::Relaxed);
    }
}

/// Called when the calling thread has taken a mutex whose word names its holder and which others wait for.
#[cold]
pub fn took_awaited() {
    if let Some(thread) = caller::own_thread() {
        thread.guest().locks.fetch_add(1, Ordering::Relaxed);
    }
}

/// Called when the calling thread has marked a mutex as awaited, and is about to wait for it.
#[cold]
pub fn lend(holder: &AtomicU32) {
    if let Some(runtime) = caller::runtime() {
        let inside = runtime.enter();
        {
            let _lending = LENDING.lock(runtime.kernel());
            lend_to(&inside, holder.load(Ordering::Relaxed));
        }
        inside.leave();
    }
}

/// As [`lend`], of a mutex whose word names this holder. `mark` marks it as awaited and returns true, unless another thread
/// holds it by now. The holder did not know before that it is awaited, if this is the `first` waiter.
#[cold]
pub fn mark_and_lend<E>(
    name: u32,
    first: bool,
    mark: impl FnOnce() -> Result<bool, E>,
) -> Result<bool, E> {
    let Some(runtime) = caller::runtime() else {
        return mark();
    };
    let inside = runtime.enter();
    let marked = {
        // Until the holder knows: it may free it right after the mark.
        let _lending = LENDING.lock(runtime.kernel());
        let marked = mark();
        if let Ok(true) = marked {
            if first && let Some(holder) = GUEST.identities.find(name as i32) {
                holder.guest().locks.fetch_add(1, Ordering::Relaxed);
            }
            lend_to(&inside, name);
        }
        marked
    };
    inside.leave();
    marked
}

/// Lends the rank of `activation`'s thread to the one of that name, and to the one for which that one waits. With `LENDING`
/// locked.
fn lend_to(inside: &Inside, holder: u32) {
    let Some(own) = inside.thread() else {
        return;
    };
    let rank = own.rank();
    own.guest().waits_for.store(holder, Ordering::Relaxed);
    let mut name = holder;
    for _ in 0..LONGEST_CHAIN {
        let Some(holds) = GUEST.identities.find(name as i32) else {
            break;
        };
        if name == 0 || holds.rank() <= rank {
            break;
        }
        holds.guest().lent_rank.store(rank.0, Ordering::Relaxed);
        inside.set_rank(holds, rank);
        name = holds.guest().waits_for.load(Ordering::Relaxed);
    }
}

/// Called when the calling thread does not wait for a mutex any more.
#[cold]
pub fn waited() {
    if let Some(thread) = caller::own_thread() {
        thread.guest().waits_for.store(0, Ordering::Relaxed);
    }
}

/// Called when the calling thread has freed a mutex, `awaited` or not.
#[cold]
pub fn freed(holder: &AtomicU32, awaited: bool) {
    give_back(awaited, |name| {
        // Perhaps the next holder's already.
        let _ = holder.compare_exchange(name, 0, Ordering::Relaxed, Ordering::Relaxed);
    });
}

/// Called when the calling thread has freed a mutex whose word named it and which others waited for.
#[cold]
pub fn freed_awaited() {
    give_back(true, |_| {});
}

/// Called when the calling thread has a mutex less. `forget` removes its name from that, if anybody can have seen it.
fn give_back(awaited: bool, forget: impl FnOnce(u32)) {
    let Some(thread) = caller::own_thread() else {
        return;
    };
    let state = thread.guest();
    let was_last = || {
        let one_less = |locks: u32| locks.checked_sub(1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        // None, if it was taken before there was a runtime.
        !matches!(state.locks.fetch_update(set, get, one_less), Ok(2..))
    };
    let is_lent = || state.lent_rank.load(Ordering::Relaxed) != u64::MAX;
    let Some(runtime) = caller::runtime().filter(|_| awaited || is_lent()) else {
        was_last();
        return;
    };
    let inside = runtime.enter();
    {
        // Before the count: the first waiter may not have counted it yet.
        let _lending = LENDING.lock(runtime.kernel());
        forget(state.tid.load(Ordering::Relaxed) as u32);
        if was_last() && is_lent() {
            state.lent_rank.store(u64::MAX, Ordering::Relaxed);
            publish(&inside, thread);
        }
    }
    inside.leave();
}
