//! Processors between address spaces: what [`upcall_alloc`] decides is carried out here.
//!
//! A virtual processor with something to run and no processor *starves*: its address space needs one more. One with
//! nothing to run rests, and its processor may be lent. To take a processor from activations the kernel recalls its
//! virtual processor ([`upcall_core::Runtime::recall`]): the owner parks its thread and says so
//! ([`upcall_core::kernel::Share::await_turn`]), which is the paper's preemption with a user level that has saved its own
//! state; from kernel threads it is simply taken. What was granted arrives when its former owner has let go.

use upcall_alloc::{Allocator, Change, ProcessorId, SpaceId};
use upcall_core::State;

use super::processors::Serves;
use super::setup::Kind;
use super::{Doing, Event, Machine};

impl Machine {
    /// Calls the allocator, and carries its decisions out.
    fn ask(&self, call: impl FnOnce(&mut Allocator, u64) -> Vec<Change>) {
        let mut allocator = self.allocator.borrow_mut();
        let changes = call(&mut allocator, self.now.get());
        let next = allocator.next_ns();
        drop(allocator);
        let mut outcome = self.outcome.borrow_mut();
        outcome.allocator_calls += 1;
        outcome.moves += changes.len() as u64;
        drop(outcome);
        if let Some(next) = next {
            let next = next.max(self.now.get() + 1);
            if next < self.tick_at.get() {
                self.tick_at.set(next);
                self.schedule(next, Event::Tick);
            }
        }
        self.moved
            .borrow_mut()
            .extend(changes.iter().map(|change| change.processor));
        if self.settling.replace(true) {
            return;
        }
        loop {
            let moved = self.moved.borrow_mut().pop_front();
            let Some(processor) = moved else { break };
            self.settle(processor.0);
        }
        self.settling.set(false);
    }

    /// The allocator asked to be called now.
    pub(crate) fn tick(&self) {
        if self.now.get() >= self.tick_at.get() {
            self.tick_at.set(u64::MAX);
            self.ask(|allocator, now| allocator.tick(now).to_vec());
        }
    }

    fn id(&self, space: usize) -> SpaceId {
        self.spaces[space].id.get()
    }

    /// An address space says how many processors it could use.
    fn need(&self, space: usize) {
        let it = &self.spaces[space];
        let waiting = match it.kind {
            Kind::KernelThreads => it.queue.borrow().len(),
            Kind::Activations | Kind::Bound => it.starving.borrow().len(),
        };
        let want = it.busy.get() + waiting as u32;
        let id = self.id(space);
        self.ask(|allocator, now| {
            allocator
                .need(now, id, want)
                .map_or(Vec::new(), <[_]>::to_vec)
        });
    }

    fn say_idle(&self, space: usize, processor: u32) {
        let (id, processor) = (self.id(space), ProcessorId(processor));
        self.ask(|allocator, now| {
            (allocator.idle(now, id, processor)).map_or(Vec::new(), <[_]>::to_vec)
        });
    }

    fn say_busy(&self, space: usize, processor: u32) {
        let (id, processor) = (self.id(space), ProcessorId(processor));
        self.ask(|allocator, now| {
            (allocator.busy(now, id, processor)).map_or(Vec::new(), <[_]>::to_vec)
        });
    }

    fn count_busy(&self, space: usize, more: i32) {
        let busy = &self.spaces[space].busy;
        busy.set(busy.get().strict_add_signed(more));
    }

