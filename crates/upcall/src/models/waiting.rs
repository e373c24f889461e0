//! In the place of `crate::waiting` under loom: its atomics, and a futex as the manual promises one.
//!
//! For a waker, a look at the word and the start of a wait are one step. All such steps are in one order, as under a
//! lock. The kernel and the core do the same. A wait with a deadline may end at any moment, and is still in the list
//! for a moment then.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic;
pub(crate) use loom::sync::atomic::fence;
use loom::thread::{self, Thread};

/// As in `std`. Loom takes SeqCst for AcqRel but in fences, so there is one on both sides of such a change. Of a load there is
/// none: a processor orders it only against changes that are SeqCst, too.
#[derive(Debug)]
pub(crate) struct AtomicU32(Lasting<atomic::AtomicU32>);

/// A word that is read with each access and written when it is dropped: an access that the end of the word's use does not
/// follow in every order fails the model.
#[derive(Debug)]
struct Lasting<T> {
    word: T,
    life: UnsafeCell<()>,
}

impl<T> Lasting<T> {
    fn new(word: T) -> Self {
        let life = UnsafeCell::new(());
        Lasting { word, life }
    }

    fn get(&self) -> &T {
        self.life.with(|_| ());
        &self.word
    }
}

impl<T> Drop for Lasting<T> {
    fn drop(&mut self) {
        self.life.with_mut(|_| ());
    }
}

fn ordered<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
    if order != Ordering::SeqCst {
        return access();
    }
    fence(order);
    let result = access();
    fence(order);
    result
}

fn acquire(order: Ordering) -> Ordering {
    match order {
        Ordering::SeqCst => Ordering::Acquire,
        order => order,
    }
}

impl AtomicU32 {
    pub(crate) fn new(value: u32) -> Self {
        AtomicU32(Lasting::new(atomic::AtomicU32::new(value)))
    }

    pub(crate) fn load(&self, order: Ordering) -> u32 {
        self.0.get().load(acquire(order))
    }

    pub(crate) fn store(&self, value: u32, order: Ordering) {
        ordered(order, || self.0.get().store(value, order));
    }

    pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
        ordered(order, || self.0.get().swap(value, order))
    }

    pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        ordered(order, || self.0.get().fetch_add(value, order))
    }

    pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        ordered(order, || self.0.get().fetch_sub(value, order))
    }

    pub(crate) fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        ordered(order, || self.0.get().fetch_and(value, order))
    }

    pub(crate) fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        ordered(order, || self.0.get().fetch_or(value, order))
    }

    pub(crate) fn compare_exchange(
        &self,
        from: u32,
        to: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        ordered(success, || {
            self.0.get().compare_exchange(from, to, success, failure)
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

/// As in `std`, with what is asked of it.
#[derive(Debug)]
pub(crate) struct AtomicU64(Lasting<atomic::AtomicU64>);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        AtomicU64(Lasting::new(atomic::AtomicU64::new(value)))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.0.get().load(order)
    }

    pub(crate) fn compare_exchange_weak(
        &self,
        from: u64,
        to: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.get().compare_exchange(from, to, success, failure)
    }
}

/// As in `std`, with what is asked of it.
#[derive(Debug)]
pub(crate) struct AtomicUsize(Lasting<atomic::AtomicUsize>);

impl AtomicUsize {
    pub(crate) fn new(value: usize) -> Self {
        AtomicUsize(Lasting::new(atomic::AtomicUsize::new(value)))
    }

    pub(crate) fn load(&self, order: Ordering) -> usize {
        self.0.get().load(acquire(order))
    }

    pub(crate) fn store(&self, value: usize, order: Ordering) {
        ordered(order, || self.0.get().store(value, order));
    }

    pub(crate) fn swap(&self, value: usize, order: Ordering) -> usize {
        ordered(order, || self.0.get().swap(value, order))
    }

    pub(crate) fn compare_exchange(
        &self,
        from: usize,
        to: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        ordered(success, || {
            self.0.get().compare_exchange(from, to, success, failure)
        })
    }
}

/// What threads wait for.
pub(crate) trait Word {
    fn value(&self) -> u32;
}

impl Word for AtomicU32 {
    fn value(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
}

impl Word for AtomicU64 {
    fn value(&self) -> u32 {
        self.load(Ordering::Relaxed) as u32
    }
}

/// A thread that waits for this waits for its less significant half.
pub(crate) fn low(word: &AtomicU64) -> &AtomicU64 {
    word
}

/// As on the machine, where the other half makes it one.
pub(crate) fn light_barrier() {
    fence(Ordering::SeqCst);
}

/// One that is passed here is one for all, with that.
pub(crate) fn pass_barriers() -> bool {
    fence(Ordering::SeqCst);
    true
}

/// The clock stands still.
pub(crate) fn now_ns() -> u64 {
    0
}

/// Some moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Deadline(());

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Option<Self> {
        (timeout != Duration::MAX).then_some(Deadline(()))
    }
}

/// As in `crate::waiting`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waited {
    Woken,
    Changed,
    TimedOut,
}

