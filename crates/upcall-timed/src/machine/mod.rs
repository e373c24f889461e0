//! Events, vessels and the loop.

mod allocation;
mod end;
pub mod kernel;
mod processors;
pub mod setup;
pub mod threads;

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

use upcall_alloc::{Allocator, Priority, ProcessorId, SpaceId, Terms};
use upcall_core::{Activation, Runtime, arch};

use self::kernel::Timed;
use self::processors::Processor;
use self::setup::{Kind, Outcome, Program, Report, Scheduling, Setup};
use self::threads::boot;
use crate::costs::Costs;

/// Bytes of the stack of a simulated program's thread.
const STACK: usize = 64 << 10;
/// Stacks that are mapped at a time.
const STACKS: usize = 64;
/// No vessel.
pub(crate) const NOBODY: usize = usize::MAX;

/// What a vessel does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    Runnable,
    /// Until it is woken.
    Sleeping,
    /// In a blocking poll: until it is woken, or the alarm.
    Polling,
    /// For a processor for its virtual processor.
    Awaiting,
    /// In the kernel, with its thread.
    Blocked,
    /// Until it is woken, in a loop.
    Spinning,
    Gone,
}

/// A simulated kernel thread.
pub(crate) struct Vessel {
    pub(crate) space: usize,
    pub(crate) activation: Cell<Option<&'static Activation<Timed>>>,
    context: Cell<usize>,
    pub(crate) doing: Cell<Doing>,
    pub(crate) processor: Cell<Option<u32>>,
    /// The event by which it goes on, if it is on a processor.
    pub(crate) epoch: Cell<u32>,
    /// When that is.
    pub(crate) due: Cell<u64>,
    /// What it had not spent when it was stopped.
    pub(crate) left: Cell<u64>,
    /// It computes, and an interruption would end that.
    cuttable: Cell<bool>,
    cut: Cell<u64>,
    pub(crate) interrupted: Cell<bool>,
    /// Of its time slice.
    pub(crate) used: Cell<u64>,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// A vessel goes on.
    Run { vessel: usize, epoch: u32 },
    /// A blocked vessel can run again.
    Unblock { vessel: usize },
    /// A turn is over.
    Quantum { processor: u32, epoch: u32 },
    /// Deadlines.
    Alarm { space: usize },
    /// The allocator asked to be called.
    Tick,
}

/// A virtual processor as the kernel sees it.
#[derive(Default)]
pub(crate) struct KernelVp {
    pub(crate) processor: Cell<Option<u32>>,
    /// The processor is to be given up.
    pub(crate) leaving: Cell<bool>,
    /// In the line of those that could use a processor.
    pub(crate) starving: Cell<bool>,
    pub(crate) queue: RefCell<VecDeque<usize>>,
    pub(crate) awaiting: RefCell<Vec<usize>>,
}

/// An address space as the kernel sees it.
pub(crate) struct Space {
    pub(crate) kind: Kind,
    pub(crate) costs: Costs,
    pub(crate) daemon: bool,
    pub(crate) vps: Vec<KernelVp>,
    pub(crate) runtime: Cell<Option<&'static Runtime<Timed>>>,
    pub(crate) id: Cell<SpaceId>,
    /// Ready kernel threads, where they are not all in one line.
    pub(crate) queue: RefCell<VecDeque<usize>>,
    /// Virtual processors that could use a processor.
    pub(crate) starving: RefCell<VecDeque<usize>>,
    /// Processors that it has and has no use for.
    pub(crate) unused: RefCell<BTreeSet<u32>>,
    /// Processors that it uses.
    pub(crate) busy: Cell<u32>,
    pub(crate) alarm: Cell<u64>,
    pub(crate) poller: Cell<usize>,
    pub(crate) nr_vessels: Cell<u32>,
    /// Upcalls that were paid for: blocked and unblocked.
    pub(crate) paid: Cell<(u64, u64)>,
    pub(crate) report: Cell<Report>,
    pub(crate) gone: Cell<bool>,
}