    /// A processor may have another owner.
    fn settle(&self, at: u32) {
        let processor = &self.processors[at as usize];
        let owner = self.allocator.borrow().owner(ProcessorId(at));
        let owner = owner.and_then(|id| self.space_of.borrow().get(&id).copied());
        if let Some(space) = processor.unused_by.get()
            && Some(space) != owner
        {
            self.use_again(at, space);
        }
        match processor.serves.get() {
            Serves::Nothing | Serves::Line => {
                if let Some(space) = owner
                    && processor.unused_by.get().is_none()
                {
                    self.give(at, space);
                }
            }
            Serves::Vp(space, vp) if Some(space) != owner => {
                let kernel = &self.spaces[space].vps[vp];
                if kernel.leaving.replace(true) {
                    return;
                }
                if processor.current.get().is_none() {
                    self.release(at);
                } else if let Some(runtime) = self.spaces[space].runtime.get() {
                    let vp = &runtime.vps()[vp];
                    // An idle one is about to rest, and lets go then. It wants no processor in its place.
                    if vp.word().state() != State::Idle {
                        runtime.recall(vp);
                    }
                }
            }
            Serves::Threads(space) if Some(space) != owner => {
                if let Some(current) = self.take_off(at) {
                    self.spaces[space].queue.borrow_mut().push_front(current);
                }
                self.release(at);
            }
            Serves::Vp(..) | Serves::Threads(_) => {}
        }
    }

    /// A processor arrives.
    fn give(&self, at: u32, space: usize) {
        let it = &self.spaces[space];
        match it.kind {
            Kind::KernelThreads if !it.queue.borrow().is_empty() => {
                self.processors[at as usize]
                    .serves
                    .set(Serves::Threads(space));
                self.count_busy(space, 1);
                self.dispatch(at);
                return;
            }
            Kind::KernelThreads => {}
            Kind::Activations | Kind::Bound => {
                let vp = it.starving.borrow_mut().pop_front();
                if let Some(vp) = vp {
                    self.assign(at, space, vp);
                    return;
                }
            }
        }
        self.lay_aside(at, space);
    }

    /// An address space has no use for a processor of its own.
    fn lay_aside(&self, at: u32, space: usize) {
        self.processors[at as usize].unused_by.set(Some(space));
        self.spaces[space].unused.borrow_mut().insert(at);
        self.say_idle(space, at);
    }

    /// The opposite; the allocator learns it otherwise.
    fn use_again(&self, at: u32, space: usize) {
        self.processors[at as usize].unused_by.set(None);
        self.spaces[space].unused.borrow_mut().remove(&at);
    }

    /// A virtual processor that starves gets a processor: the upcall that adds one.
    fn assign(&self, at: u32, space: usize, vp: usize) {
        let it = &self.spaces[space];
        let kernel = &it.vps[vp];
        kernel.starving.set(false);
        kernel.processor.set(Some(at));
        let processor = &self.processors[at as usize];
        processor.serves.set(Serves::Vp(space, vp));
        processor.resting.set(false);
        processor.owed.set(it.costs.added);
        self.count_busy(space, 1);
        for index in kernel.awaiting.take() {
            self.vessel(index, |vessel| vessel.doing.set(Doing::Runnable));
            kernel.queue.borrow_mut().push_back(index);
        }
        self.dispatch(at);
        if let Some(runtime) = it.runtime.get() {
            // Its owner is awake: it was woken above, or had stopped on its way, since nobody runs without a processor here.
            runtime.added(std::iter::empty());
        }
    }

    /// A virtual processor has something to run.
    pub(crate) fn activate(&self, space: usize, vp: usize) {
        let it = &self.spaces[space];
        let kernel = &it.vps[vp];
        if let Some(at) = kernel.processor.get() {
            let processor = &self.processors[at as usize];
            if processor.resting.replace(false) {
                self.use_again(at, space);
                self.count_busy(space, 1);
                self.say_busy(space, at);
            }
            // Not taken away in that moment.
            if processor.current.get().is_none() && kernel.processor.get() == Some(at) {
                self.dispatch(at);
            }
            return;
        }
        if kernel.starving.replace(true) {
            return;
        }
        it.starving.borrow_mut().push_back(vp);
        self.feed(space);
    }

    /// Kernel threads of an address space have become ready.
    pub(crate) fn activate_threads(&self, space: usize) {
        self.feed(space);
    }

    /// An address space has more to run than processors that do: those that it has lying come first,
    /// since the allocator would count one of them in and say nothing.
    fn feed(&self, space: usize) {
        let unused = self.spaces[space].unused.borrow().first().copied();
        let Some(at) = unused else {
            self.need(space);
            return;
        };
        self.use_again(at, space);
        let processor = &self.processors[at as usize];
        if let Serves::Vp(_, resting) = processor.serves.replace(Serves::Nothing) {
            self.spaces[space].vps[resting].processor.set(None);
            processor.resting.set(false);
        }
        self.say_busy(space, at);
        self.settle(at);
    }