/// The waiting threads, in the order in which they came: loom runs all threads of a model on one.
struct Futex {
    /// As the lock around the list: an operation takes it, and so sees what earlier ones saw.
    lock: Arc<Mutex<()>>,
    /// How many waits there were.
    waits: u32,
    waiting: Vec<Waiter>,
    /// Those that wait in a word of their own.
    alone: Vec<Waiter>,
    /// The numbers of those that are no longer there, and were not handed anything.
    moved: Vec<u32>,
}

struct Waiter {
    address: usize,
    number: u32,
    thread: Thread,
    /// Its time is over: it is not woken any more.
    gives_up: bool,
}

thread_local! {
    static FUTEX: RefCell<Option<Futex>> = const { RefCell::new(None) };
}

/// Begins an execution of a model, before there is a second thread.
#[cfg(test)]
pub(crate) fn begin() {
    let before = FUTEX.replace(Some(Futex {
        lock: Arc::new(Mutex::new(())),
        waits: 0,
        waiting: Vec::new(),
        alone: Vec::new(),
        moved: Vec::new(),
    }));
    drop(before);
}

fn with<R>(access: impl FnOnce(&mut Futex) -> R) -> R {
    FUTEX.with_borrow_mut(|futex| access(futex.as_mut().expect("in a model")))
}

/// Does something in one step, for all that do something here.
fn operate<R>(action: impl FnOnce() -> R) -> R {
    let lock = with(|futex| futex.lock.clone());
    let _locked = lock.lock().unwrap();
    action()
}

pub(crate) fn wait(word: &impl Word, expected: u32, deadline: Option<Deadline>) -> bool {
    wait_or_say(word, expected, deadline) != Waited::TimedOut
}

pub(crate) fn wait_or_say(word: &impl Word, expected: u32, deadline: Option<Deadline>) -> Waited {
    let thread = thread::current();
    let number = operate(|| {
        (word.value() == expected).then(|| {
            with(|futex| {
                futex.waits += 1;
                futex.waiting.push(Waiter {
                    address: std::ptr::from_ref(word).addr(),
                    number: futex.waits,
                    thread,
                    gives_up: false,
                });
                futex.waits
            })
        })
    });
    let Some(number) = number else {
        return Waited::Changed;
    };
    let waits = || with(|futex| futex.waiting.iter().any(|waiter| waiter.number == number));
    if deadline.is_some() {
        let gives_up = operate(|| {
            with(|futex| {
                let mut waiting = futex.waiting.iter_mut();
                let waiter = waiting.find(|waiter| waiter.number == number);
                waiter.map(|waiter| waiter.gives_up = true).is_some()
            })
        });
        if !gives_up {
            return Waited::Woken;
        }
        operate(|| with(|futex| futex.waiting.retain(|waiter| waiter.number != number)));
        return Waited::TimedOut;
    }
    while waits() {
        thread::park();
    }
    Waited::Woken
}

