//! What others decide for the threads: when a call ends, whether a processor is there, and whether the kernel gives more
//! kernel threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use upcall_core::Activity;

use crate::machine::policy::Call;
use crate::machine::{Doing, Machine};
use crate::threads::Me;

/// Where system calls or page faults last until somebody lets them end.
pub struct Gate {
    fault: bool,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// So many may pass that have not yet.
    permits: usize,
    /// The vessels that wait, in the order of their coming.
    vessels: Vec<usize>,
}

impl Gate {
    /// A closed one, for ever; `fault`: passing it is a page fault and no call.
    pub fn closed(fault: bool) -> &'static Self {
        Box::leak(Box::new(Gate {
            fault,
            inside: Mutex::default(),
        }))
    }

    /// Never held across a point.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait in it.
    pub fn nr_waiting(&self) -> usize {
        self.inside().vessels.len()
    }

    /// Takes a permit, if there is one.
    fn admits(&self) -> bool {
        let mut inside = self.inside();
        let admits = inside.permits > 0;
        inside.permits -= usize::from(admits);
        admits
    }

    fn wait(&self, machine: &Machine) {
        let vessel = machine.running.get();
        self.inside().vessels.push(vessel);
        machine.wait(Doing::Blocked {
            until: u64::MAX,
            fault: self.fault,
        });
        self.inside().vessels.retain(|&other| other != vessel);
        // Perhaps goes on in another vessel.
        machine.handle();
    }
}

impl Me {
    /// Waits in the kernel until the gate lets it pass.
    pub fn pass(self, gate: &'static Gate) {
        let pass = || {
            self.machine.point(Call::Block);
            while !gate.admits() {
                gate.wait(self.machine);
            }
        };
        if gate.fault {
            pass();
        } else {
            self.runtime.blocking(pass);
        }
        self.step();
    }

    /// Lets so many pass, now.
    pub fn open(self, gate: &'static Gate, count: usize) {
        self.open_at(gate, count, 0);
    }

    /// Lets so many pass; those that wait go on at that time, if it is still to come.
    pub fn open_at(self, gate: &'static Gate, count: usize, until: u64) {
        let first: Vec<usize> = {
            let mut inside = gate.inside();
            inside.permits += count;
            inside.vessels.iter().take(count).copied().collect()
        };
        for index in first {
            if let Doing::Blocked { fault, .. } = self.machine.doing(index) {
                let doing = if until > self.machine.clock.get() {
                    Doing::Blocked { until, fault }
                } else {
                    Doing::Runnable
                };
                self.machine.set_doing(index, doing);
            }
        }
        self.step();
    }

    /// Whether a thread waits for a deadline, and an activation sits in the poller for it.
    pub fn is_event_awaited(self) -> bool {
        let space = self.space;
        let polls = |&index: &usize| self.machine.doing(index) == Doing::Polling;
        space.alarm.get() != u64::MAX && space.pollers.borrow().iter().any(polls)
    }

    /// The kernel gives this address space no more kernel threads.
    pub fn exhaust(self) {
        self.space.exhausted.set(true);
    }

    /// The kernel gives kernel threads again.
    pub fn relieve(self) {
        self.space.exhausted.set(false);
    }

    /// Two virtual processors change places: each is another one's processor's from here on, as a backend
    /// decides when others crowd one of them.
    pub fn swap_processors(self, one: usize, other: usize) {
        let _in_kernel = self.machine.enter();
        let (one, other) = (&self.runtime.vps()[one], &self.runtime.vps()[other]);
        let (here, there) = (one.processor(), other.processor());
        one.move_to(there);
        other.move_to(here);
        for index in 0..self.machine.nr_vessels() {
            self.machine.vessel(index, |vessel| {
                let activation = vessel.activation.get();
                // An owner that has a mark was not replaced: somebody is about to try.
                let is_stopped = activation.is_some_and(|one| {
                    one.activity() == Activity::Displaced
                        || one.is_absent() && !one.vp().word().is_owned_by(one)
                });
                vessel
                    .has_to_follow
                    .set(is_stopped || vessel.has_to_follow.get());
            });
        }
    }

    /// The processors of these virtual processors are another address space's until that time, and
    /// those of all others are this one's.
    pub fn lose_processors(self, which: std::ops::Range<usize>, until: u64) {
        self.lose_each(which.map(|vp| (vp, until)));
    }

    /// The same with a warning: threads in critical sections may leave these first.
    pub fn leave_processors(self, which: std::ops::Range<usize>, until: u64) {
        self.space.finishes.set(true);
        self.lose_processors(which, until);
    }

    /// The same, each until a time of its own.
    pub fn lose_each(self, which: impl Iterator<Item = (usize, u64)>) {
        let vps = self.runtime.vps();
        // Made before the runtime is entered, and dropped behind it: the allocator must not be interrupted.
        let which: Vec<_> = which.map(|(at, until)| (&vps[at], until)).collect();
        let inside = self.runtime.enter();
        {
            let machine = self.machine.enter();
            let taken = which.iter().map(|&(vp, until)| (vp.index(), until));
            self.space.taken.replace(taken.collect());
            let first = which.iter().map(|&(_, until)| until).min();
            self.space.back_at.set(first.unwrap_or(u64::MAX));
            for &(vp, _) in &which {
                self.space.turns.lose(vp.index());
            }
            self.space.restore(&machine);
        }
        for &(vp, _) in &which {
            self.runtime.recall(vp);
        }
        inside.leave();
    }

    /// Whether a processor is another address space's.
    pub fn lacks_processors(self) -> bool {
        self.space.loses_processors()
    }
}
