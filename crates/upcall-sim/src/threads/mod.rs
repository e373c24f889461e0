//! Threads of the test and what they can do: the test's own little libc.

pub(crate) mod advice;
mod futexes;
pub(crate) mod outside;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use upcall_core::Claim;
use upcall_core::Waited;
use upcall_core::kernel::Vessels;
use upcall_core::{Activation, Machine as _, Rank, Runtime, WakeReason};

use crate::daemon;
use crate::machine::policy::Call;
use crate::machine::sim::Sim;
use crate::machine::space::Space;
use crate::machine::{Doing, Machine, Thread};

const STACK: usize = 128 << 10;

/// A thread's view of the world.
#[derive(Clone, Copy)]
pub struct Me {
    /// Its machine.
    pub machine: &'static Machine,
    /// What is the kernel's of its address space.
    pub space: &'static Space,
    /// Its runtime.
    pub runtime: &'static Runtime<Sim>,
    /// The thread itself.
    pub thread: &'static Thread,
}

type Body = Box<dyn FnOnce(Me)>;

/// The end of a thread.
#[derive(Clone, Copy)]
pub struct Handle {
    done: &'static AtomicU32,
    /// The thread.
    pub thread: &'static Thread,
}

/// Runs `main` as first thread of a new runtime, the address space `space`, with a virtual processor
/// on each of `processors`.
pub fn boot(
    machine: &'static Machine,
    space: usize,
    processors: &[u32],
    main: impl FnOnce(Me) + 'static,
) {
    let boot = Boot {
        machine,
        space,
        processors: processors.to_vec(),
        body: Box::new(main),
    };
    machine.add_vessel(
        space,
        machine.memory(STACK) as usize + STACK,
        first,
        Box::into_raw(Box::new(boot)) as usize,
    );
}

/// Adds the kernel thread by which a program hears what the daemon says.
pub(crate) fn boot_listener(machine: &'static Machine, space: usize) {
    let stack = machine.memory(STACK) as usize + STACK;
    let machine_word = std::ptr::from_ref(machine) as usize;
    let vessel = machine.add_vessel(space, stack, daemon::listen, machine_word);
    machine.vessel(vessel, |vessel| vessel.listens.set(true));
    let space = &machine.spaces[space];
    space.listener.set(Some(vessel));
    // It is not for the runtime to count.
    space.alive.set(space.alive.get() - 1);
}

struct Boot {
    machine: &'static Machine,
    space: usize,
    processors: Vec<u32>,
    body: Body,
}

extern "C" fn first(argument: usize, _: usize, _: usize) -> ! {
    // SAFETY: `boot` passes it.
    let boot = *unsafe { Box::from_raw(argument as *mut Boot) };
    let machine = boot.machine;
    let space = &machine.spaces[boot.space];
    let runtime = Runtime::create(Sim::new(machine, boot.space)).unwrap();
    let (inside, thread) = runtime.adopt(&boot.processors).unwrap();
    inside.kernel.set(machine.running.get() + 1);
    machine.me(|vessel| {
        vessel.activation.set(Some(inside.vp().word().owner()));
        vessel.processor.set(boot.processors[0]);
    });
    space.runtime.set(Some(runtime));
    if machine.is_traced() {
        runtime.begin_trace();
    }
    space.turns.vps.set(boot.processors.len());
    space.advice.begins(thread);
    // Fails where kernel threads run out at once: the first virtual processor works.
    let _ = runtime.start();
    space.has_started.set(true);
    inside.leave();
    let me = Me {
        machine,
        space,
        runtime,
        thread,
    };
    if catch_unwind(AssertUnwindSafe(|| (boot.body)(me))).is_err() {
        machine.fail("main panicked".to_owned());
    }
    machine.end_program(boot.space)
}

/// Runs `body` as a kernel thread of an address space that has no runtime.
pub(crate) fn boot_kernel_thread(machine: &'static Machine, space: usize, body: fn(KernelThread)) {
    let thread = KernelThread { machine, space };
    let boot = Box::into_raw(Box::new((thread, body))) as usize;
    let stack = machine.memory(STACK) as usize + STACK;
    let vessel = machine.add_vessel(space, stack, begin_kernel_thread, boot);
    machine.spaces[space]
        .kernel_threads
        .borrow_mut()
        .push(vessel);
}

extern "C" fn begin_kernel_thread(boot: usize, _: usize, _: usize) -> ! {
    // SAFETY: `boot_kernel_thread` passes it.
    let (thread, body) = *unsafe { Box::from_raw(boot as *mut (KernelThread, fn(KernelThread))) };
    thread.step();
    body(thread);
    let space = &thread.machine.spaces[thread.space];
    let me = thread.machine.running.get();
    space.kernel_threads.borrow_mut().retain(|&one| one != me);
    if space.kernel_threads.borrow().is_empty() {
        thread.machine.end_program(thread.space);
    }
    thread.machine.wait(Doing::Gone);
    unreachable!("a vessel that is gone was resumed")
}

