//! A machine of simulated processors on one kernel thread, driven by a seed.
//!
//! Every activation gets a *vessel*: a context that the machine resumes and that comes back at each
//! *point*. Points are the calls of the [`upcall_core::Kernel`] trait and the steps of the test's
//! threads; at each one the machine may let any other vessel go on, deliver an interruption, or end a
//! time slice. Blocking, sleeping and polling are states of a vessel; the clock is a number that
//! moves with the points and jumps to the next event when nothing can run.
//!
//! What decides at a point is the [`Policy`]; what must hold is in `watch.rs`. Approach rejected: kernel threads under a lock-step
//! scheduler, which a debugger shows better but which costs a futex a point.

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::ops::Deref;

use upcall_core::{Activation, arch};

use crate::policy::{Call, Next, Policy};
use crate::sim::Sim;
use crate::space::Space;
use crate::stepping;
use crate::style::Style;

/// A vessel is stepped for fewer instructions than this at a time.
const STEPS: u64 = 200;

/// A thread of the runtime on this kernel.
pub type Thread = upcall_core::Thread<Sim>;

/// What a vessel does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// Runs, or could.
    Runnable,
    /// In `Kernel::sleep`.
    Sleeping,
    /// In a blocking `Kernel::poll`.
    Polling,
    /// In a system call, or on a page fault, until that time.
    Blocked {
        /// When it ends.
        until: u64,
        /// It is a page fault.
        fault: bool,
    },
    /// It has ended.
    Gone,
}

/// A simulated kernel thread.
pub struct Vessel {
    /// Its address space.
    pub space: usize,
    /// The activation that it is, once there is one.
    pub activation: Cell<Option<&'static Activation<Sim>>>,
    pub(crate) context: Cell<usize>,
    /// What it does.
    pub doing: Cell<Doing>,
    /// Where it is bound.
    pub processor: Cell<u32>,
    /// It is of the idle class.
    pub sentinel: Cell<bool>,
    /// It gives way: others of its processor come first.
    pub yields: Cell<bool>,
    /// An interruption waits for it.
    pub interrupted: Cell<bool>,
    /// Its time slice is over.
    pub slice_over: Cell<bool>,
}

/// The machine.
pub struct Machine {
    /// How badly it behaves.
    pub style: Style,
    /// What is the kernel's of each address space.
    pub spaces: Vec<Space>,
    pub(crate) vessels: RefCell<Vec<Vessel>>,
    pub(crate) running: Cell<usize>,
    policy: RefCell<Box<dyn Policy>>,
    home: Cell<usize>,
    scratch: RefCell<Box<[u128; 512]>>,
    random: Cell<u64>,
    /// The time, in nanoseconds.
    pub clock: Cell<u64>,
    /// Points so far.
    pub points: Cell<u64>,
    /// Times that a vessel was in the simulated kernel.
    pub(crate) reached: Cell<u64>,
    /// Whether a vessel runs, and not the machine.
    resumed: Cell<bool>,
    memory: RefCell<Vec<(*mut u8, Layout)>>,
    /// How deep the vessel is in the simulated kernel.
    depth: Cell<u32>,
    pub(crate) done: Cell<bool>,
    pub(crate) failure: RefCell<Option<String>>,
}

impl Machine {
    /// A machine of `spaces` address spaces, without a vessel. Its style is drawn from the seed, as
    /// everything that follows.
    pub fn new(
        seed: u64,
        spaces: usize,
        style: impl FnOnce(&mut dyn FnMut(u64) -> u64) -> Style,
        policy: impl FnOnce(&Style) -> Box<dyn Policy>,
    ) -> Self {
        let random = Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let style = style(&mut |below| draw(&random) % below);
        let policy = RefCell::new(policy(&style));
        Machine {
            style,
            spaces: (0..spaces).map(|_| Space::new()).collect(),
            vessels: RefCell::default(),
            running: Cell::new(0),
            policy,
            home: Cell::new(0),
            scratch: RefCell::new(Box::new([0; 512])),
            random,
            clock: Cell::new(1_000),
            points: Cell::new(0),
            reached: Cell::new(0),
            resumed: Cell::new(false),
            memory: RefCell::default(),
            depth: Cell::new(0),
            done: Cell::new(false),
            failure: RefCell::new(None),
        }
    }

