//! futex(2) between threads and outside kernel threads, which wait in the kernel.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use crate::ground::entry::raw_syscall;

/// What a futex(2) returns.
pub type Answer = i64;

pub const PRIVATE: u64 = 128;
pub const CLOCK_REALTIME: u64 = 256;
pub const WAIT: u64 = 0;
pub const WAKE: u64 = 1;
pub const LOCK_PI: u64 = 6;
pub const UNLOCK_PI: u64 = 7;
pub const TRYLOCK_PI: u64 = 8;
pub const WAIT_REQUEUE_PI: u64 = 11;
pub const LOCK_PI2: u64 = 13;

/// How many threads wait, in the kernel, for words that other processes may share.
pub static SHARED_WAITS: AtomicUsize = AtomicUsize::new(0);

/// How many outside kernel threads make a futex call now.
pub static OUTSIDE_CALLS: AtomicUsize = AtomicUsize::new(0);

/// Makes a call in which an outside kernel thread may wait.
pub fn counted(call: impl FnOnce() -> Answer) -> Answer {
    // SeqCst: counted before the kernel looks at the word. Pairs with the load in `wake_outside`, after the lock under
    // which the waker found too few threads, and with that in `wake_shared`.
    OUTSIDE_CALLS.fetch_add(1, Ordering::SeqCst);
    SHARED_WAITS.fetch_add(1, Ordering::SeqCst);
    let answer = call();
    SHARED_WAITS.fetch_sub(1, Ordering::SeqCst);
    OUTSIDE_CALLS.fetch_sub(1, Ordering::SeqCst);
    answer
}

/// Called when a thread has ended and its word is cleared: wakes those that wait for the word in the kernel.
pub fn wake_shared(address: usize) {
    // Before the look: a waiter counts itself before the kernel looks at the word.
    fence(Ordering::SeqCst);
    if SHARED_WAITS.load(Ordering::SeqCst) != 0 {
        wake_kernel(address, i32::MAX as usize, false);
    }
}

/// Wakes outside kernel threads, if any may wait.
pub fn wake_outside(address: usize, count: usize) -> Answer {
    if count == 0 || OUTSIDE_CALLS.load(Ordering::SeqCst) == 0 {
        return 0;
    }
    wake_kernel(address, count, true)
}

/// Wakes kernel threads that wait for the word.
pub fn wake_kernel(address: usize, count: usize, private: bool) -> Answer {
    let operation = if private { WAKE | PRIVATE } else { WAKE };
    // The kernel's count has a sign: a greater one would be one.
    let count = count.min(i32::MAX as usize);
    // SAFETY: wakes only.
    let woken = unsafe {
        raw_syscall(
            libc::SYS_futex,
            [address as u64, operation, count as u64, 0, 0, 0],
        )
    };
    woken.max(0) as Answer
}

/// Lets an outside kernel thread wait for a word of ours, which [`wake_kernel`] wakes.
pub fn wait_kernel(word: &AtomicU32, expected: u32) {
    // SAFETY: reads the word.
    unsafe {
        let words = [
            word.as_ptr() as u64,
            WAIT | PRIVATE,
            expected.into(),
            0,
            0,
            0,
        ];
        raw_syscall(libc::SYS_futex, words);
    }
}

/// Called in the child of a fork, which has one thread.
pub fn forget() {
    OUTSIDE_CALLS.store(0, Ordering::Relaxed);
    SHARED_WAITS.store(0, Ordering::Relaxed);
}

/// Returns true if a call of that number and operation can give its caller a mutex with priority inheritance.
pub fn takes_pi(number: u64, operation: u64) -> bool {
    number == libc::SYS_futex as u64
        && matches!(
            operation & !(PRIVATE | CLOCK_REALTIME),
            LOCK_PI | LOCK_PI2 | TRYLOCK_PI | WAIT_REQUEUE_PI
        )
}
