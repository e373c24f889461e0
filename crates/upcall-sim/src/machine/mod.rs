//! A machine of simulated processors on one kernel thread, driven by a seed.
//!
//! Every activation has a *vessel*: a context that the machine resumes and that comes back at each *point*. Points are the
//! calls of the [`upcall_core::Kernel`] trait and the steps of the test's threads. At each point the machine may let any
//! other vessel go on, deliver an interruption, or end a time slice. Blocking, sleeping and polling are states of a vessel.
//! The clock is a number. It moves with the points, and jumps to the next event when nothing can run.
//!
//! The [`Policy`] decides what happens at a point. `invariants` says what must hold.
//!
//! Rejected: kernel threads under a lock-step scheduler. A debugger shows them better, but each point costs a futex.

pub(crate) mod advice;
mod arena;
pub(crate) mod books;
pub(crate) mod daemon;
pub(crate) mod policy;
pub(crate) mod rounds;
pub(crate) mod sim;
pub(crate) mod space;
mod stepping;
pub(crate) mod timeline;
pub(crate) mod turns;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem::MaybeUninit;
use std::ops::Deref;

use upcall_core::{Activation, arch};

use crate::machine::arena::Arena;
use crate::machine::daemon::Daemon;
use crate::machine::policy::{Call, Next, Policy};
use crate::machine::rounds::Rounds;
use crate::machine::sim::Sim;
use crate::machine::space::Space;
use crate::setup::plan::Plan;
use crate::setup::style::Style;

/// A vessel is stepped for fewer instructions than this at a time, mostly for much fewer: it reaches the
/// next point after some dozens, and steps that end there were for nothing.
const STEPS: u64 = 200;

/// Kernel threads of one run; ended ones included, which are not used again.
const MOST_VESSELS: usize = 1 << 14;

/// A thread of the runtime on this kernel.
pub type Thread = upcall_core::Thread<Sim>;

/// What a vessel does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// Runs, or could.
    Runnable,
    /// In `Vessels::sleep`.
    Sleeping,
    /// In a blocking `Poll::poll`.
    Polling,
    /// In a system call, or on a page fault, until that time.
    Blocked {
        /// When it ends.
        until: u64,
        /// It is a page fault.
        fault: bool,
    },
    /// Woken, and not yet where it runs again.
    Waking {
        /// When it is.
        until: u64,
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
    /// Where it is in [`Machine::runnable`].
    place: Cell<usize>,
    /// The round in which it has to run.
    pub(crate) due: Cell<u64>,
    /// The round since which its thread has run without a virtual processor, plus one.
    pub(crate) astray: Cell<u64>,
    /// The round since which its thread has run on a processor that is another space's, plus one.
    pub(crate) overstays: Cell<u64>,
    /// Where it is bound.
    pub processor: Cell<u32>,
    /// It was absent or displaced when virtual processors moved, and was not bound since.
    pub(crate) has_to_follow: Cell<bool>,
    /// It is of the idle class.
    pub sentinel: Cell<bool>,
    /// It gives way: others of its processor come first.
    pub yields: Cell<bool>,
    /// An interruption waits for it.
    pub interrupted: Cell<bool>,
    /// It waits for news, or is about to, or has hardly done so: who wants this vessel kicks.
    pub(crate) in_poll: Cell<bool>,
    /// It was woken there by a kick.
    pub(crate) kicked: Cell<bool>,
    /// Its time slice is over.
    pub slice_over: Cell<bool>,
    /// It waits for a processor of its address space.
    pub(crate) in_turn: Cell<bool>,
    /// It is a kernel thread that carries nothing and hears what the daemon says.
    pub(crate) listens: Cell<bool>,
}

