//! What a simulated program can do, the same for every kind of thread: fork and join, wait and wake,
//! lock, compute, and block in the kernel.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use upcall_core::kernel::Vessels;
use upcall_core::{Entered, Runtime};

use super::kernel::Timed;
use super::setup::Kind;
use super::{Doing, Event, Machine, Space};
use crate::costs::Costs;

type Body = Box<dyn FnOnce(Me)>;

/// A thread's view of the world; the same for all threads of an address space.
#[derive(Clone, Copy)]
pub struct Me {
    machine: &'static Machine,
    space: usize,
}

/// A word that threads wait for.
#[derive(Default)]
pub struct Word {
    /// Its value.
    pub value: AtomicU32,
    /// Vessels that wait for it in the kernel.
    sleepers: RefCell<VecDeque<usize>>,
}

impl Word {
    /// A word with this value.
    pub fn new(value: u32) -> Self {
        Word {
            value: AtomicU32::new(value),
            sleepers: RefCell::default(),
        }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(&self.value) as usize
    }
}

/// A lock whose waiters park: 0 free, 1 held, 2 held and perhaps waited for.
#[derive(Default)]
pub struct Mutex(Word);

/// The end of a thread.
pub struct Joint(Rc<Word>);

struct Start {
    me: Me,
    body: Body,
    done: Rc<Word>,
    stack: usize,
}

/// Makes the first thread of an address space.
pub(crate) fn boot(machine: &'static Machine, space: usize, main: Body) {
    let stack = machine.stack();
    let start = Start {
        me: Me { machine, space },
        body: main,
        done: Rc::default(),
        stack,
    };
    let argument = Box::into_raw(Box::new(start)) as usize;
    let index = machine.add_vessel(space, stack, first, argument);
    machine.rouse(index);
}

fn started(argument: usize) -> Start {
    // SAFETY: each landing is passed a box that is its own.
    *unsafe { Box::from_raw(argument as *mut Start) }
}

extern "C" fn first(argument: usize, _: usize, _: usize) -> ! {
    let Start { me, body, .. } = started(argument);
    let space = me.space();
    if space.kind != Kind::KernelThreads {
        let kernel = Timed::new(me.machine, me.space);
        let runtime = Runtime::create(kernel).expect("memory");
        let processors: Vec<u32> = (0..space.vps.len() as u32).collect();
        let (inside, thread) = runtime.adopt(&processors).expect("virtual processors");
        thread.kernel.0.store(true, Ordering::Relaxed);
        runtime
            .kernel()
            .set_vessel(inside.vp().word().owner(), me.machine.running.get());
        runtime.kernel().set_inside();
        space.runtime.set(Some(runtime));
        runtime.start().expect("kernel threads");
        inside.leave();
    }
    let mut report = space.report.get();
    report.began = me.now();
    space.report.set(report);
    body(me);
    me.machine.finish(me.space)
}

extern "C" fn user_thread(argument: usize, _: usize, _: usize) -> ! {
    let Start {
        me,
        body,
        done,
        stack,
    } = started(argument);
    let runtime = me.runtime();
    // SAFETY: a landing.
    unsafe { runtime.arrive() }.leave();
    runtime.kernel().handle();
    body(me);
    me.machine.charge(me.costs().exit);
    done.value.store(1, Ordering::SeqCst);
    let inside = runtime.enter();
    inside.futex_wake(done.key(), usize::MAX, u32::MAX);
    drop(done);
    inside.exit_thread(
        |inside, thread, stack| {
            let runtime = inside.runtime();
            runtime.kernel().free_stack(stack);
            runtime.free_thread(thread);
            None
        },
        stack,
    )
}

extern "C" fn kernel_thread(argument: usize, _: usize, _: usize) -> ! {
    let Start {
        me,
        body,
        done,
        stack,
    } = started(argument);
    body(me);
    me.in_kernel(me.costs().exit);
    done.value.store(1, Ordering::SeqCst);
    me.rouse(&done, u32::MAX);
    drop(done);
    me.machine.free_stack(stack);
    me.machine.stop(Doing::Gone);
    unreachable!("a thread that is gone was resumed")
}

