//! What the simulated kernel keeps with one address space.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use upcall_core::Claim;
use upcall_core::{Runtime, State, ThreadList, WakeReason};

use crate::machine::advice::Advice;
use crate::machine::books::Books;
use crate::machine::daemon::Stopped;
use crate::machine::sim::{Sim, Vp};
use crate::machine::timeline::Timeline;
use crate::machine::turns::Turns;
use crate::machine::{Doing, InKernel, Machine, Thread};

/// A descriptor of the simulated kernel: an edge, or threads that wait for one.
#[derive(Default)]
pub struct Descriptor {
    /// It has fired, and nobody was waiting.
    pub edge: bool,
    /// Threads parked on it.
    pub waiting: Vec<&'static Thread>,
}

/// An address space.
#[derive(Default)]
pub struct Space {
    /// Its runtime, once that is there.
    pub runtime: Cell<Option<&'static Runtime<Sim>>>,
    /// The deadline that was asked for last, on [`crate::machine::Machine::clock`].
    pub alarm: Cell<u64>,
    /// The alarm is to ring at that deadline: it was set, and has not rung since.
    pub(crate) is_armed: Cell<bool>,
    /// How often the alarm was set.
    pub alarms: Cell<u64>,
    /// The kernel has refused a kernel thread.
    pub spawn_failed: Cell<bool>,
    /// Virtual processors for which it has, and that have not asked again since; whether they have dispatched
    /// a thread since.
    pub(crate) refused: RefCell<BTreeMap<u32, bool>>,
    /// Virtual processors whose processors are another address space's, and when those come back.
    pub(crate) taken: RefCell<BTreeMap<u32, u64>>,
    /// Threads there may go on to the ends of their critical sections.
    pub(crate) finishes: Cell<bool>,
    /// When the first of those comes back.
    pub(crate) back_at: Cell<u64>,
    /// The kernel gives no more kernel threads.
    pub(crate) exhausted: Cell<bool>,
    /// Vessels that wait for the processor of a virtual processor, and some that do not any more.
    pub(crate) awaiting: RefCell<BTreeSet<(usize, u32)>>,
    /// What threads can wait for.
    pub descriptors: RefCell<Vec<Descriptor>>,
    /// Descriptors whose edge nobody has collected.
    pub(crate) fired: RefCell<Vec<usize>>,
    /// When which descriptor fires.
    pub(crate) firings: RefCell<Vec<(u64, usize)>>,
    /// What the invariants remember.
    pub(crate) books: RefCell<Books>,
    pub(crate) turns: Turns,
    pub(crate) timeline: Timeline,
    pub(crate) advice: Advice,
    /// Threads that may have ranks.
    pub(crate) ranked: RefCell<Vec<&'static Thread>>,
    /// Threads in critical sections.
    pub(crate) in_sections: RefCell<Vec<&'static Thread>>,
    /// Waiters of words that were woken, by those who woke them.
    pub(crate) woken: Cell<u64>,
    /// The same, by themselves.
    pub(crate) awoken: Cell<u64>,
    /// Threads whose waits for a descriptor were ended, by the poller.
    pub(crate) told: Cell<u64>,
    /// The same, by themselves.
    pub(crate) heard: Cell<u64>,
    /// Vessels that wait for news, and some that do not any more.
    pub(crate) pollers: RefCell<Vec<usize>>,
    /// One of those was to be woken, and nobody has collected that.
    pub(crate) is_kicked: Cell<bool>,
    /// Vessels that were woken and do not run yet.
    pub(crate) waking: Cell<usize>,
    /// Vessels that have not ended.
    pub(crate) alive: Cell<usize>,
    /// Threads parked on descriptors.
    pub(crate) nr_waiting: Cell<usize>,
    /// Which processors are not its own, by number; none, where nobody divides them.
    pub(crate) stopped: RefCell<Vec<Option<Stopped>>>,
    /// The vessel that hears what was taken.
    pub(crate) listener: Cell<Option<usize>>,
    /// Something was taken, and the listener has not heard it yet.
    pub(crate) is_told: Cell<bool>,
    /// The vessels of a program that has no runtime.
    pub(crate) kernel_threads: RefCell<Vec<usize>>,
    /// The program has an activation for each virtual processor, if it will have them.
    pub(crate) has_started: Cell<bool>,
    /// The program has ended.
    pub(crate) is_over: Cell<bool>,
}

