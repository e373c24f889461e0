//! The daemon divides the processors of a machine between its address spaces, by [`upcall_alloc`].
//!
//! Its decisions stand in words that the kernel shows to each space: they say which processors are stopped for it. The
//! daemon learns, some time later, what each space publishes (how many processors it could use) and which processor rests.
//! If it takes a processor from a program of ours, it sends a message to the program's *listener*, a kernel thread that
//! carries nothing. If it gives one back, the vessel that waits for it sees that in the word.
//!
//! The daemon may die whenever it looks. Its words hold for a while, and every program goes on with what it has. Then the
//! kernel takes the words away, and every program runs everywhere, as without a daemon. A daemon that comes back knows
//! nothing: all spaces join again, and its words are those of its first division.

use upcall_alloc::{Allocator, Priority, ProcessorId, Terms};
use upcall_core::State;

use crate::machine::daemon::{Life, Stopped};
use crate::machine::sim::Vp;
use crate::machine::space::Space;
use crate::machine::{Doing, Machine};

/// The division's turns and spells, in the machine's time: some hundred and some ten points.
const TERMS: Terms = Terms {
    slice_ns: 20_000,
    spell_ns: 1_000,
};

/// How long the words of a daemon that has died hold, at most, in nanoseconds.
const PATIENCE_NS: u64 = 20_000;

/// How long none is there, at most.
const ABSENCE_NS: u64 = 60_000;

impl Machine {
    /// From here on a daemon divides the processors.
    pub(crate) fn start_daemon(&self) {
        self.daemon.is_on.set(true);
        self.daemon.falls.set(u64::MAX);
        self.daemon.seen.replace(vec![0; self.spaces.len()]);
        for space in &self.spaces {
            space
                .stopped
                .replace(vec![None; self.style.processors.len()]);
        }
    }

    /// What the daemon does by now.
    pub(crate) fn watch_over(&self) {
        let daemon = &self.daemon;
        if !daemon.is_on.get() {
            return;
        }
        let now = self.clock.get();
        if now >= daemon.falls.get() {
            daemon.falls.set(u64::MAX);
            self.set_words(|_, _| true);
        }
        if daemon.life.borrow().is_some() {
            self.notice(now);
        }
        if now < daemon.next.get() {
            return;
        }
        if daemon.life.borrow().is_none() {
            self.revive(now);
        } else if self.chance(self.style.deaths) {
            daemon.life.replace(None);
            daemon.rests.take();
            daemon.falls.set(now + self.pick(PATIENCE_NS));
            daemon.next.set(now + self.pick(ABSENCE_NS));
            return;
        }
        self.look(now);
    }

    /// What the daemon knows, for the report of a failure.
    pub(crate) fn describe_daemon(&self) -> String {
        let next = self.daemon.next.get();
        let Some(life) = &*self.daemon.life.borrow() else {
            return format!("the daemon is away, back at {next}\n");
        };
        let mut text = format!("the daemon looks at {next}\n");
        for (index, name) in life.names.iter().enumerate() {
            let space = name.and_then(|name| life.allocator.space(name));
            if let Some(space) = space {
                let (want, runs, rests) = (space.want(), space.running(), space.resting());
                text +=
                    &format!("space {index} wants {want}, runs on {runs:?}, rests on {rests:?}\n");
            }
        }
        text
    }

    /// When the daemon does something by itself.
    pub(crate) fn next_of_daemon(&self) -> u64 {
        match self.daemon.is_on.get() {
            true => self.daemon.next.get().min(self.daemon.falls.get()),
            false => u64::MAX,
        }
    }

    /// What anybody publishes makes the daemon look, some time later.
    fn notice(&self, now: u64) {
        let mut changed = !self.daemon.rests.borrow().is_empty();
        for (space, seen) in self.spaces.iter().zip(&mut *self.daemon.seen.borrow_mut()) {
            let before = std::mem::replace(seen, self.published(space));
            changed |= before != *seen;
        }
        if changed || self.chance(self.style.spurious) {
            let at = now + self.pick(self.style.late + 1);
            self.daemon.next.set(self.daemon.next.get().min(at));
        }
    }

    fn revive(&self, now: u64) {
        let mut allocator = Allocator::new(TERMS);
        for &processor in &self.style.processors {
            // Two virtual processors may be on one.
            let _ = allocator.add(now, ProcessorId(processor));
        }
        let names = vec![None; self.spaces.len()];
        self.daemon.life.replace(Some(Life { allocator, names }));
        self.daemon.lives.set(self.daemon.lives.get() + 1);
        self.daemon.falls.set(u64::MAX);
    }

    fn look(&self, now: u64) {
        let daemon = &self.daemon;
        let mut life = daemon.life.borrow_mut();
        let Some(Life { allocator, names }) = &mut *life else {
            return;
        };
        for (space, name) in self.spaces.iter().zip(&mut *names) {
            match (*name, space.is_over.get()) {
                (None, false) => *name = Some(allocator.join(now, Priority(0))),
                (Some(name), true) => {
                    let _ = allocator.leave(now, name);
                }
                _ => {}
            }
        }
        for (index, processor) in daemon.rests.take() {
            if let Some(name) = names[index] {
                // It may be another's by now: then that says so.
                let _ = allocator.idle(now, name, ProcessorId(processor));
            }
        }
        for (index, (space, name)) in self.spaces.iter().zip(&*names).enumerate() {
            let want = self.published(space);
            // Also what has changed while it was dead.
            daemon.seen.borrow_mut()[index] = want;
            let Some(name) = *name else { continue };
            if allocator.space(name).is_some_and(|it| it.want() != want) {
                allocator.need(now, name, want).expect("it has joined");
            }
        }
        allocator.tick(now);
        daemon.next.set(allocator.next_ns().unwrap_or(u64::MAX));
        self.set_words(|space, processor| {
            names[space].is_some() && allocator.owner(ProcessorId(processor)) == names[space]
        });
    }