/// A thread of a program without a runtime: a vessel that the kernel runs where the program may.
#[derive(Clone, Copy)]
pub struct KernelThread {
    /// Its machine.
    pub machine: &'static Machine,
    space: usize,
}

impl KernelThread {
    /// Some instructions.
    pub fn step(self) {
        self.machine.give_way();
        while !self.machine.spaces[self.space].has_processor() {
            self.machine.me(|vessel| vessel.in_turn.set(true));
            self.machine.wait(Doing::Sleeping);
            self.machine.me(|vessel| vessel.in_turn.set(false));
        }
    }

    /// Blocks for `time`.
    pub fn call(self, time: u64) {
        let until = self.machine.clock.get() + time;
        self.machine.wait(Doing::Blocked {
            until,
            fault: false,
        });
        self.step();
    }
}

extern "C" fn landing(argument: usize, done: usize, machine: usize) -> ! {
    // SAFETY: `Me::spawn` passes them.
    let (machine, done) = unsafe { (&*(machine as *const Machine), &*(done as *const AtomicU32)) };
    let space = {
        let _in_kernel = machine.enter();
        machine.space()
    };
    let runtime = space.runtime.get().unwrap();
    // SAFETY: a landing.
    let inside = unsafe { runtime.arrive() };
    let thread = inside.thread().unwrap();
    inside.leave();
    // Only now: the allocator is not made to be stepped.
    // SAFETY: as above.
    let body = *unsafe { Box::from_raw(argument as *mut Body) };
    let me = Me {
        machine,
        space,
        runtime,
        thread,
    };
    if catch_unwind(AssertUnwindSafe(|| body(me))).is_err() {
        machine.fail("a thread panicked".to_owned());
    }
    done.store(1, Ordering::SeqCst);
    me.wake(done, usize::MAX);
    let inside = runtime.enter();
    space.ends(&machine.enter(), thread);
    inside.exit_thread(
        |inside, thread, _| {
            inside.runtime().free_thread(thread);
            None
        },
        0,
    )
}

impl Me {
    /// How often to do what would be done `most` times: less often in a smaller run.
    pub fn some(self, most: u64) -> u64 {
        self.machine.some(most)
    }

    /// From here on `holds`, which says what is wrong, is asked whenever nothing can run. It must not come to a point.
    pub fn at_rest(self, name: &'static str, holds: impl Fn() -> Result<(), String> + 'static) {
        let mut of_scenario = self.machine.of_scenario.borrow_mut();
        of_scenario.push((name, Box::new(holds)));
    }

