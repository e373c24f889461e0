//! The core's kernel trait on the timed machine.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use upcall_core::kernel::{Attributes, Poll, Share, Trace, Vessels, Watch};
use upcall_core::{Activation, Errno, Inside, ThreadList, Vp};

use super::setup::Kind;
use super::{Doing, Event, Machine, Space};

/// The kernel under one address space.
pub struct Timed {
    machine: *const Machine,
    space: usize,
}

// SAFETY: everything runs on one kernel thread.
unsafe impl Sync for Timed {}

/// The vessel of an activation: its number plus one, or 0.
#[derive(Default)]
pub struct Number(AtomicUsize);

/// Whether a thread has run before.
#[derive(Default)]
pub struct Past(pub(crate) AtomicBool);

impl Timed {
    pub(crate) fn new(machine: &'static Machine, space: usize) -> Self {
        Timed { machine, space }
    }

    pub(super) fn machine(&self) -> &Machine {
        // SAFETY: the machine outlives the run.
        unsafe { &*self.machine }
    }

    fn space(&self) -> &Space {
        &self.machine().spaces[self.space]
    }

    /// The vessel of an activation, once it has one.
    pub(crate) fn vessel_of(activation: &Activation<Self>) -> Option<usize> {
        activation.kernel.0.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(crate) fn set_vessel(&self, activation: &'static Activation<Self>, vessel: usize) {
        activation.kernel.0.store(vessel + 1, Ordering::Relaxed);
        self.machine()
            .vessel(vessel, |it| it.activation.set(Some(activation)));
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        let activation = std::ptr::from_ref(self.current()) as usize;
        // SAFETY: the offsets are those of 32-bit words of the activation.
        unsafe { &*((activation + offset) as *const AtomicU32) }
    }

    /// Interruptions of the running vessel, before its thread executes anything else.
    pub(crate) fn handle(&self) {
        let machine = self.machine();
        while machine.me(|vessel| vessel.interrupted.replace(false)) {
            let activation = self.current();
            if activation.is_inside() {
                activation.attend(Activation::<Self>::RESCHEDULE);
                return;
            }
            // Perhaps it continues on another vessel.
            activation.runtime().interrupted(false);
        }
    }

    /// A sleep of the running vessel: without upcalls an idle virtual processor spins, since its
    /// kernel does not know of idleness.
    fn suspend(&self, doing: Doing) {
        let machine = self.machine();
        if self.space().kind == Kind::Bound {
            machine.me(|vessel| vessel.doing.set(Doing::Spinning));
            machine.come_back();
        } else {
            machine.stop(doing);
        }
    }
}

// SAFETY: memory lives until the run is over.
unsafe impl upcall_core::Machine for Timed {
    type ActivationState = Number;
    type ThreadState = Past;

    fn now(&self) -> u64 {
        self.machine().now.get() / self.space().costs.slowness
    }

    fn yield_processor(&self) {
        let machine = self.machine();
        machine.charge(self.space().costs.trap);
        // A thread system that does not know of other virtual processors spins in place.
        if self.space().kind != Kind::Bound {
            machine.give_way();
        }
        self.note_interruption();
    }

    fn map(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        NonNull::new(self.machine().memory(length)).ok_or(Errno(12))
    }

    fn broken(&self, what: &str) -> ! {
        panic!("broken: {what}")
    }
}

// SAFETY: `current` is the vessel that runs; vessels begin on their activations' stacks.
unsafe impl Vessels for Timed {
    fn current(&self) -> &'static Activation<Self> {
        self.machine()
            .me(|vessel| vessel.activation.get())
            .expect("an activation")
    }

    fn set_inside(&self) {
        self.word(Activation::<Self>::OFFSET_INSIDE)
            .store(1, Ordering::SeqCst);
    }

    fn clear_inside(&self) -> bool {
        self.pay_upcalls();
        self.word(Activation::<Self>::OFFSET_INSIDE)
            .store(0, Ordering::SeqCst);
        self.word(Activation::<Self>::OFFSET_ATTENTION)
            .load(Ordering::SeqCst)
            != 0
    }

    fn sleep(&self, activation: &Activation<Self>, seen: u32) {
        self.machine().charge(self.space().costs.trap);
        if activation.wake_word().load(Ordering::SeqCst) == seen {
            self.suspend(Doing::Sleeping);
        }
        self.note_interruption();
    }

    fn wake(&self, activation: &Activation<Self>) {
        self.machine().charge(self.space().costs.trap);
        if let Some(index) = Self::vessel_of(activation) {
            self.machine().rouse(index);
        }
    }

    fn interrupt(&self, activation: &Activation<Self>) {
        self.machine().charge(self.space().costs.trap);
        if let Some(index) = Self::vessel_of(activation) {
            self.machine().interrupt(index);
        }
    }