/// The machine.
pub struct Machine {
    /// How badly it behaves.
    pub style: Style,
    /// What is the kernel's of each address space.
    pub spaces: Vec<Space>,
    vessels: Box<[UnsafeCell<MaybeUninit<Vessel>>]>,
    nr_vessels: Cell<usize>,
    /// Those that can run, in no order.
    pub(crate) runnable: RefCell<Vec<usize>>,
    /// Those that are blocked, by when that ends; those that came back earlier are still here.
    pub(crate) blocked: RefCell<BinaryHeap<Reverse<(u64, usize)>>>,
    pub(crate) running: Cell<usize>,
    policy: RefCell<Box<dyn Policy>>,
    home: Cell<usize>,
    scratch: RefCell<Box<[u128; 512]>>,
    random: Cell<u64>,
    seed: u64,
    draws: Cell<u64>,
    /// After so many nothing is drawn any more.
    most_draws: Cell<u64>,
    size: Cell<u64>,
    pub(crate) rounds: Rounds,
    pub(crate) daemon: Daemon,
    /// The time, in nanoseconds.
    pub clock: Cell<u64>,
    /// Points so far.
    pub points: Cell<u64>,
    /// Times that a vessel was in the simulated kernel.
    pub(crate) reached: Cell<u64>,
    /// How many are on a page fault in a poller's seat.
    pub(crate) seat_faults: Cell<u32>,
    /// Which vessel made the last step, if one did.
    pub(crate) ran: Cell<Option<usize>>,
    /// Whether a vessel runs, and not the machine.
    resumed: Cell<bool>,
    memory: Arena,
    /// How deep the vessel is in the simulated kernel.
    depth: Cell<u32>,
    pub(crate) done: Cell<bool>,
    pub(crate) failure: RefCell<Option<String>>,
    /// What the scenario says that must hold when nothing can run.
    pub(crate) of_scenario: RefCell<Vec<(&'static str, Check)>>,
}

/// Says what is wrong, if anything is.
pub(crate) type Check = Box<dyn Fn() -> Result<(), String>>;

impl Machine {
    /// Returns true if the runtime notes what happens: with every other seed.
    pub(crate) fn is_traced(&self) -> bool {
        self.seed % 2 == 1
    }

    /// A machine of `spaces` address spaces, without a vessel. Its style is drawn from the seed, as
    /// everything that follows.
    pub fn new(
        seed: u64,
        style: impl FnOnce(&mut dyn FnMut(u64) -> u64) -> Style,
        policy: impl FnOnce(&Style) -> Box<dyn Policy>,
    ) -> Self {
        let random = Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let style = style(&mut |below| draw(&random) % below);
        let policy = RefCell::new(policy(&style));
        let spaces = (0..style.spaces).map(|_| Space::new()).collect();
        Machine {
            style,
            spaces,
            vessels: Self::room(),
            nr_vessels: Cell::new(0),
            runnable: RefCell::default(),
            blocked: RefCell::default(),
            running: Cell::new(0),
            policy,
            home: Cell::new(0),
            scratch: RefCell::new(Box::new([0; 512])),
            random,
            seed,
            draws: Cell::new(0),
            most_draws: Cell::new(u64::MAX),
            size: Cell::new(1),
            rounds: Rounds::default(),
            daemon: Daemon::default(),
            clock: Cell::new(1_000),
            points: Cell::new(0),
            reached: Cell::new(0),
            seat_faults: Cell::new(0),
            ran: Cell::new(None),
            resumed: Cell::new(false),
            memory: Arena::new(),
            depth: Cell::new(0),
            done: Cell::new(false),
            failure: RefCell::new(None),
            of_scenario: RefCell::default(),
        }
    }

    fn room() -> Box<[UnsafeCell<MaybeUninit<Vessel>>]> {
        // SAFETY: what may be uninitialized may be.
        unsafe { Box::new_uninit_slice(MOST_VESSELS).assume_init() }
    }

    /// Asks the policy.
    pub(crate) fn ask<R>(&self, ask: impl FnOnce(&mut dyn Policy) -> R) -> R {
        ask(self.policy.borrow_mut().as_mut())
    }

    /// How many vessels there are; ended ones included.
    pub fn nr_vessels(&self) -> usize {
        self.nr_vessels.get()
    }

    /// The address space of the vessel that runs.
    pub fn space(&self) -> &Space {
        &self.spaces[self.me(|vessel| vessel.space)]
    }

