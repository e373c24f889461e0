//! Which vessel runs on a processor.
//!
//! Where processors are allocated, one serves a virtual processor, or the kernel threads of an
//! address space; where kernel threads take turns, all serve one line. What comes back from the
//! kernel comes first and preempts its virtual processor: that is the upcall.

use std::cell::Cell;
use std::collections::VecDeque;

use super::setup::{Kind, Scheduling};
use super::{Doing, Event, Machine, NOBODY};

/// What a processor is for at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serves {
    Nothing,
    /// The line of all kernel threads.
    Line,
    /// A virtual processor of an address space.
    Vp(usize, usize),
    /// The kernel threads of an address space.
    Threads(usize),
}

pub(crate) struct Processor {
    pub(crate) serves: Cell<Serves>,
    pub(crate) current: Cell<Option<usize>>,
    last: Cell<usize>,
    /// Its virtual processor has nothing to run.
    pub(crate) resting: Cell<bool>,
    /// Its owner has nothing for it.
    pub(crate) unused_by: Cell<Option<usize>>,
    /// What the next one that runs spends first.
    pub(crate) owed: Cell<u64>,
    turn: Cell<u32>,
}

impl Processor {
    pub(crate) fn new() -> Self {
        Processor {
            serves: Cell::new(Serves::Nothing),
            current: Cell::new(None),
            last: Cell::new(NOBODY),
            resting: Cell::new(false),
            unused_by: Cell::new(None),
            owed: Cell::new(0),
            turn: Cell::new(0),
        }
    }
}

impl Machine {
    fn with_queue<R>(&self, serves: Serves, look: impl FnOnce(&mut VecDeque<usize>) -> R) -> R {
        match serves {
            Serves::Nothing => look(&mut VecDeque::new()),
            Serves::Line => look(&mut self.line.borrow_mut()),
            Serves::Vp(space, vp) => look(&mut self.spaces[space].vps[vp].queue.borrow_mut()),
            Serves::Threads(space) => look(&mut self.spaces[space].queue.borrow_mut()),
        }
    }

    /// Where a vessel waits for a processor.
    fn place_of(&self, index: usize) -> Serves {
        if !self.is_allocated() {
            return Serves::Line;
        }
        self.vessel(index, |vessel| match self.spaces[vessel.space].kind {
            Kind::KernelThreads => Serves::Threads(vessel.space),
            Kind::Activations | Kind::Bound => {
                let vp = vessel.activation.get().map_or(0, |it| it.vp().index());
                Serves::Vp(vessel.space, vp as usize)
            }
        })
    }

    /// A sleeping vessel can run.
    pub(crate) fn rouse(&self, index: usize) {
        let (doing, space, runs) = self.vessel(index, |vessel| {
            (
                vessel.doing.get(),
                vessel.space,
                vessel.processor.get().is_some(),
            )
        });
        match doing {
            Doing::Runnable | Doing::Blocked | Doing::Gone => return,
            Doing::Polling => self.spaces[space].poller.set(NOBODY),
            Doing::Awaiting => {
                if let Serves::Vp(space, vp) = self.place_of(index) {
                    let awaiting = &self.spaces[space].vps[vp].awaiting;
                    awaiting.borrow_mut().retain(|&other| other != index);
                }
            }
            Doing::Sleeping | Doing::Spinning => {}
        }
        self.vessel(index, |vessel| vessel.doing.set(Doing::Runnable));
        if doing == Doing::Spinning {
            // It has its processor, or its place in the line.
            if runs {
                self.go_on(index, 0);
            }
            return;
        }
        self.enqueue(index, false);
    }

    /// A blocked vessel can run.
    pub(crate) fn unblock(&self, index: usize) {
        let doing = self.vessel(index, |vessel| vessel.doing.get());
        if doing == Doing::Blocked {
            self.vessel(index, |vessel| vessel.doing.set(Doing::Runnable));
            self.enqueue(index, true);
        }
    }

    /// A runnable vessel gets in line, perhaps at the head of it.
    fn enqueue(&self, index: usize, first: bool) {
        let place = self.place_of(index);
        let space = self.vessel(index, |vessel| vessel.space);
        if place == Serves::Line && self.spaces[space].daemon {
            self.run_daemon(index);
            return;
        }
        let running = match place {
            Serves::Vp(space, vp) if first => self.spaces[space].vps[vp].processor.get(),
            _ => None,
        };
        if let Some(processor) = running
            && let Some(current) = self.take_off(processor)
        {
            self.with_queue(place, |queue| queue.push_front(current));
        }
        self.with_queue(place, |queue| match place {
            Serves::Vp(..) if first => queue.push_front(index),
            _ => queue.push_back(index),
        });
        match place {
            Serves::Line => {
                let idle = self.idle.borrow_mut().pop();
                if let Some(processor) = idle {
                    self.dispatch(processor);
                }
            }
            Serves::Vp(space, vp) => self.activate(space, vp),
            Serves::Threads(space) => self.activate_threads(space),
            Serves::Nothing => {}
        }
    }