    fn spawn(&self, activation: &'static Activation<Self>, _watches: bool) -> Result<(), Errno> {
        let (machine, space) = (self.machine(), self.space());
        if space.kind == Kind::Bound && space.nr_vessels.get() as usize >= space.vps.len() {
            return Err(Errno(11));
        }
        machine.charge(space.costs.spawn);
        let index = machine.add_vessel(
            self.space,
            activation.stack_top(),
            begin,
            std::ptr::from_ref(activation) as usize,
        );
        self.set_vessel(activation, index);
        machine.rouse(index);
        Ok(())
    }

    fn exit_activation(&self, _inside: &Inside<Self>) -> ! {
        self.machine().stop(Doing::Gone);
        unreachable!("a vessel that is gone was resumed")
    }

    fn is_gone(&self, activation: &Activation<Self>) -> bool {
        Self::vessel_of(activation).is_none_or(|index| {
            self.machine()
                .vessel(index, |it| it.doing.get() == Doing::Gone)
        })
    }
}

impl Attributes for Timed {
    fn begin(&self, thread: &Thread, _: &Thread) {
        thread.kernel.0.store(false, Ordering::Relaxed);
    }

    fn install(&self, _activation: &Activation<Self>, thread: &'static Thread) {
        self.pay_upcalls();
        let costs = &self.space().costs;
        let past = thread.kernel.0.swap(true, Ordering::Relaxed);
        self.machine()
            .charge(costs.dispatch + if past { costs.resume } else { 0 });
    }
}

impl Poll for Timed {
    fn poll(&self, activation: &Activation<Self>, wait: Option<u32>) -> ThreadList<Self> {
        let (machine, space) = (self.machine(), self.space());
        machine.charge(space.costs.trap);
        if let Some(seen) = wait
            && activation.wake_word().load(Ordering::SeqCst) == seen
            && machine.now.get() < space.alarm.get()
        {
            space.poller.set(machine.running.get());
            self.suspend(Doing::Polling);
            self.note_interruption();
        }
        let mut list = ThreadList::new();
        if machine.now.get() >= space.alarm.get() {
            activation.runtime().expire(&mut list);
        }
        list
    }

    fn wants_poller(&self) -> bool {
        self.space().alarm.get() != u64::MAX
    }

    fn set_alarm(&self, deadline: u64) {
        let space = self.space();
        let at = deadline.saturating_mul(space.costs.slowness);
        space.alarm.set(at);
        if at != u64::MAX {
            self.machine()
                .schedule(at, Event::Alarm { space: self.space });
        }
    }
}

impl Watch for Timed {
    fn is_blocked(&self, activation: &Activation<Self>, _cheap_doubt: bool) -> bool {
        let Some(index) = Self::vessel_of(activation) else {
            return false;
        };
        self.machine()
            .vessel(index, |vessel| vessel.doing.get() == Doing::Blocked)
    }
}

impl Trace for Timed {}

impl Share for Timed {
    fn may_run(&self, vp: &'static Vp<Self>) -> bool {
        if self.space().kind == Kind::Bound {
            return true;
        }
        let kernel = &self.space().vps[vp.index() as usize];
        kernel.processor.get().is_some() && !kernel.leaving.get()
    }

    fn await_turn(&self, activation: &Activation<Self>, seen: u32) {
        let machine = self.machine();
        machine.charge(self.space().costs.trap);
        let vp = activation.vp();
        if activation.wake_word().load(Ordering::SeqCst) == seen && !self.may_run(vp) {
            machine.await_turn(self.space, vp.index() as usize);
        }
        self.note_interruption();
    }
}

impl Timed {
    /// The thread that leaves the runtime next pays for each upcall that the runtime has counted: mostly the one that
    /// it put on the processor.
    fn pay_upcalls(&self) {
        let space = self.space();
        let Some(runtime) = space.runtime.get() else {
            return;
        };
        let stats = runtime.stats();
        let counted = (stats.blocked.get(), stats.unblocked());
        let paid = space.paid.replace(counted);
        if counted != paid {
            let cost = (counted.0 - paid.0) * space.costs.blocked
                + (counted.1 - paid.1) * space.costs.unblocked;
            self.machine().charge(cost);
        }
    }

    /// Interruptions that came while the vessel was in the kernel, inside the runtime.
    fn note_interruption(&self) {
        if self
            .machine()
            .me(|vessel| vessel.interrupted.replace(false))
        {
            self.current().attend(Activation::<Self>::RESCHEDULE);
        }
    }
}

type Thread = upcall_core::Thread<Timed>;

extern "C" fn begin(activation: usize, _: usize, _: usize) -> ! {
    // SAFETY: `spawn` passes its activation.
    let activation: &'static Activation<Timed> = unsafe { &*(activation as *const _) };
    activation.runtime().kernel().set_inside();
    // SAFETY: this is its kernel thread, on its stack.
    unsafe { activation.main() }
}