/// The machine.
pub struct Machine {
    pub(crate) now: Cell<u64>,
    limit: u64,
    events: RefCell<BinaryHeap<Reverse<(u64, u64, Event)>>>,
    nr_events: Cell<u64>,
    pub(crate) vessels: RefCell<Vec<Vessel>>,
    pub(crate) spaces: Vec<Space>,
    pub(crate) processors: Vec<Processor>,
    pub(crate) scheduling: Scheduling,
    /// Kernel threads that take turns.
    pub(crate) line: RefCell<VecDeque<usize>>,
    /// Processors without anything to run, where kernel threads take turns.
    pub(crate) idle: RefCell<Vec<u32>>,
    /// Where the next daemon runs.
    pub(crate) daemon_at: Cell<u32>,
    pub(crate) allocator: RefCell<Allocator>,
    pub(crate) space_of: RefCell<HashMap<SpaceId, usize>>,
    /// Processors whose owner has changed.
    pub(crate) moved: RefCell<VecDeque<ProcessorId>>,
    pub(crate) settling: Cell<bool>,
    pub(crate) outcome: RefCell<Outcome>,
    pub(crate) tick_at: Cell<u64>,
    /// When the kernel's one lock is free.
    pub(crate) kernel_lock: Cell<u64>,
    pub(crate) running: Cell<usize>,
    in_vessel: Cell<bool>,
    home: Cell<usize>,
    scratch: RefCell<Box<[u128; 512]>>,
    stacks: RefCell<Vec<usize>>,
    memory: RefCell<Vec<(*mut u8, Layout)>>,
    pub(crate) unfinished: Cell<usize>,
}

/// Runs a machine until all its programs have ended, daemons apart.
///
/// # Panics
///
/// When nothing can run any more, or the limit has passed.
pub fn simulate(setup: Setup) -> Outcome {
    let machine = Box::into_raw(Box::new(Machine::new(&setup)));
    // SAFETY: freed below, when nothing refers to it any more.
    let borrowed: &'static Machine = unsafe { &*machine };
    borrowed.begin(setup.programs);
    borrowed.run();
    // SAFETY: made above; the run is over.
    let machine = unsafe { Box::from_raw(machine) };
    let mut outcome = machine.outcome.take();
    outcome.programs = (machine.spaces.iter())
        .map(|space| space.report.get())
        .collect();
    outcome
}

impl Machine {
    fn new(setup: &Setup) -> Self {
        let terms = match setup.scheduling {
            Scheduling::Allocated(terms) => terms,
            Scheduling::RoundRobin { .. } => Terms::default(),
        };
        let spaces = setup.programs.iter().map(|program| {
            let allocated = matches!(setup.scheduling, Scheduling::Allocated(_));
            match program.kind {
                Kind::Activations => assert!(allocated, "activations need an allocator"),
                Kind::Bound => assert!(!allocated, "bound threads take turns"),
                Kind::KernelThreads => {}
            }
            Space {
                kind: program.kind,
                costs: program.costs.clone(),
                daemon: program.daemon,
                vps: (0..program.vps).map(|_| KernelVp::default()).collect(),
                runtime: Cell::new(None),
                id: Cell::default(),
                queue: RefCell::default(),
                starving: RefCell::default(),
                unused: RefCell::default(),
                busy: Cell::new(0),
                alarm: Cell::new(u64::MAX),
                poller: Cell::new(NOBODY),
                nr_vessels: Cell::new(0),
                paid: Cell::default(),
                report: Cell::default(),
                gone: Cell::new(false),
            }
        });
        Machine {
            now: Cell::new(0),
            limit: setup.limit,
            events: RefCell::default(),
            nr_events: Cell::new(0),
            vessels: RefCell::default(),
            spaces: spaces.collect(),
            processors: (0..setup.processors).map(|_| Processor::new()).collect(),
            scheduling: setup.scheduling,
            line: RefCell::default(),
            idle: RefCell::default(),
            daemon_at: Cell::new(0),
            allocator: RefCell::new(Allocator::new(terms)),
            space_of: RefCell::default(),
            moved: RefCell::default(),
            settling: Cell::new(false),
            outcome: RefCell::default(),
            tick_at: Cell::new(u64::MAX),
            kernel_lock: Cell::new(0),
            running: Cell::new(NOBODY),
            in_vessel: Cell::new(false),
            home: Cell::new(0),
            scratch: RefCell::new(Box::new([0; 512])),
            stacks: RefCell::default(),
            memory: RefCell::default(),
            unfinished: Cell::new(setup.programs.iter().filter(|one| !one.daemon).count()),
        }
    }