impl Me {
    fn space(self) -> &'static Space {
        &self.machine.spaces[self.space]
    }

    fn costs(self) -> &'static Costs {
        &self.space().costs
    }

    fn runtime(self) -> &'static Runtime<Timed> {
        self.space().runtime.get().expect("a runtime")
    }

    fn is_user(self) -> bool {
        self.space().kind != Kind::KernelThreads
    }

    /// The time, in nanoseconds.
    pub fn now(self) -> u64 {
        self.machine.now.get()
    }

    /// An operation of the kernel on its threads, perhaps under its one lock.
    fn in_kernel(self, cost: u64) {
        let costs = self.costs();
        if !costs.one_lock {
            self.machine.charge(cost);
            return;
        }
        let enters = self.now() + costs.trap;
        let has_lock = self.machine.kernel_lock.get().max(enters);
        let leaves = has_lock + cost - costs.trap;
        self.machine.kernel_lock.set(leaves);
        self.machine.charge(leaves - self.now());
    }

    /// Computes for this time.
    pub fn work(self, time: u64) {
        let space = self.space();
        let mut report = space.report.get();
        report.computed += time;
        space.report.set(report);
        let time = match space.costs.bus {
            0 => time,
            bus => time + time * bus * self.machine.nr_computing() / 100,
        };
        if !self.is_user() {
            // Nobody interrupts it.
            self.machine.spend(time, true);
            return;
        }
        let runtime = self.runtime();
        let slice = space.costs.slice;
        let mut left = time;
        while left != 0 {
            let used = self.machine.me(|vessel| vessel.used.get());
            let piece = left.min(slice - used);
            // More is left than there was, if it has just been switched to, which costs time too.
            let spent = piece.saturating_sub(self.machine.spend(piece, true));
            left -= spent;
            self.machine.me(|vessel| vessel.used.set(used + spent));
            runtime.kernel().handle();
            if self.machine.me(|vessel| vessel.used.get()) >= slice {
                self.machine.me(|vessel| vessel.used.set(0));
                runtime.interrupted(true);
            }
        }
    }

    /// Makes a thread.
    pub fn fork(self, body: impl FnOnce(Me) + 'static) -> Joint {
        let done = Rc::new(Word::new(0));
        let stack = self.machine.stack();
        let start = Start {
            me: self,
            body: Box::new(body),
            done: done.clone(),
            stack,
        };
        let argument = Box::into_raw(Box::new(start)) as usize;
        if !self.is_user() {
            self.in_kernel(self.costs().fork);
            let index = self
                .machine
                .add_vessel(self.space, stack, kernel_thread, argument);
            self.machine.rouse(index);
            return Joint(done);
        }
        self.at_user_level(self.costs().fork, |inside| {
            let creator = inside.thread().expect("a thread makes it");
            let thread = inside.runtime().new_thread(creator).expect("memory");
            // SAFETY: a stack of its own; `user_thread` does not return.
            unsafe { inside.launch(thread, false, stack, user_thread, [argument, 0, 0]) };
            inside
        });
        Joint(done)
    }

    /// Waits for the end of a thread.
    pub fn join(self, joint: Joint) {
        while joint.0.value.load(Ordering::SeqCst) == 0 {
            self.wait(&joint.0, 0);
        }
    }

    /// Waits for a wake-up, if the word still has this value.
    pub fn wait(self, word: &Word, value: u32) {
        let matches = || word.value.load(Ordering::SeqCst) == value;
        if !self.is_user() {
            self.in_kernel(self.costs().wait);
            self.sleep_in_kernel(word, matches);
            return;
        }
        self.at_user_level(self.costs().wait, |inside| {
            inside.futex_wait(word.key(), u32::MAX, None, matches).0
        });
    }

    /// Wakes at most so many that wait.
    pub fn wake(self, word: &Word, count: u32) {
        if !self.is_user() {
            self.in_kernel(self.costs().signal);
            self.rouse(word, count);
            return;
        }
        self.at_user_level(self.costs().signal, |inside| {
            inside.futex_wake(word.key(), count as usize, u32::MAX);
            inside
        });
    }

    /// An operation inside the runtime, which may go on on another activation.
    fn at_user_level(self, cost: u64, operation: impl FnOnce(Entered<Timed>) -> Entered<Timed>) {
        self.machine.charge(cost);
        let runtime = self.runtime();
        operation(runtime.enter()).leave();
        runtime.kernel().handle();
    }

    fn sleep_in_kernel(self, word: &Word, matches: impl FnOnce() -> bool) {
        if matches() {
            let vessel = self.machine.running.get();
            word.sleepers.borrow_mut().push_back(vessel);
            let doing = if self.is_user() {
                Doing::Blocked
            } else {
                Doing::Sleeping
            };
            self.machine.stop(doing);
        }
    }

    fn rouse(self, word: &Word, count: u32) {
        for _ in 0..count {
            let sleeper = word.sleepers.borrow_mut().pop_front();
            let Some(sleeper) = sleeper else { return };
            if self.is_user() {
                self.machine.unblock(sleeper);
            } else {
                self.machine.rouse(sleeper);
            }
        }
    }

    /// Runs `section` with the lock held.
    pub fn locked<R>(self, mutex: &Mutex, section: impl FnOnce() -> R) -> R {
        let word = &mutex.0;
        self.machine.charge(self.costs().lock);
        let free = (word.value).compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst);
        if free.is_err() {
            while word.value.swap(2, Ordering::SeqCst) != 0 {
                self.wait(word, 2);
            }
        }
        let result = section();
        if word.value.swap(0, Ordering::SeqCst) == 2 {
            self.wake(word, 1);
        }
        result
    }

    /// Enters the kernel: an announced call of a user-level thread.
    fn call(self, call: impl FnOnce()) {
        if self.is_user() {
            self.runtime().blocking(call);
            self.runtime().kernel().handle();
        } else {
            call();
        }
    }

    /// Blocks in the kernel for this time.
    pub fn block(self, time: u64) {
        self.call(|| {
            let machine = self.machine;
            machine.charge(self.costs().trap + self.costs().kernel_wait);
            let event = Event::Unblock {
                vessel: machine.running.get(),
            };
            machine.schedule(machine.now.get() + time, event);
            machine.stop(Doing::Blocked);
            machine.charge(self.costs().kernel_signal);
        });
    }

    /// As [`Me::wait`], in the kernel, whatever the thread is.
    pub fn wait_in_kernel(self, word: &Word, value: u32) {
        let costs = self.costs();
        self.call(|| {
            self.machine.charge(costs.trap + costs.kernel_wait);
            self.sleep_in_kernel(word, || word.value.load(Ordering::SeqCst) == value);
        });
    }

    /// As [`Me::wake`], in the kernel, whatever the thread is.
    pub fn wake_in_kernel(self, word: &Word, count: u32) {
        let costs = self.costs();
        self.call(|| {
            self.machine.charge(costs.trap + costs.kernel_signal);
            self.rouse(word, count);
        });
    }
}

impl Timed {
    fn free_stack(&self, stack: usize) {
        self.machine().free_stack(stack);
    }
}