    /// A word that lives as long as the run.
    pub fn word(self, value: u32) -> &'static AtomicU32 {
        // SAFETY: the machine's memory is aligned to pages, and nobody else has this page.
        let word = unsafe {
            &*self
                .machine
                .memory(size_of::<AtomicU32>())
                .cast::<AtomicU32>()
        };
        word.store(value, Ordering::SeqCst);
        word
    }

    /// Some instructions of the thread's own.
    pub fn step(self) {
        self.machine.point(Call::Step);
        let now = self.runtime.kernel().current().thread().unwrap();
        assert!(
            std::ptr::eq(now, self.thread),
            "a thread on another's stack"
        );
        if let Err(what) = self.machine.watch_step() {
            self.machine.fail(what);
        }
    }

    /// At most so many steps.
    pub fn steps(self, most: u64) {
        for _ in 0..self.machine.pick(most + 1) {
            self.step();
        }
    }

    /// A new thread.
    pub fn spawn(self, body: impl FnOnce(Me) + 'static) -> Handle {
        self.launch(false, 0, body)
    }

    /// A new thread that divides its creator's work.
    pub fn fork(self, body: impl FnOnce(Me) + 'static) -> Handle {
        self.launch(true, 0, body)
    }

    /// A new thread that belongs to a group, for a policy.
    pub fn spawn_in(self, group: usize, body: impl FnOnce(Me) + 'static) -> Handle {
        self.launch(false, group, body)
    }

    fn launch(self, forked: bool, group: usize, body: impl FnOnce(Me) + 'static) -> Handle {
        let body: Body = Box::new(body);
        let body = Box::into_raw(Box::new(body)) as usize;
        let done = self.word(0);
        let stack = self.machine.memory(STACK) as usize + STACK;
        let inside = self.runtime.enter();
        let thread = self.runtime.new_thread(self.thread).unwrap();
        thread.kernel.group.set(group);
        // As the guest's: of one that is held the policy, which may have ended, would have to know.
        let rank = self.thread.rank();
        if rank != Rank::HELD {
            inside.set_rank(thread, rank);
        }
        self.space.begins(&self.machine.enter(), thread);
        // SAFETY: a stack of its own; `landing` does not return.
        unsafe {
            inside.launch(
                thread,
                forked,
                stack,
                landing,
                [
                    body,
                    std::ptr::from_ref(done) as usize,
                    std::ptr::from_ref(self.machine) as usize,
                ],
            );
        }
        inside.leave();
        Handle { done, thread }
    }

    /// Waits for the end of a thread.
    pub fn join(self, handle: Handle) {
        while handle.done.load(Ordering::SeqCst) == 0 {
            self.wait(handle.done, 0, None);
        }
    }

    /// Sleeps so many nanoseconds.
    pub fn sleep(self, time: u64) {
        let deadline = self.machine.clock.get() + time;
        let inside = self.runtime.enter();
        let (inside, waited) = inside.sleep_until(deadline);
        inside.leave();
        if waited == Waited::Ended(WakeReason::TimedOut) {
            assert!(self.machine.clock.get() >= deadline, "woke early");
        } else {
            assert_eq!(waited, Waited::Ended(WakeReason::Interrupted));
        }
    }

    /// Blocks in an announced system call.
    pub fn call(self, time: u64) {
        self.runtime.blocking(|| self.block(time, false));
        self.step();
    }

    /// Blocks without having said so.
    pub fn fault(self, time: u64) {
        self.block(time, true);
        self.step();
    }

    fn block(self, time: u64, fault: bool) {
        self.machine.point(Call::Block);
        let until = self.machine.clock.get() + time;
        while self.machine.clock.get() < until {
            self.machine.wait(Doing::Blocked { until, fault });
            self.machine.handle();
        }
    }

    /// Waits for an edge of a descriptor.
    pub fn read(self, descriptor: usize) {
        let inside = self.runtime.enter();
        let ready = {
            let _in_kernel = self.machine.enter();
            let mut descriptors = self.space.descriptors.borrow_mut();
            let descriptor = &mut descriptors[descriptor];
            let ready = std::mem::take(&mut descriptor.edge);
            if !ready {
                self.thread.begin_park();
                descriptor.waiting.push(self.thread);
                self.space.nr_waiting.set(self.space.nr_waiting.get() + 1);
            }
            ready
        };
        if ready {
            inside.leave();
            return;
        }
        let inside = inside.park_until_claimed(self.thread, None);
        let heard = u64::from(self.thread.wake_reason() == WakeReason::Woken);
        self.space.heard.set(self.space.heard.get() + heard);
        inside.leave();
        self.step();
    }

    /// Something will come for a descriptor.
    pub fn write(self, descriptor: usize, later: u64) {
        let time = self.machine.clock.get() + later;
        self.space.firings.borrow_mut().push((time, descriptor));
    }

    /// Is inside the runtime for a moment, where others may run, and does nothing there.
    pub fn enter_and_leave(self) {
        let inside = self.runtime.enter();
        self.runtime.kernel().now();
        inside.leave();
    }

    /// Sends a thread a signal.
    pub fn signal(self, thread: &'static Thread) {
        let inside = self.runtime.enter();
        let kernel = self.runtime.kernel();
        thread.kernel.pending.store(true, Ordering::SeqCst);
        if self.runtime.interrupt(thread) == Claim::Ready {
            inside.make_ready(thread);
        } else {
            for _ in 0..2 {
                if let Some(carrier) = thread.carrier() {
                    carrier.attend(Activation::<Sim>::DEFERRED);
                    kernel.interrupt(carrier);
                    break;
                }
                kernel.yield_processor();
            }
        }
        inside.leave();
    }

    /// A thread is so urgent from here on; smaller is more.
    pub fn set_rank(self, thread: &'static Thread, rank: u64) {
        let inside = self.runtime.enter();
        {
            let _in_kernel = self.machine.enter();
            self.space.count_ranked(thread);
        }
        inside.set_rank(thread, Rank(rank));
        {
            let _in_kernel = self.machine.enter();
            self.space.turns.forget(thread);
        }
        inside.leave();
    }

    /// Computes for so many nanoseconds, in which nothing else happens.
    pub fn compute_for(self, ns: u64) {
        self.machine.clock.set(self.machine.clock.get() + ns);
        self.step();
    }

    /// Does something in a critical section.
    pub fn in_section<R>(self, act: impl FnOnce() -> R) -> R {
        self.thread.enter_section();
        self.space.in_sections.borrow_mut().push(self.thread);
        self.machine.point(Call::Step);
        let result = act();
        self.machine.point(Call::Step);
        let mut all = self.space.in_sections.borrow_mut();
        let last = all.iter().rposition(|one| std::ptr::eq(*one, self.thread));
        all.swap_remove(last.expect("it is in one"));
        drop(all);
        if self.thread.leave_section() {
            self.runtime.end_section();
        }
        self.step();
        result
    }

    /// Before a wait for others that may be over already.
    pub fn end_turn(self) {
        self.runtime.end_turn();
        self.step();
    }

    /// Gives way to other threads.
    pub fn yield_now(self) {
        let gives_way = &self.thread.kernel.gives_way;
        let inside = self.runtime.enter();
        // Not before, nor after: a thread that is preempted keeps its place among its equals.
        gives_way.store(true, Ordering::Relaxed);
        let inside = inside.give_way();
        gives_way.store(false, Ordering::Relaxed);
        inside.leave();
        self.step();
    }
}