impl Space {
    pub(crate) fn new() -> Self {
        Space {
            alarm: Cell::new(u64::MAX),
            back_at: Cell::new(u64::MAX),
            ..Space::default()
        }
    }

    /// A thread has a rank, perhaps.
    pub(crate) fn count_ranked(&self, thread: &'static Thread) {
        let mut ranked = self.ranked.borrow_mut();
        if !ranked.iter().any(|one| std::ptr::eq(*one, thread)) {
            ranked.push(thread);
        }
    }

    /// A thread is made.
    pub(crate) fn begins(&self, _: &InKernel, thread: &'static Thread) {
        self.advice.begins(thread);
        if self.advice.adviser.get().is_some() {
            self.count_ranked(thread);
        }
    }

    /// A thread is about to end.
    pub(crate) fn ends(&self, _: &InKernel, thread: &'static Thread) {
        self.advice.ends(thread);
    }

    /// The kernel refuses a kernel thread for a virtual processor.
    pub(crate) fn refuse(&self, vp: u32) {
        self.spawn_failed.set(true);
        self.refused.borrow_mut().insert(vp, false);
    }

    /// A thread is put on a virtual processor, on which another one waits: the activation that did that has asked
    /// for a standby if there is none. A refusal that came in the course of it excuses until the next time.
    pub(crate) fn dispatches(&self, vp: u32) {
        let mut refused = self.refused.borrow_mut();
        match refused.get_mut(&vp) {
            Some(has_dispatched) if !*has_dispatched => *has_dispatched = true,
            _ => {
                refused.remove(&vp);
            }
        }
    }

    /// What the daemon says about a processor, if it is not this one's.
    pub(crate) fn stopped(&self, processor: u32) -> Option<Stopped> {
        self.stopped
            .borrow()
            .get(processor as usize)
            .copied()
            .flatten()
    }

    /// Whether it has a processor at all.
    pub(crate) fn has_processor(&self) -> bool {
        let words = self.stopped.borrow();
        words.is_empty() || words.iter().any(Option::is_none)
    }

    /// Sets the alarm, which rings once.
    pub(crate) fn set_alarm(&self, deadline: u64) {
        self.alarm.set(deadline);
        self.is_armed.set(deadline != u64::MAX);
        self.alarms.set(self.alarms.get() + 1);
    }

    /// When the alarm rings, if it is still to ring.
    fn rings_at(&self) -> u64 {
        if self.is_armed.get() {
            self.alarm.get()
        } else {
            u64::MAX
        }
    }

    /// Whether something has come that ends the wait of an activation that sits in the poller.
    pub(crate) fn has_news(&self, now: u64) -> bool {
        now >= self.rings_at() || !self.fired.borrow().is_empty()
    }

    /// Wakes who waits for news.
    pub(crate) fn kick(&self, machine: &Machine) {
        self.is_kicked.set(true);
        let pollers = self.pollers.borrow().clone();
        for index in pollers {
            if machine.doing(index) == Doing::Polling {
                machine.vessel(index, |vessel| vessel.kicked.set(true));
                machine.wake(index, machine.style.slow_wakes);
            }
        }
    }

    /// Descriptors whose time has come fire.
    pub(crate) fn fire(&self, now: u64) {
        if self.firings.borrow().is_empty() {
            return;
        }
        self.firings.borrow_mut().retain(|&(time, descriptor)| {
            if time <= now {
                self.fired.borrow_mut().push(descriptor);
            }
            time > now
        });
    }

