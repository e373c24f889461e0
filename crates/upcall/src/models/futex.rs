//! In the place of `crate::futex` under loom: its atomics, and a futex as the manual promises one.
//!
//! A look at the word and the start of a wait are one step for whoever wakes, with a full barrier before the
//! look: so do the kernel and the core. A wait with a deadline ends by itself at any moment.

use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::atomic::{self, fence};
use loom::sync::{Condvar, Mutex};

/// As in `std`. Loom takes SeqCst for AcqRel but in fences, so there is one on both sides of such an access.
#[derive(Debug)]
pub(crate) struct AtomicU32(atomic::AtomicU32);

fn ordered<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
    if order != Ordering::SeqCst {
        return access();
    }
    fence(order);
    let result = access();
    fence(order);
    result
}

impl AtomicU32 {
    pub(crate) fn new(value: u32) -> Self {
        AtomicU32(atomic::AtomicU32::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u32 {
        ordered(order, || self.0.load(order))
    }

    pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
        ordered(order, || self.0.swap(value, order))
    }

    pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        ordered(order, || self.0.fetch_add(value, order))
    }

    pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        ordered(order, || self.0.fetch_sub(value, order))
    }

    pub(crate) fn compare_exchange(
        &self,
        from: u32,
        to: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        ordered(success, || {
            self.0.compare_exchange(from, to, success, failure)
        })
    }

    pub(crate) fn compare_exchange_weak(
        &self,
        from: u32,
        to: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.compare_exchange(from, to, success, failure)
    }
}

/// Some moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Deadline(());

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Option<Self> {
        (timeout != Duration::MAX).then_some(Deadline(()))
    }
}

/// Who waits, in the order that they came.
#[derive(Default)]
struct Queue {
    /// The word's address, and the number of who waits for it.
    waiting: Vec<(usize, u32)>,
    came: u32,
}

loom::lazy_static! {
    static ref FUTEX: (Mutex<Queue>, Condvar) = (Mutex::new(Queue::default()), Condvar::new());
}

/// Begins an execution of a model, before there is a second thread.
#[cfg(test)]
pub(crate) fn begin() {
    drop(FUTEX.0.lock().unwrap());
}

pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> bool {
    let (queue, woken) = &*FUTEX;
    let mut locked = queue.lock().unwrap();
    fence(Ordering::SeqCst);
    if word.load(Ordering::Relaxed) != expected {
        return true;
    }
    locked.came += 1;
    let own = (std::ptr::from_ref(word).addr(), locked.came);
    locked.waiting.push(own);
    if deadline.is_some() {
        // Others run, or not; then the time is over.
        drop(locked);
        loom::thread::yield_now();
        locked = queue.lock().unwrap();
        let left = locked.waiting.len();
        locked.waiting.retain(|other| *other != own);
        return locked.waiting.len() == left;
    }
    while locked.waiting.contains(&own) {
        locked = woken.wait(locked).unwrap();
    }
    true
}

pub(crate) fn looks() -> u32 {
    0
}

pub(crate) fn wake(word: &AtomicU32, count: u32) -> u32 {
    let (queue, woken) = &*FUTEX;
    let mut locked = queue.lock().unwrap();
    let address = std::ptr::from_ref(word).addr();
    let mut left = count;
    locked.waiting.retain(|other| {
        let wakes = other.0 == address && left > 0;
        left -= u32::from(wakes);
        !wakes
    });
    drop(locked);
    if left < count {
        woken.notify_all();
    }
    count - left
}