    /// Less happens than the seed would give; before anything does.
    pub fn limit(&self, plan: &Plan) {
        self.most_draws.set(plan.calm);
        self.size.set(plan.size);
    }

    /// A number below `below`; 0 once there are no draws left.
    pub fn pick(&self, below: u64) -> u64 {
        if self.is_calm() {
            return 0;
        }
        self.draws.set(self.draws.get() + 1);
        draw(&self.random) % below
    }

    /// How many numbers were drawn since the machine began.
    pub(crate) fn draws(&self) -> u64 {
        self.draws.get()
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether nothing is drawn any more.
    pub fn is_calm(&self) -> bool {
        self.draws.get() >= self.most_draws.get()
    }

    /// True once in `times`; never for 0.
    pub fn chance(&self, times: u64) -> bool {
        times != 0 && self.pick(times) == times - 1
    }

    /// How often a scenario does what it would do `most` times: less often in a smaller run.
    pub fn some(&self, most: u64) -> u64 {
        most.div_ceil(self.size.get())
    }

    /// Zeroed memory until the end of the run.
    pub(crate) fn memory(&self, length: usize) -> *mut u8 {
        self.memory.take(length)
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
        let index = self.nr_vessels.get();
        if index == MOST_VESSELS {
            self.fail("kernel threads without bound".to_owned());
        }
        let vessel = Vessel {
            space,
            activation: Cell::new(None),
            context: Cell::new(context),
            doing: Cell::new(Doing::Gone),
            place: Cell::new(usize::MAX),
            due: Cell::new(0),
            astray: Cell::new(0),
            overstays: Cell::new(0),
            processor: Cell::new(0),
            has_to_follow: Cell::new(false),
            sentinel: Cell::new(false),
            yields: Cell::new(false),
            interrupted: Cell::new(false),
            in_poll: Cell::new(false),
            kicked: Cell::new(false),
            slice_over: Cell::new(false),
            in_turn: Cell::new(false),
            listens: Cell::new(false),
        };
        // SAFETY: nobody refers to this one, which is beyond those that there are.
        unsafe { self.vessels[index].get().write(MaybeUninit::new(vessel)) };
        self.nr_vessels.set(index + 1);
        self.set_doing(index, Doing::Runnable);
        let alive = &self.spaces[space].alive;
        alive.set(alive.get() + 1);
        index
    }

    /// What a vessel does from here on.
    pub(crate) fn set_doing(&self, index: usize, doing: Doing) {
        self.vessel(index, |vessel| {
            let before = vessel.doing.replace(doing);
            if doing != Doing::Runnable {
                vessel.astray.set(0);
            }
            let waking = &self.spaces[vessel.space].waking;
            let is_waking = |doing| usize::from(matches!(doing, Doing::Waking { .. }));
            waking.set(waking.get() + is_waking(doing) - is_waking(before));
            self.rounds.changed(vessel, doing);
            let mut runnable = self.runnable.borrow_mut();
            match (before == Doing::Runnable, doing == Doing::Runnable) {
                (false, true) => {
                    vessel.place.set(runnable.len());
                    runnable.push(index);
                }
                (true, false) => {
                    let place = vessel.place.get();
                    runnable.swap_remove(place);
                    if let Some(&moved) = runnable.get(place) {
                        self.vessel(moved, |vessel| vessel.place.set(place));
                    }
                }
                _ => {}
            }
        });
        match doing {
            Doing::Blocked { until, .. } | Doing::Waking { until } => {
                self.blocked.borrow_mut().push(Reverse((until, index)))
            }
            Doing::Polling => self.vessel(index, |vessel| {
                self.spaces[vessel.space].pollers.borrow_mut().push(index);
            }),
            _ => {}
        }
    }

    /// Looks at one vessel.
    pub fn vessel<R>(&self, index: usize, look: impl FnOnce(&Vessel) -> R) -> R {
        assert!(index < self.nr_vessels.get());
        // SAFETY: written, and never again.
        look(unsafe { (*self.vessels[index].get()).assume_init_ref() })
    }

    /// Wakes a vessel, if it sleeps or polls; it runs again after up to `late` nanoseconds.
    pub(crate) fn wake(&self, index: usize, late: u64) {
        if let Doing::Sleeping | Doing::Polling = self.doing(index) {
            let doing = match late {
                0 => Doing::Runnable,
                _ => Doing::Waking {
                    until: self.clock.get() + self.pick(late),
                },
            };
            self.set_doing(index, doing);
        }
    }

    /// Interrupts a vessel.
    pub(crate) fn interrupt(&self, index: usize) {
        self.vessel(index, |vessel| vessel.interrupted.set(true));
        self.wake(index, 0);
        if let Doing::Blocked { fault: false, .. } = self.doing(index)
            && self.chance(self.style.cut_short)
        {
            self.set_doing(index, Doing::Runnable);
        }
    }

    /// Whether a vessel may not get to run for ever: it is a sentinel beside others.
    pub(crate) fn is_starved(&self, index: usize) -> bool {
        self.style.starved && self.vessel(index, |vessel| vessel.sentinel.get())
    }

    /// What a vessel does.
    pub fn doing(&self, index: usize) -> Doing {
        self.vessel(index, |vessel| vessel.doing.get())
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
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "no trap flag")
    )]
    pub(crate) fn preempt(&self) -> u64 {
        self.depth.set(self.depth.get() + 1);
        self.stop(Call::Preempted);
        self.handle();
        self.depth.set(self.depth.get() - 1);
        self.steps()
    }