    fn begin(&'static self, programs: Vec<Program>) {
        if self.is_allocated() {
            for processor in 0..self.processors.len() as u32 {
                let mut allocator = self.allocator.borrow_mut();
                let added = allocator.add(0, ProcessorId(processor));
                assert!(added.is_ok_and(<[_]>::is_empty), "nobody wants it yet");
            }
        } else {
            self.idle
                .borrow_mut()
                .extend((0..self.processors.len() as u32).rev());
        }
        for (space, program) in programs.into_iter().enumerate() {
            if self.is_allocated() {
                let priority = Priority(u8::from(program.daemon));
                let id = self.allocator.borrow_mut().join(0, priority);
                self.spaces[space].id.set(id);
                self.space_of.borrow_mut().insert(id, space);
            }
            boot(self, space, program.main);
        }
    }

    fn run(&'static self) {
        while self.unfinished.get() != 0 {
            let next = self.events.borrow_mut().pop();
            let Some(Reverse((time, _, event))) = next else {
                panic!("everybody waits for ever\n{}", self.describe());
            };
            assert!(time <= self.limit, "no end in sight\n{}", self.describe());
            self.now.set(time);
            match event {
                Event::Run { vessel, epoch } => {
                    if self.vessel(vessel, |it| it.epoch.get()) == epoch {
                        self.resume(vessel);
                    }
                }
                Event::Unblock { vessel } => self.unblock(vessel),
                Event::Quantum { processor, epoch } => self.turn_over(processor, epoch),
                Event::Alarm { space } => {
                    let poller = self.spaces[space].poller.get();
                    if poller != NOBODY && time >= self.spaces[space].alarm.get() {
                        self.rouse(poller);
                    }
                }
                Event::Tick => self.tick(),
            }
        }
    }

    /// Something will happen.
    pub(crate) fn schedule(&self, time: u64, event: Event) {
        let number = self.nr_events.get() + 1;
        self.nr_events.set(number);
        self.events
            .borrow_mut()
            .push(Reverse((time, number, event)));
    }

    pub(crate) fn is_allocated(&self) -> bool {
        matches!(self.scheduling, Scheduling::Allocated(_))
    }

    pub(crate) fn vessel<R>(&self, index: usize, look: impl FnOnce(&Vessel) -> R) -> R {
        look(&self.vessels.borrow()[index])
    }

    pub(crate) fn me<R>(&self, look: impl FnOnce(&Vessel) -> R) -> R {
        self.vessel(self.running.get(), look)
    }

    /// Adds a vessel, which does nothing yet and begins at `landing(argument)`.
    pub(crate) fn add_vessel(
        &self,
        space: usize,
        stack: usize,
        landing: extern "C" fn(usize, usize, usize) -> !,
        argument: usize,
    ) -> usize {
        // SAFETY: the stack is free.
        let context = unsafe { arch::prepare(stack, landing, argument, 0, 0) };
        let owner = &self.spaces[space];
        owner.nr_vessels.set(owner.nr_vessels.get() + 1);
        let mut vessels = self.vessels.borrow_mut();
        vessels.push(Vessel {
            space,
            activation: Cell::new(None),
            context: Cell::new(context),
            doing: Cell::new(Doing::Sleeping),
            processor: Cell::new(None),
            epoch: Cell::new(0),
            due: Cell::new(0),
            left: Cell::new(0),
            cuttable: Cell::new(false),
            cut: Cell::new(0),
            interrupted: Cell::new(false),
            used: Cell::new(0),
        });
        vessels.len() - 1
    }

    fn resume(&self, index: usize) {
        self.running.set(index);
        let context = self.vessel(index, |vessel| vessel.context.get());
        self.in_vessel.set(true);
        self.switch(self.home.as_ptr(), context);
        self.in_vessel.set(false);
    }

    /// From a vessel back to the machine; returns when the machine resumes the vessel.
    pub(crate) fn come_back(&self) {
        let save = self.me(|vessel| vessel.context.as_ptr());
        self.switch(save, self.home.get());
    }

    fn switch(&self, save: *mut usize, to: usize) {
        extern "C" fn land(to: usize, _: usize, _: usize) -> ! {
            // SAFETY: `switch` passes a context that was saved and is resumed once.
            unsafe { arch::resume(to, arch::control()) }
        }
        let scratch = self.scratch.borrow().as_ptr_range().end as usize;
        // SAFETY: the scratch stack is used between two contexts only. `save` is a vessel's, or
        // the machine's own: the list of vessels may move, but not before the context is stored.
        unsafe { arch::switch_out(save, scratch, land, to, 0, 0) };
    }

    /// The running vessel spends time that no interruption can take from it.
    pub(crate) fn charge(&self, cost: u64) {
        if cost != 0 && self.in_vessel.get() {
            self.spend(cost, false);
        }
    }