/// As in `crate::waiting`.
pub(crate) const LONE: u64 = 1 << 63;

/// As in `crate::waiting`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alone {
    Handed,
    Moved,
    Again,
    Cannot,
}

fn replace(word: &AtomicU64, from: u64, to: u64) -> bool {
    word.compare_exchange_weak(from, to, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
}

pub(crate) fn alone(word: &AtomicU64) -> Alone {
    alone_then(word, |_| true)
}

pub(crate) fn pause(_: &mut u32) {
    thread::yield_now();
}

pub(crate) fn alone_then(word: &AtomicU64, then: impl FnOnce(bool) -> bool + Copy) -> Alone {
    let thread = thread::current();
    let number = operate(|| {
        let number = with(|futex| {
            futex.waits += 1;
            futex.waits
        });
        replace(word, 0, LONE | u64::from(number)).then(|| {
            with(|futex| {
                futex.alone.push(Waiter {
                    address: std::ptr::from_ref(word).addr(),
                    number,
                    thread,
                    gives_up: false,
                });
            });
            number
        })
    });
    let stays = then(number.is_some());
    let Some(number) = number else {
        return Alone::Again;
    };
    let is_it = move |waiter: &Waiter| waiter.number == number;
    let waits = || with(|futex| futex.alone.iter().any(is_it) || futex.waiting.iter().any(is_it));
    let withdrawn = !stays
        && operate(|| {
            let content = LONE | u64::from(number);
            let is_there = with(|futex| futex.alone.iter().any(is_it));
            // While it is there, it is in the word.
            is_there && replace(word, content, 0) && {
                with(|futex| take(futex, content));
                true
            }
        });
    if withdrawn {
        return Alone::Again;
    }
    while waits() {
        thread::park();
    }
    match with(|futex| futex.moved.contains(&number)) {
        true => Alone::Moved,
        false => Alone::Handed,
    }
}

/// The one that has put this there.
fn take(futex: &mut Futex, content: u64) -> Waiter {
    let is_it = |waiter: &Waiter| LONE | u64::from(waiter.number) == content;
    let at = futex.alone.iter().position(is_it);
    futex.alone.swap_remove(at.expect("a thread waits there"))
}

pub(crate) fn hand(word: &AtomicU64, content: u64, _: u64) -> bool {
    operate(|| {
        let handed = replace(word, content, 0);
        if handed {
            with(|futex| take(futex, content)).thread.unpark();
        }
        handed
    })
}

pub(crate) fn move_lone(word: &AtomicU64, content: u64, becomes: u64, key: &impl Word) -> bool {
    operate(|| {
        let moved = replace(word, content, becomes);
        if moved {
            with(|futex| {
                let mut waiter = take(futex, content);
                waiter.address = std::ptr::from_ref(key).addr();
                futex.moved.push(waiter.number);
                futex.waiting.push(waiter);
            });
        }
        moved
    })
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

pub(crate) fn wake(word: &impl Word, count: u32) -> u32 {
    operate(|| wake_some(std::ptr::from_ref(word).addr(), count))
}

fn wake_some(address: usize, count: u32) -> u32 {
    let woken = with(|futex| {
        let here = |waiter: &mut Waiter| waiter.address == address && !waiter.gives_up;
        let woken = futex.waiting.extract_if(.., here);
        woken.take(count as usize).collect::<Vec<_>>()
    });
    for waiter in &woken {
        waiter.thread.unpark();
    }
    woken.len() as u32
}

pub(crate) fn change_and_wake(word: &AtomicU32, change: impl FnOnce(bool) -> bool) -> bool {
    let address = std::ptr::from_ref(word).addr();
    operate(|| {
        let here = |waiter: &Waiter| waiter.address == address;
        let changed = change(with(|futex| futex.waiting.iter().any(here)));
        if changed {
            wake_some(address, 1);
        }
        changed
    })
}