    /// A daemon preempts a processor at once, each time another: the scheduler does not know which of its kernel
    /// threads only spin, nor which would miss the processor least.
    fn run_daemon(&self, index: usize) {
        let at = self.daemon_at.get();
        self.daemon_at.set((at + 1) % self.processors.len() as u32);
        self.idle.borrow_mut().retain(|&idle| idle != at);
        let mut line = self.line.borrow_mut();
        if let Some(current) = self.take_off(at) {
            line.push_front(current);
        }
        line.push_front(index);
        drop(line);
        self.dispatch(at);
    }

    /// Takes the processor from the one that runs there, whose state does not change.
    pub(crate) fn take_off(&self, processor: u32) -> Option<usize> {
        let index = self.processors[processor as usize].current.take()?;
        self.vessel(index, |vessel| {
            vessel.processor.set(None);
            vessel.epoch.set(vessel.epoch.get() + 1);
            if vessel.doing.get() == Doing::Runnable && index != self.running_now() {
                let left = vessel.due.get().saturating_sub(self.now.get());
                vessel.left.set(left);
            }
        });
        Some(index)
    }

    /// The running vessel goes on later, in that state; its processor goes to the next.
    pub(crate) fn stop(&self, doing: Doing) {
        let index = self.running.get();
        let processor = self.me(|vessel| {
            vessel.doing.set(doing);
            vessel.processor.get()
        });
        if let Some(processor) = processor {
            self.take_off(processor);
            self.dispatch(processor);
        }
        debug_assert_eq!(index, self.running.get());
        self.come_back();
    }

    /// The running vessel gives way to others of its processor, if there are any.
    pub(crate) fn give_way(&self) {
        let index = self.running.get();
        let Some(processor) = self.me(|vessel| vessel.processor.get()) else {
            return;
        };
        let serves = self.processors[processor as usize].serves.get();
        if self.with_queue(serves, |queue| queue.is_empty()) {
            return;
        }
        self.take_off(processor);
        self.vessel(index, |vessel| vessel.left.set(0));
        self.with_queue(serves, |queue| queue.push_back(index));
        self.dispatch(processor);
        self.come_back();
    }

    /// A processor without a vessel gets the next of those that it serves.
    pub(crate) fn dispatch(&self, at: u32) {
        let processor = &self.processors[at as usize];
        if !self.is_allocated() {
            processor.serves.set(Serves::Line);
        }
        let serves = processor.serves.get();
        let next = self.with_queue(serves, |queue| {
            loop {
                let index = queue.pop_front()?;
                let doing = self.vessel(index, |vessel| vessel.doing.get());
                if matches!(doing, Doing::Runnable | Doing::Spinning) {
                    return Some(index);
                }
            }
        });
        let Some(index) = next else {
            self.nothing_to_run(at);
            return;
        };
        processor.current.set(Some(index));
        let switched = processor.last.replace(index) != index;
        let (spins, cost) = self.vessel(index, |vessel| {
            vessel.processor.set(Some(at));
            let costs = &self.spaces[vessel.space].costs;
            let spins = vessel.doing.get() == Doing::Spinning;
            (spins, if switched { costs.switch } else { 0 })
        });
        if !spins {
            self.go_on(index, cost + processor.owed.replace(0));
        }
        if let Scheduling::RoundRobin { quantum } = self.scheduling {
            let epoch = processor.turn.get() + 1;
            processor.turn.set(epoch);
            let event = Event::Quantum {
                processor: at,
                epoch,
            };
            // Each processor has a clock of its own: their turns do not end together.
            let phase = quantum * u64::from(at) / self.processors.len() as u64;
            let since = (self.now.get() + phase) % quantum;
            self.schedule(self.now.get() + quantum - since, event);
        }
    }

    /// A turn is over, if nothing else has ended it.
    pub(crate) fn turn_over(&self, at: u32, epoch: u32) {
        let processor = &self.processors[at as usize];
        if processor.turn.get() != epoch {
            return;
        }
        if let Some(current) = self.take_off(at) {
            self.line.borrow_mut().push_back(current);
            self.dispatch(at);
        }
    }

    fn nothing_to_run(&self, at: u32) {
        match self.processors[at as usize].serves.get() {
            Serves::Nothing => {}
            Serves::Line => self.idle.borrow_mut().push(at),
            Serves::Vp(..) | Serves::Threads(_) => self.rest(at),
        }
    }
}