    /// When the poller's wait ends, if nothing is there yet.
    pub(crate) fn next_news(&self) -> u64 {
        let firings = self.firings.borrow();
        let first = firings.iter().map(|&(time, _)| time).min();
        first.unwrap_or(u64::MAX).min(self.rings_at())
    }

    /// Whether somebody has to sit in the poller's seat.
    pub(crate) fn wants_poller(&self) -> bool {
        self.nr_waiting.get() != 0 || self.alarm.get() != u64::MAX
    }

    /// The threads whose descriptors have fired or whose deadlines have come. Takes the alarm's ring: an
    /// activation that looks in passing sees by the time, too, that the deadline has come.
    pub(crate) fn collect(&self, runtime: &'static Runtime<Sim>, now: u64) -> ThreadList<Sim> {
        let mut list = ThreadList::new();
        let fired = self.fired.take();
        for index in fired {
            let descriptor = &mut self.descriptors.borrow_mut()[index];
            let mut found = false;
            for thread in descriptor.waiting.drain(..) {
                self.nr_waiting.set(self.nr_waiting.get() - 1);
                let claim = thread.claim(WakeReason::Woken);
                if claim == Claim::Lost {
                    continue;
                }
                found = true;
                self.told.set(self.told.get() + 1);
                if claim == Claim::Ready {
                    list.push_back(thread);
                }
            }
            descriptor.edge |= !found;
        }
        if now >= self.alarm.get() {
            self.is_armed.set(false);
            runtime.expire(&mut list);
        }
        list
    }

    /// Its virtual processors; none before it has started.
    pub(crate) fn vps(&self) -> &'static [Vp] {
        self.runtime.get().map_or(&[], |runtime| runtime.vps())
    }

    /// Whether a virtual processor's processor is another address space's.
    pub(crate) fn lacks(&self, vp: u32) -> bool {
        self.taken.borrow().contains_key(&vp)
    }

    /// Returns true if a virtual processor does not have its processor now, by `taken` or by what the daemon says.
    pub(crate) fn lacks_processor(&self, vp: &Vp) -> bool {
        self.lacks(vp.index()) || self.stopped(vp.processor()).is_some()
    }

    /// Whether any is.
    pub(crate) fn loses_processors(&self) -> bool {
        !self.taken.borrow().is_empty()
    }

    /// Tells the idle owners of virtual processors that have their processors back, as [`Runtime::added`] does.
    pub(crate) fn give_back(&self, machine: &Machine, is_back: impl Fn(&Vp) -> bool) {
        let words = self.vps().iter().filter(|vp| is_back(vp)).map(Vp::word);
        for word in words.filter(|word| word.state() == State::Idle) {
            let owner = word.owner();
            owner.wake_word().fetch_add(1, Ordering::SeqCst);
            let sits = |index| machine.vessel(index, |vessel| vessel.in_poll.get());
            if Machine::vessel_of(owner).is_some_and(sits) {
                self.kick(machine);
            }
        }
    }

    /// Gives back the processors whose time has come, and wakes who waits for one that is back.
    pub(crate) fn restore(&self, machine: &Machine) {
        let now = machine.clock.get();
        if self.back_at.get() <= now {
            let mut taken = self.taken.borrow_mut();
            let due = taken.iter().filter(|&(_, &until)| until <= now);
            let back: Vec<u32> = due.map(|(&vp, _)| vp).collect();
            taken.retain(|_, until| *until > now);
            self.back_at
                .set(taken.values().copied().min().unwrap_or(u64::MAX));
            drop(taken);
            self.give_back(machine, |vp| back.contains(&vp.index()));
            // Who keeps a list of ready threads is told of any.
            for (vessel, _) in self.awaiting.take() {
                machine.wake(vessel, 0);
            }
        }
        self.awaiting.borrow_mut().retain(|&(vessel, vp)| {
            let waits = self.lacks(vp);
            if !waits {
                machine.wake(vessel, 0);
            }
            waits
        });
    }
}