    /// Asks the policy.
    pub(crate) fn ask<R>(&self, ask: impl FnOnce(&mut dyn Policy) -> R) -> R {
        ask(self.policy.borrow_mut().as_mut())
    }

    /// How many vessels there are; ended ones included.
    pub fn nr_vessels(&self) -> usize {
        self.vessels.borrow().len()
    }

    /// The address space of the vessel that runs.
    pub fn space(&self) -> &Space {
        &self.spaces[self.me(|vessel| vessel.space)]
    }

    /// A number below `below`.
    pub fn pick(&self, below: u64) -> u64 {
        draw(&self.random) % below
    }

    /// True once in `times`.
    pub fn chance(&self, times: u64) -> bool {
        self.pick(times) == 0
    }

    /// Zeroed memory until the end of the run.
    pub(crate) fn memory(&self, length: usize) -> *mut u8 {
        // Aligned by hand: an aligned allocation would be zeroed by writing, not by the kernel.
        let layout = Layout::from_size_align(length + 4096, 16).unwrap();
        // SAFETY: the size is not zero.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!memory.is_null());
        self.memory.borrow_mut().push((memory, layout));
        memory.map_addr(|address| address.next_multiple_of(4096))
    }

    /// Adds a vessel that begins at `landing(argument)` on `stack`.
    pub(crate) fn add_vessel(
        &self,
        space: usize,
        stack: usize,
        landing: Landing,
        argument: usize,
    ) -> usize {
        // SAFETY: the stack is free.
        let context = unsafe { arch::prepare(stack, landing, argument, 0, 0) };
        let mut vessels = self.vessels.borrow_mut();
        vessels.push(Vessel {
            space,
            activation: Cell::new(None),
            context: Cell::new(context),
            doing: Cell::new(Doing::Runnable),
            processor: Cell::new(0),
            sentinel: Cell::new(false),
            yields: Cell::new(false),
            interrupted: Cell::new(false),
            slice_over: Cell::new(false),
        });
        vessels.len() - 1
    }

    /// Looks at one vessel.
    pub fn vessel<R>(&self, index: usize, look: impl FnOnce(&Vessel) -> R) -> R {
        look(&self.vessels.borrow()[index])
    }

    /// Looks at the vessel that runs.
    pub fn me<R>(&self, look: impl FnOnce(&Vessel) -> R) -> R {
        self.vessel(self.running.get(), look)
    }

    /// Resumes a vessel until it comes back.
    pub(crate) fn resume(&self, index: usize) {
        self.running.set(index);
        let context = self.vessel(index, |vessel| vessel.context.get());
        self.resumed.set(true);
        self.switch(self.home.as_ptr(), context);
        self.resumed.set(false);
    }

    /// Whether a vessel runs, and not the machine.
    pub(crate) fn is_in_vessel(&self) -> bool {
        self.resumed.get()
    }

    /// From a vessel back to the machine; returns when the machine resumes the vessel.
    fn come_back(&self) {
        let save = self.me(|vessel| vessel.context.as_ptr());
        let depth = self.depth.replace(0);
        stepping::disarm();
        self.switch(save, self.home.get());
        self.depth.set(depth);
    }

