//! Waiting for a word: a thread of the runtime waits at user level, any other in the kernel (futex(2)).
//!
//! What waits and what wakes may be either: with the runtime in the process, wake-ups go both ways.

use std::time::Duration;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use std::sync::atomic::AtomicUsize;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use std::sync::atomic::fence;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use upcall_guest::direct::Company;

/// Pauses (`pause` on x86-64) before a word that another processor may change is looked at again: a look takes the cache
/// line from the processor that changes it, and it comes back ten times as slowly as it is changed. Go's mutex pauses
/// about as long.
const PAUSES: u32 = 32;

/// So many times longer is each pause than the last one: a word that was not free for so long is used all the time, and
/// looks are what its users lose most by.
const GROWTH: u32 = 4;

/// How often a thread looks again before it waits. Altogether this takes some times as long as a wait and a wake-up at
/// user level, which disturb the holder of the word, too. More looks are wasted if the thread that would change the
/// word is ready behind this one.
const LOOKS: u32 = 2;

/// The same where nobody is ready behind us: its processor would look for work that long, too.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
const IDLE_LOOKS: u32 = 3;

/// A moment of the clock that sleeps by (CLOCK_MONOTONIC), in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline(u64);

impl Deadline {
    /// Returns the moment after this time; `None` if it is beyond the range of the clock, which means never.
    pub fn after(timeout: Duration) -> Option<Self> {
        let ns = u64::try_from(timeout.as_nanos()).ok()?;
        now_ns().checked_add(ns).map(Deadline)
    }

    /// That moment, in nanoseconds of CLOCK_MONOTONIC.
    pub const fn at(ns: u64) -> Self {
        Deadline(ns)
    }
}

/// A moment, in nanoseconds of that clock; one that has passed is now at the latest.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn moment(at: std::time::Instant) -> u64 {
    let ahead = at.saturating_duration_since(std::time::Instant::now());
    now_ns().saturating_add(u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX))
}

/// The clock's time.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the structure; the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a wait came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waited {
    /// It was woken, or something else has ended the wait.
    Woken,
    /// The word had another value: there was no wait.
    Changed,
    /// The deadline has passed.
    TimedOut,
}

/// Waits until somebody wakes the word, provided that it is `expected`. May return early. Returns true if the deadline
/// did not pass.
#[inline]
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> bool {
    wait_or_say(word, expected, deadline) != Waited::TimedOut
}

/// As [`wait`], for a caller that must know whether it was woken.
pub(crate) fn wait_or_say(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Waited {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(runtime) = upcall_guest::direct::runtime() {
        let deadline = deadline.map(|deadline| deadline.0);
        return said(upcall_guest::direct::wait(
            runtime, word, expected, deadline,
        ));
    }
    let time = deadline.map(|deadline| libc::timespec {
        tv_sec: (deadline.0 / 1_000_000_000) as i64,
        tv_nsec: (deadline.0 % 1_000_000_000) as i64,
    });
    // Until a moment, unlike FUTEX_WAIT.
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    match keeping_errno(|| {
        // SAFETY: reads the word and the time.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                operation,
                expected,
                time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
                std::ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        }
    }) {
        Ok(_) => Waited::Woken,
        Err(number) => said(number),
    }
}

/// Makes a call that leaves an error number in errno, which is afterwards what it was: functions of the C library
/// come here and promise that.
fn keeping_errno(call: impl FnOnce() -> libc::c_long) -> Result<libc::c_long, i32> {
    // SAFETY: the calling thread's.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    match call() {
        // SAFETY: as above.
        -1 => Err(unsafe { errno.replace(before) }),
        answer => Ok(answer),
    }
}

/// What an error number of futex(2), or none, says of a wait.
#[inline]
fn said(number: i32) -> Waited {
    match number {
        libc::ETIMEDOUT => Waited::TimedOut,
        libc::EAGAIN => Waited::Changed,
        _ => Waited::Woken,
    }
}

/// How long to look at a word again and again before the wait for it.
pub(crate) struct Patience {
    looks: u32,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Patience { looks: 0 }
    }

    /// Pauses before the next look, unless it is time to wait.
    pub(crate) fn lasts(&mut self) -> bool {
        if self.looks >= limit() {
            return false;
        }
        for _ in 0..PAUSES * GROWTH.pow(self.looks) {
            std::hint::spin_loop();
        }
        self.looks += 1;
        true
    }
}

/// So many looks are not too many before a wait.
fn limit() -> u32 {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(runtime) = upcall_guest::direct::runtime() {
        return match upcall_guest::direct::company(runtime) {
            // Nobody can change the word meanwhile.
            Company::Alone => 0,
            Company::Behind => LOOKS,
            Company::Elsewhere => IDLE_LOOKS,
        };
    }
    LOOKS
}

/// One half of a barrier between threads, whose other half is [`pass_barriers`]: here only the compiler must not reorder.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline(always)]
pub(crate) fn light_barrier() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