    /// On how many processors somebody computes, the running vessel apart.
    pub(crate) fn nr_computing(&self) -> u64 {
        let vessels = self.vessels.borrow();
        let current = self.processors.iter().filter_map(|it| it.current.get());
        let computing = current.filter(|&index| vessels[index].cuttable.get());
        computing.count() as u64
    }

    /// The running vessel spends time; returns what it did not spend, because it was interrupted.
    pub(crate) fn spend(&self, cost: u64, cuttable: bool) -> u64 {
        let now = self.now.get();
        let end = now + cost;
        assert!(end <= self.limit, "no end in sight\n{}", self.describe());
        let alone = {
            let next = self.events.borrow();
            next.peek().is_none_or(|Reverse((time, ..))| *time >= end)
        };
        let goes_on = self.me(|vessel| {
            if cuttable && vessel.interrupted.get() {
                vessel.cut.set(cost);
                return true;
            }
            vessel.cut.set(0);
            // Its processor may have been taken from it by what it did itself.
            let runs = vessel.processor.get().is_some();
            if alone && runs {
                self.now.set(end);
                return true;
            }
            vessel.cuttable.set(cuttable);
            if runs {
                vessel.due.set(end);
                vessel.epoch.set(vessel.epoch.get() + 1);
                let event = Event::Run {
                    vessel: self.running.get(),
                    epoch: vessel.epoch.get(),
                };
                self.schedule(end, event);
            } else {
                vessel.left.set(cost);
            }
            false
        });
        if !goes_on {
            self.come_back();
        }
        self.me(|vessel| {
            vessel.cuttable.set(false);
            vessel.cut.get()
        })
    }

    /// A vessel on a processor goes on after what it has left to spend and `more`, or at once, if it
    /// computes and was interrupted.
    pub(crate) fn go_on(&self, index: usize, more: u64) {
        let now = self.now.get();
        self.vessel(index, |vessel| {
            let mut left = vessel.left.replace(0);
            if vessel.interrupted.get() && vessel.cuttable.get() {
                vessel.cut.set(left);
                left = 0;
            }
            let due = now + left + more;
            vessel.due.set(due);
            vessel.epoch.set(vessel.epoch.get() + 1);
            let epoch = vessel.epoch.get();
            self.schedule(
                due,
                Event::Run {
                    vessel: index,
                    epoch,
                },
            );
        });
    }

    pub(crate) fn interrupt(&self, index: usize) {
        let (doing, on_processor) = self.vessel(index, |vessel| {
            vessel.interrupted.set(true);
            (vessel.doing.get(), vessel.processor.get().is_some())
        });
        match doing {
            Doing::Sleeping | Doing::Polling | Doing::Awaiting | Doing::Spinning => {
                self.rouse(index);
            }
            Doing::Runnable if on_processor && index != self.running_now() => {
                let computes = self.vessel(index, |vessel| {
                    if vessel.cuttable.get() {
                        vessel.left.set(vessel.due.get() - self.now.get());
                    }
                    vessel.cuttable.get()
                });
                if computes {
                    self.go_on(index, 0);
                }
            }
            _ => {}
        }
    }

    /// The vessel that runs, if one does and not the machine.
    pub(crate) fn running_now(&self) -> usize {
        if self.in_vessel.get() {
            self.running.get()
        } else {
            NOBODY
        }
    }

    /// Memory until the end of the run, zeroed.
    pub(crate) fn memory(&self, length: usize) -> *mut u8 {
        // Aligned by hand: an aligned allocation would be zeroed by writing, not by the kernel.
        let layout = Layout::from_size_align(length + 4096, 16).unwrap();
        // SAFETY: the size is not zero.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!memory.is_null());
        self.memory.borrow_mut().push((memory, layout));
        memory.map_addr(|address| address.next_multiple_of(4096))
    }

    /// The end of a free stack.
    pub(crate) fn stack(&self) -> usize {
        if let Some(stack) = self.stacks.borrow_mut().pop() {
            return stack;
        }
        let base = self.memory(STACK * STACKS) as usize;
        let mut stacks = self.stacks.borrow_mut();
        // Not all tops on one cache set.
        stacks.extend(
            (1..=STACKS)
                .rev()
                .map(|end| base + end * STACK - end % 32 * 64),
        );
        stacks.pop().unwrap()
    }

    pub(crate) fn free_stack(&self, stack: usize) {
        self.stacks.borrow_mut().push(stack);
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