    /// What a processor serves has nothing to run.
    pub(crate) fn rest(&self, at: u32) {
        let processor = &self.processors[at as usize];
        match processor.serves.get() {
            Serves::Vp(space, vp) => {
                let kernel = &self.spaces[space].vps[vp];
                if kernel.leaving.get() {
                    self.release(at);
                    return;
                }
                let other = self.spaces[space].starving.borrow_mut().pop_front();
                if let Some(other) = other {
                    kernel.processor.set(None);
                    self.count_busy(space, -1);
                    self.assign(at, space, other);
                    return;
                }
                if !processor.resting.replace(true) {
                    self.count_busy(space, -1);
                    self.lay_aside(at, space);
                }
            }
            Serves::Threads(space) => {
                processor.serves.set(Serves::Nothing);
                self.count_busy(space, -1);
                self.lay_aside(at, space);
            }
            Serves::Nothing | Serves::Line => {}
        }
    }

    /// A processor is given up, and goes to whose it is now.
    pub(crate) fn release(&self, at: u32) {
        let processor = &self.processors[at as usize];
        match processor.serves.replace(Serves::Nothing) {
            Serves::Vp(space, vp) => {
                let it = &self.spaces[space];
                let kernel = &it.vps[vp];
                kernel.processor.set(None);
                kernel.leaving.set(false);
                if !processor.resting.replace(false) {
                    self.count_busy(space, -1);
                }
                let wants =
                    !kernel.queue.borrow().is_empty() || !kernel.awaiting.borrow().is_empty();
                if wants && !kernel.starving.replace(true) {
                    it.starving.borrow_mut().push_back(vp);
                    self.need(space);
                }
            }
            Serves::Threads(space) => {
                self.count_busy(space, -1);
                self.need(space);
            }
            Serves::Nothing | Serves::Line => {}
        }
        if processor.serves.get() == Serves::Nothing {
            self.settle(at);
        }
    }

    /// The running vessel waits for a processor for its virtual processor.
    pub(crate) fn await_turn(&self, space: usize, vp: usize) {
        let kernel = &self.spaces[space].vps[vp];
        kernel.awaiting.borrow_mut().push(self.running.get());
        let at = self.me(|vessel| {
            vessel.doing.set(Doing::Awaiting);
            vessel.processor.get()
        });
        if let Some(at) = at {
            self.take_off(at);
            if kernel.leaving.get() && kernel.processor.get() == Some(at) {
                self.release(at);
            } else {
                self.dispatch(at);
            }
        }
        self.come_back();
    }

    /// An address space is gone, with everything that it had.
    pub(crate) fn clear(&self, space: usize) {
        let it = &self.spaces[space];
        for vp in &it.vps {
            vp.queue.take();
            vp.awaiting.take();
            vp.processor.set(None);
        }
        it.queue.take();
        it.starving.take();
        it.unused.take();
        let of_space = |index: usize| self.vessel(index, |vessel| vessel.space == space);
        self.line.borrow_mut().retain(|&index| !of_space(index));
        for (at, processor) in self.processors.iter().enumerate() {
            let served = match processor.serves.get() {
                Serves::Vp(served, _) | Serves::Threads(served) => served == space,
                Serves::Line => processor.current.get().is_some_and(of_space),
                Serves::Nothing => false,
            };
            if processor.unused_by.get() == Some(space) {
                processor.unused_by.set(None);
            }
            if !served {
                continue;
            }
            self.take_off(at as u32);
            processor.serves.set(Serves::Nothing);
            processor.resting.set(false);
            if !self.is_allocated() {
                self.dispatch(at as u32);
            }
        }
        if self.is_allocated() {
            let id = self.id(space);
            self.ask(|allocator, now| allocator.leave(now, id).map_or(Vec::new(), <[_]>::to_vec));
            self.space_of.borrow_mut().remove(&id);
        }
    }
}