    /// The vessel is in the simulated kernel until the answer is dropped.
    pub(crate) fn enter(&self) -> InKernel<'_> {
        stepping::disarm();
        self.reached.set(self.reached.get() + 1);
        self.depth.set(self.depth.get() + 1);
        InKernel(self)
    }

    /// Whether the running vessel is where it must not be stepped.
    pub(crate) fn is_quiet(&self) -> bool {
        self.depth.get() != 0
            || !self.me(|vessel| vessel.activation.get().is_some_and(|it| it.is_inside()))
    }

    /// In the middle of the runtime, where `stepping` stopped it: lets others run. Returns after how many instructions next.
    pub(crate) fn preempt(&self) -> u64 {
        self.depth.set(self.depth.get() + 1);
        self.stop(Call::Preempted);
        self.handle();
        self.depth.set(self.depth.get() - 1);
        self.pick(STEPS)
    }

    fn switch(&self, save: *mut usize, to: usize) {
        extern "C" fn land(to: usize, _: usize, _: usize) -> ! {
            // SAFETY: `switch` passes a context that was saved and is resumed once.
            unsafe { arch::resume(to) }
        }
        let scratch = self.scratch.borrow().as_ptr_range().end as usize;
        // SAFETY: the scratch stack is used between two contexts only.
        unsafe { arch::switch_out(save, scratch, land, to, 0, 0) };
    }

    /// Waits in the kernel, in a state from which the machine takes the vessel out.
    pub(crate) fn wait(&self, doing: Doing) {
        self.me(|vessel| vessel.doing.set(doing));
        self.come_back();
    }

    /// Perhaps a page fault of who sits in the poller: what comes meanwhile waits for the page, and no
    /// longer.
    pub(crate) fn fault_in_seat(&self) {
        if self.style.seat_faults != 0 && self.chance(self.style.seat_faults) {
            let until = self.clock.get() + self.pick(20_000);
            while self.clock.get() < until {
                self.wait(Doing::Blocked { until, fault: true });
                self.handle();
            }
        }
    }

    /// A place at which anything may happen.
    pub fn point(&self, call: Call) {
        if self.me(|vessel| vessel.activation.get().is_none()) {
            return;
        }
        self.stop(call);
        self.handle();
    }

    fn stop(&self, call: Call) {
        let next = self.ask(|policy| policy.at_point(self, call));
        if next != Next::GoOn {
            self.me(|vessel| vessel.yields.set(next == Next::GiveWay));
            self.come_back();
        }
    }

    /// Signal handlers: before the vessel executes anything else.
    pub(crate) fn handle(&self) {
        loop {
            let interrupted = self.me(|vessel| vessel.interrupted.replace(false));
            let slice_over = self.me(|vessel| vessel.slice_over.replace(false));
            if !interrupted && !slice_over {
                return;
            }
            let activation = self.me(|vessel| vessel.activation.get()).unwrap();
            if activation.is_inside() {
                activation.attend(Activation::<Sim>::RESCHEDULE);
            } else {
                // Perhaps continues on another vessel.
                let depth = self.depth.replace(0);
                activation.runtime().interrupted(slice_over);
                self.depth.set(depth);
            }
        }
    }

    /// Ends the run with a failure; never returns to the vessel.
    pub(crate) fn fail(&self, what: String) -> ! {
        self.failure.borrow_mut().get_or_insert(what);
        loop {
            self.come_back();
        }
    }

    /// Ends the run.
    pub(crate) fn finish(&self) -> ! {
        self.done.set(true);
        loop {
            self.come_back();
        }
    }

    /// The vessel of an activation.
    pub(crate) fn vessel_of(activation: &'static Activation<Sim>) -> Option<usize> {
        activation.kernel.get().checked_sub(1)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for (memory, layout) in self.memory.take() {
            // SAFETY: allocated with this layout; nothing runs any more.
            unsafe { std::alloc::dealloc(memory, layout) };
        }
    }
}

/// See [`Machine::enter`].
pub(crate) struct InKernel<'a>(&'a Machine);

impl Drop for InKernel<'_> {
    fn drop(&mut self) {
        let machine = self.0;
        machine.depth.set(machine.depth.get() - 1);
        if machine.depth.get() == 0
            && machine.style.stepped != 0
            && machine.chance(machine.style.stepped)
        {
            stepping::arm(machine, machine.pick(STEPS));
        }
    }
}

impl Deref for InKernel<'_> {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        self.0
    }
}

/// Where a vessel begins.
pub(crate) type Landing = extern "C" fn(usize, usize, usize) -> !;

fn draw(random: &Cell<u64>) -> u64 {
    // xorshift64*
    let mut x = random.get();
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    random.set(x);
    x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
}