/// Makes every other thread that runs pass a full barrier. Returns false if that cannot be had.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn pass_barriers() -> bool {
    upcall_guest::direct::pass_barriers()
}

/// Wakes at most `count` of those that wait for the word. Returns how many.
pub(crate) fn wake(word: &AtomicU32, count: u32) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(runtime) = upcall_guest::direct::runtime() {
        return upcall_guest::direct::wake(runtime, word, count);
    }
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let count = count.min(i32::MAX as u32);
    // SAFETY: wakes on an address; touches no memory.
    let woken = keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, count)
    })
    .unwrap_or(0);
    woken.max(0) as u32
}

/// Changes a word and wakes one of those that wait for it. `change` is told whether a thread is known to wait: one
/// that is, is woken, or gives up at this moment. `change` returns true if it has changed the word, and so does this.
/// The change may be the last use of the word: afterwards its address serves as a name, and nothing looks at it.
pub(crate) fn change_and_wake(word: &AtomicU32, change: impl FnOnce(bool) -> bool) -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(runtime) = upcall_guest::direct::runtime() {
        return upcall_guest::direct::change_and_wake(runtime, word, change);
    }
    // The kernel does not say which threads wait.
    let changed = change(false);
    if changed {
        wake(word, 1);
    }
    changed
}

/// Set in a word in which a thread waits alone.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) const LONE: u64 = upcall_guest::direct::LONE;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) const LONE: u64 = 1 << 63;

/// How a wait alone ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alone {
    /// What the thread waited for was handed to it. The word is no longer its own.
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux")),
        expect(dead_code, reason = "without a runtime nobody waits alone")
    )]
    Handed,
    /// Another one has come to wait ([`move_lone`]): the thread has waited for the word's less significant half since, and is
    /// in the word as that one has put it.
    Moved,
    /// Nothing has happened to the word.
    Again,
    /// Here it cannot wait so.
    Cannot,
}

/// Waits in the word, if that is 0. While a thread waits there, the word has [`LONE`], and what else it has is to be passed
/// to [`hand`] and [`move_lone`], which alone may change it.
#[inline]
pub(crate) fn alone(word: &AtomicU64) -> Alone {
    alone_then(word, |_| true)
}

/// As [`alone`]. `then` is called where nothing runs on the thread's stack, with true when the thread waits in the word; it may
/// run again already. If `then` returns false, the thread does not wait. It is not called where the thread cannot wait so. It may
/// use no thread-local storage and make no call.
#[inline]
pub(crate) fn alone_then(word: &AtomicU64, then: impl FnOnce(bool) -> bool + Copy) -> Alone {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(runtime) = upcall_guest::direct::runtime() {
        use upcall_guest::direct::Lone;
        // SAFETY: the word is changed as said above.
        return match unsafe { upcall_guest::direct::wait_alone(runtime, word, then) } {
            Lone::Handed => Alone::Handed,
            Lone::Moved => Alone::Moved,
            Lone::Again => Alone::Again,
        };
    }
    let _ = (word, then);
    Alone::Cannot
}

/// Waits for a moment: for what another processor is about to do.
#[cold]
pub(crate) fn pause(pauses: &mut u32) {
    *pauses += 1;
    if !pauses.is_multiple_of(PAUSES) {
        std::hint::spin_loop();
    } else {
        // The kernel has perhaps preempted it.
        std::thread::yield_now();
    }
}

/// Hands over what the thread waits for that has put this into the word, which is 0 then, and wakes it. Returns false if the
/// word was another one. It may be the last use of the word. `alone` is put into the word in the child of a fork, where
/// that thread is not.
#[inline]
pub(crate) fn hand(word: &AtomicU64, content: u64, alone: u64) -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(runtime) = upcall_guest::direct::runtime_of_process() {
        // SAFETY: the content was found there, and is a thread's.
        return unsafe { upcall_guest::direct::hand_over(runtime, word, content) };
    }
    replace(word, content, alone)
}

/// Lets the thread that has put this into the word wait for `key`, as [`wait`] does, and changes the word. Returns false if
/// that was another one.
#[cold]
pub(crate) fn move_lone(word: &AtomicU64, content: u64, becomes: u64, key: &AtomicU32) -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(runtime) = upcall_guest::direct::runtime_of_process() {
        // SAFETY: as in `hand`.
        return unsafe { upcall_guest::direct::move_lone(runtime, word, content, becomes, key) };
    }
    let _ = key;
    replace(word, content, becomes)
}

/// The thread that has put `content` there is not in this process.
#[cold]
fn replace(word: &AtomicU64, content: u64, becomes: u64) -> bool {
    use std::sync::atomic::Ordering;
    word.compare_exchange(content, becomes, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
}

/// The half of a word that threads wait for: the less significant one.
pub(crate) fn low(word: &AtomicU64) -> &AtomicU32 {
    const { assert!(cfg!(target_endian = "little"), "the first half") };
    // SAFETY: the first half of the word, as aligned, for as long.
    unsafe { &*word.as_ptr().cast::<AtomicU32>() }
}