    /// Writes the words: `may_run(space, processor)`.
    fn set_words(&self, may_run: impl Fn(usize, u32) -> bool) {
        for (index, space) in self.spaces.iter().enumerate() {
            let (mut given, mut taken) = (false, false);
            for (processor, word) in space.stopped.borrow_mut().iter_mut().enumerate() {
                match (may_run(index, processor as u32), word.is_some()) {
                    (true, true) => {
                        *word = None;
                        space.give_back(self, |vp| vp.processor() == processor as u32);
                        given = true;
                    }
                    (false, false) => {
                        *word = Some(Stopped {
                            heard: false,
                            told: None,
                        });
                        taken = true;
                        let its = |vp: &&Vp| vp.processor() == processor as u32;
                        for vp in space.vps().iter().filter(its) {
                            space.turns.lose(vp.index());
                        }
                    }
                    _ => {}
                }
            }
            if given {
                self.wake_in_turn(index);
            }
            if taken && let Some(listener) = space.listener.get() {
                space.is_told.set(true);
                self.wake(listener, self.style.late);
            }
        }
    }

    /// Those that wait for a processor of an address space look whether it is there.
    fn wake_in_turn(&self, space: usize) {
        for index in 0..self.nr_vessels() {
            let waits = self.vessel(index, |vessel| {
                vessel.space == space && vessel.in_turn.get()
            });
            if waits {
                self.wake(index, self.style.slow_wakes);
            }
        }
    }

    /// How many processors an address space could use, as far as others see: of ours, those that run
    /// something or have something to run; of another, its kernel threads that are not blocked.
    fn published(&self, space: &Space) -> u32 {
        if space.is_over.get() {
            return 0;
        }
        if let Some(runtime) = space.runtime.get() {
            let uses = |vp: &&Vp| vp.word().state() != State::Idle || vp.has_ready();
            return runtime.vps().iter().filter(uses).count() as u32;
        }
        let threads = space.kernel_threads.borrow();
        let can_run = |&&index: &&usize| match self.doing(index) {
            Doing::Runnable => true,
            _ => self.vessel(index, |vessel| vessel.in_turn.get()),
        };
        // One that starts has no threads yet.
        threads.iter().filter(can_run).count() as u32
    }

    /// The processors that one address space waits for are those of another.
    pub(crate) fn is_contended(&self, index: usize) -> bool {
        let life = self.daemon.life.borrow();
        life.as_ref().is_some_and(|life| {
            let others = life.allocator.spaces();
            let mut others = others.filter(|(name, _)| Some(*name) != life.names[index]);
            others.any(|(_, space)| space.standing().hungry())
        })
    }

    /// A processor of an address space has nothing to do.
    pub(crate) fn rests(&self, space: usize, processor: u32) {
        if self.daemon.life.borrow().is_some() {
            self.daemon.rests.borrow_mut().push((space, processor));
        }
    }

    /// A space is over: its vessels end where they are.
    fn end_space(&self, index: usize) {
        let space = &self.spaces[index];
        space.is_over.set(true);
        space.runtime.set(None);
        for vessel in 0..self.nr_vessels() {
            let its = self.vessel(vessel, |vessel| vessel.space == index);
            if its && self.doing(vessel) != Doing::Gone {
                self.set_doing(vessel, Doing::Gone);
            }
        }
    }

    /// The program of the running vessel has ended; never returns to it.
    pub(crate) fn end_program(&self, space: usize) -> ! {
        self.end_space(space);
        if self.spaces.iter().all(|space| space.is_over.get()) {
            self.finish();
        }
        self.wait(Doing::Gone);
        unreachable!("a vessel that is gone was resumed")
    }
}

/// A kernel thread of a program of ours: passes on what the daemon has taken.
pub(crate) extern "C" fn listen(machine: usize, _: usize, _: usize) -> ! {
    // SAFETY: the machine, which outlives the run.
    let machine = unsafe { &*(machine as *const Machine) };
    let space = machine.space();
    loop {
        while !space.is_told.replace(false) {
            machine.wait(Doing::Sleeping);
        }
        let Some(runtime) = space.runtime.get() else {
            continue;
        };
        let mut heard = Vec::new();
        for (processor, word) in space.stopped.borrow_mut().iter_mut().enumerate() {
            if let Some(word) = word.as_mut().filter(|word| !word.heard) {
                word.heard = true;
                heard.push(processor as u32);
            }
        }
        // Several virtual processors may be on one.
        for vp in runtime
            .vps()
            .iter()
            .filter(|vp| heard.contains(&vp.processor()))
        {
            runtime.recall(vp);
        }
        for word in space.stopped.borrow_mut().iter_mut().flatten() {
            if word.heard && word.told.is_none() {
                word.told = Some(machine.rounds.now());
            }
        }
    }
}
