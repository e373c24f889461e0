//! In the place of `crate::futex` under loom: its atomics, and a futex as the manual promises one.
//!
//! A look at the word and the start of a wait are one step for whoever wakes, and all such steps are in one order, as
//! under a lock: so do the kernel and the core. A wait with a deadline ends by itself at any moment.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::atomic::{self, fence};
use loom::thread::{self, Thread};

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

    pub(crate) fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        ordered(order, || self.0.fetch_and(value, order))
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

/// As in `crate::futex`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waited {
    Woken,
    Changed,
    TimedOut,
}

/// Who waits, in the order that they came: loom runs all threads of a model on one.
struct Futex {
    /// In the place of the lock around the list: an operation takes it, and so sees what earlier ones saw.
    order: Arc<atomic::AtomicU32>,
    /// How many operations there were.
    operations: u32,
    waiting: Vec<Waiter>,
}

struct Waiter {
    address: usize,
    number: u32,
    thread: Thread,
}

thread_local! {
    static FUTEX: RefCell<Option<Futex>> = const { RefCell::new(None) };
}

/// Begins an execution of a model, before there is a second thread.
#[cfg(test)]
pub(crate) fn begin() {
    let order = Arc::new(atomic::AtomicU32::new(0));
    let before = FUTEX.replace(Some(Futex {
        order,
        operations: 0,
        waiting: Vec::new(),
    }));
    drop(before);
}

fn with<R>(access: impl FnOnce(&mut Futex) -> R) -> R {
    FUTEX.with_borrow_mut(|futex| access(futex.as_mut().expect("in a model")))
}

/// Loom may switch to other threads before, and not until its next access. Returns the operation's number.
fn operate() -> u32 {
    let order = with(|futex| futex.order.clone());
    order.fetch_add(1, Ordering::AcqRel);
    with(|futex| {
        futex.operations += 1;
        futex.operations
    })
}

pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> bool {
    wait_or_say(word, expected, deadline) != Waited::TimedOut
}

pub(crate) fn wait_or_say(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Waited {
    let thread = thread::current();
    // The look belongs to the operation if no other one came in between.
    let number = loop {
        let number = operate();
        if word.0.load(Ordering::Relaxed) != expected {
            return Waited::Changed;
        }
        if with(|futex| futex.operations) == number {
            break number;
        }
    };
    with(|futex| {
        futex.waiting.push(Waiter {
            address: std::ptr::from_ref(word).addr(),
            number,
            thread,
        });
    });
    let waits = || with(|futex| futex.waiting.iter().any(|waiter| waiter.number == number));
    if deadline.is_some() {
        operate();
        let timed_out = waits();
        with(|futex| futex.waiting.retain(|waiter| waiter.number != number));
        return match timed_out {
            true => Waited::TimedOut,
            false => Waited::Woken,
        };
    }
    while waits() {
        thread::park();
    }
    Waited::Woken
}

/// None: a look more is a step more.
pub(crate) struct Patience;

impl Patience {
    pub(crate) fn new() -> Self {
        Patience
    }

    pub(crate) fn lasts(&mut self) -> bool {
        false
    }
}

pub(crate) fn wake(word: &AtomicU32, count: u32) -> u32 {
    let address = std::ptr::from_ref(word).addr();
    operate();
    let woken = with(|futex| {
        let here = |waiter: &mut Waiter| waiter.address == address;
        let woken = futex.waiting.extract_if(.., here);
        woken.take(count as usize).collect::<Vec<_>>()
    });
    for waiter in &woken {
        waiter.thread.unpark();
    }
    woken.len() as u32
}