    /// For how many instructions a vessel is stepped.
    fn steps(&self) -> u64 {
        self.pick(1 + self.pick(STEPS))
    }

    fn switch(&self, save: *mut usize, to: usize) {
        extern "C" fn land(to: usize, _: usize, _: usize) -> ! {
            // SAFETY: `switch` passes a context that was saved and is resumed once.
            unsafe { arch::resume(to, arch::control()) }
        }
        let scratch = self.scratch.borrow().as_ptr_range().end as usize;
        // SAFETY: the scratch stack is used between two contexts only.
        unsafe { arch::switch_out(save, scratch, land, to, 0, 0) };
    }

    /// Waits in the kernel, in a state from which the machine takes the vessel out.
    pub(crate) fn wait(&self, doing: Doing) {
        self.me(|vessel| vessel.overstays.set(0));
        self.set_doing(self.running.get(), doing);
        self.come_back();
    }

    /// Perhaps a page fault of who sits in the poller: what comes meanwhile waits for the page, and no
    /// longer.
    pub(crate) fn fault_in_seat(&self) {
        if self.chance(self.style.seat_faults) {
            let until = self.clock.get() + self.pick(20_000);
            self.seat_faults.set(self.seat_faults.get() + 1);
            while self.clock.get() < until {
                self.wait(Doing::Blocked { until, fault: true });
                self.handle();
            }
            self.seat_faults.set(self.seat_faults.get() - 1);
        }
    }

    /// A place at which anything may happen.
    pub fn point(&self, call: Call) {
        if self.me(|vessel| vessel.activation.get().is_some()) {
            self.stop(call);
            self.handle();
        } else if self.me(|vessel| vessel.listens.get()) {
            self.stop(call);
        }
    }

    /// Others may run.
    pub(crate) fn give_way(&self) {
        self.rounds.passed(self, self.running.get());
        self.come_back();
    }

    fn stop(&self, call: Call) {
        if call != Call::Preempted {
            self.rounds.passed(self, self.running.get());
        }
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
    pub(crate) fn vessel_of(activation: &Activation<Sim>) -> Option<usize> {
        activation.kernel.get().checked_sub(1)
    }
}

/// See [`Machine::enter`].
pub(crate) struct InKernel<'a>(&'a Machine);

impl Drop for InKernel<'_> {
    fn drop(&mut self) {
        let machine = self.0;
        machine.depth.set(machine.depth.get() - 1);
        if machine.depth.get() == 0 && machine.chance(machine.style.stepped) {
            stepping::arm(machine, machine.steps());
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
