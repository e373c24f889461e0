//! Implements the kernel trait on the simulated machine.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use upcall_core::event::Event;
use upcall_core::kernel::{Attributes, Poll, Share, Trace, Vessels, Watch};
use upcall_core::{Activation, Activity, Entered, Errno, Inside, ThreadList, Waiting};

use crate::machine::policy::Call;
use crate::machine::sim::{Number, Signals, Sim, Vp};
use crate::machine::{Doing, Machine, Thread, rounds};

impl Sim {
    /// Waits; where the activation's virtual processor has not its processor, until that is back.
    fn wait_in_turn(&self, activation: &Activation<Self>, doing: Doing) {
        let machine = self.machine();
        let (vp, space) = (activation.vp(), self.space());
        if space.lacks(vp.index()) {
            let me = machine.running.get();
            space.awaiting.borrow_mut().insert((me, vp.index()));
        }
        let waits = space.lacks_processor(vp);
        machine.me(|vessel| vessel.in_turn.set(waits));
        machine.wait(doing);
        machine.me(|vessel| vessel.in_turn.set(false));
    }

    /// Waits as in epoll_wait(2): who was woken by a kick that a visitor has collected meanwhile goes on waiting.
    fn await_news(&self, activation: &Activation<Self>) {
        let (machine, space) = (self.machine(), self.space());
        let has_come = || space.is_kicked.get() || space.has_news(machine.clock.get());
        if has_come() {
            return;
        }
        loop {
            self.wait_in_turn(activation, Doing::Polling);
            let by_kick = machine.me(|vessel| vessel.kicked.take());
            let by_signal = machine.me(|vessel| vessel.interrupted.get());
            machine.handle();
            machine.fault_in_seat();
            if !by_kick || by_signal || has_come() {
                return;
            }
        }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        let activation = std::ptr::from_ref(self.current()) as usize;
        // SAFETY: the offsets are those of 32-bit words of the activation.
        unsafe { &*((activation + offset) as *const AtomicU32) }
    }
}

// SAFETY: memory lives until the run is over.
unsafe impl upcall_core::Machine for Sim {
    type ActivationState = Number;
    type ThreadState = Signals;

    fn now(&self) -> u64 {
        self.machine().point(Call::Now);
        let machine = self.machine();
        machine.ask(|policy| policy.now(&machine))
    }

    fn locks(&self) {
        let machine = self.machine();
        let is_outside =
            machine.me(|vessel| vessel.activation.get().is_some_and(|it| !it.is_inside()));
        if is_outside {
            self.broken("a lock is taken outside of the runtime");
        }
    }

    fn yield_processor(&self) {
        self.machine().point(Call::Yield);
    }

    fn map(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        self.machine().point(Call::Map);
        NonNull::new(self.machine().memory(length)).ok_or(Errno(12))
    }

    fn has_barriers(&self) -> bool {
        true
    }

    /// Nothing is reordered here.
    fn pass_barriers(&self) -> bool {
        self.machine().point(Call::PassBarriers);
        true
    }

    fn broken(&self, what: &str) -> ! {
        self.machine().fail(format!("broken: {what}"))
    }
}

// SAFETY: `current` is the vessel that runs; vessels begin on their activations' stacks.
unsafe impl Vessels for Sim {
    fn current(&self) -> &'static Activation<Self> {
        self.machine()
            .me(|vessel| vessel.activation.get())
            .expect("an activation")
    }

    fn set_inside(&self) {
        let machine = self.machine();
        machine.point(Call::SetInside);
        self.word(Activation::<Self>::OFFSET_INSIDE)
            .store(1, Ordering::SeqCst);
    }

    fn clear_inside(&self) -> bool {
        self.word(Activation::<Self>::OFFSET_INSIDE)
            .store(0, Ordering::SeqCst);
        self.machine().point(Call::ClearInside);
        self.word(Activation::<Self>::OFFSET_ATTENTION)
            .load(Ordering::SeqCst)
            != 0
    }

    fn sleep(&self, activation: &Activation<Self>, seen: u32) {
        // In the kernel from the comparison to the sleep, as futex(2) is.
        let machine = self.machine();
        machine.point(Call::Sleep);
        if activation.wake_word().load(Ordering::SeqCst) == seen {
            machine.wait(Doing::Sleeping);
        }
    }

    fn wake(&self, activation: &Activation<Self>) {
        let machine = self.machine();
        machine.point(Call::Wake);
        if let Some(index) = Machine::vessel_of(activation) {
            match machine.vessel(index, |vessel| vessel.in_poll.get()) {
                true => self.space().kick(&machine),
                false => machine.wake(index, machine.style.slow_wakes),
            }
        }
        machine.point(Call::Wake);
    }

    fn interrupt(&self, activation: &Activation<Self>) {
        let machine = self.machine();
        if let Some(index) = Machine::vessel_of(activation) {
            machine.interrupt(index);
        }
        machine.point(Call::Interrupt);
    }

    fn spawn(&self, activation: &'static Activation<Self>, watches: bool) -> Result<(), Errno> {
        let machine = self.machine();
        machine.point(Call::Spawn);
        // It inherits the idle class, and would run threads there.
        if machine.style.sentinel && !watches && self.current().activity() == Activity::Standby {
            machine.fail("a sentinel starts an activation for threads".into());
        }
        let alive = self.space().alive.get();
        let space = self.space();
        // Together with others a program that cannot start has none of the processors.
        let starts = machine.style.spaces > 1 && !space.has_started.get();
        let full = alive >= machine.style.most_vessels || space.exhausted.get();
        let refused = full || machine.chance(machine.style.refusals);
        if refused && !starts {
            space.refuse(activation.vp().index());
            return Err(Errno(11));
        }
        let index = machine.add_vessel(
            self.space,
            activation.stack_top(),
            begin,
            std::ptr::from_ref(activation) as usize,
        );
        activation.kernel.set(index + 1);
        machine.vessel(index, |vessel| {
            vessel.activation.set(Some(activation));
            vessel.sentinel.set(watches);
            vessel.processor.set(activation.vp().processor());
        });
        machine.point(Call::Spawn);
        Ok(())
    }

    fn exit_activation(&self, _inside: &Inside<Self>) -> ! {
        self.machine().point(Call::Exit);
        let alive = &self.space().alive;
        alive.set(alive.get() - 1);
        self.machine().wait(Doing::Gone);
        unreachable!("a vessel that is gone was resumed")
    }

    fn bind(&self, activation: &Activation<Self>) {
        self.machine().me(|vessel| {
            vessel.processor.set(activation.vp().processor());
            vessel.has_to_follow.set(false);
        });
        self.machine().point(Call::Bind);
    }

    fn is_gone(&self, activation: &Activation<Self>) -> bool {
        Machine::vessel_of(activation)
            .is_none_or(|index| self.machine().doing(index) == Doing::Gone)
    }
}

impl Attributes for Sim {
    fn begin(&self, thread: &Thread, _: &Thread) {
        thread.kernel.pending.store(false, Ordering::SeqCst);
        thread.kernel.delivered.store(0, Ordering::SeqCst);
        thread.kernel.gives_way.store(false, Ordering::SeqCst);
    }

    fn install(&self, activation: &Activation<Self>, thread: &'static Thread) {
        let machine = self.machine();
        machine.point(Call::Install);
        if machine.me(|vessel| vessel.sentinel.get()) {
            // It may not get to run for ever, and others wait for what it holds.
            machine.fail("a sentinel carries a thread".into());
        }
        thread.kernel.passed.1.set(0);
        thread.kernel.held_up.1.set(0);
        thread.kernel.held.set(0);
        let space = self.space();
        if activation.vp().has_ready() {
            space.dispatches(activation.vp().index());
        }
        // Where the kernel gives no more kernel threads, the list of a virtual processor waits for the owner's call to end.
        let on_the_way = match activation.runtime().is_short() {
            true => u64::MAX,
            false => rounds::of_a_call(&machine.style),
        };
        let came = space.turns.came(thread, machine.rounds.now(), on_the_way);
        if let Err(what) = came {
            machine.fail(what);
        }
        if thread.kernel.pending.load(Ordering::SeqCst) {
            activation.attend(Activation::<Self>::DEFERRED);
        }
    }

    fn uninstall(&self, activation: &Activation<Self>, thread: &'static Thread) {
        let machine = self.machine();
        machine.point(Call::Uninstall);
        let vp = activation.vp();
        // Who lost its virtual processor on the way in goes to the front, not to the end.
        if vp.word().is_owned_by(activation) && !self.space().lacks_processor(vp) {
            machine.space().turns.left(vp.index(), thread);
        }
    }

    fn is_interrupted(&self, thread: &'static Thread) -> bool {
        self.machine().point(Call::IsInterrupted);
        thread.kernel.pending.load(Ordering::SeqCst)
    }

    fn deferred(&self, inside: Entered<Self>) {
        if let Some(thread) = inside.thread()
            && thread.kernel.pending.swap(false, Ordering::SeqCst)
        {
            thread.kernel.delivered.fetch_add(1, Ordering::SeqCst);
        }
        inside.leave_quietly();
    }
}

impl Poll for Sim {
    fn poll(&self, activation: &Activation<Self>, wait: Option<u32>) -> ThreadList<Self> {
        let machine = self.machine();
        machine.point(Call::Poll);
        let space = self.space();
        if let Some(seen) = wait {
            machine.me(|vessel| vessel.in_poll.set(true));
            machine.fault_in_seat();
            if activation.wake_word().load(Ordering::SeqCst) == seen {
                self.await_news(activation);
            }
            space.is_kicked.set(false);
        } else if space.is_kicked.take() && activation.runtime().seat_is_taken() {
            // The edge is gone for who sits there: another one.
            space.kick(&machine);
        }
        let list = space.collect(activation.runtime(), machine.clock.get());
        machine.point(Call::Poll);
        machine.me(|vessel| vessel.in_poll.set(false));
        list
    }

    fn wants_poller(&self) -> bool {
        self.machine().point(Call::WantsPoller);
        self.space().wants_poller()
    }

    fn set_alarm(&self, deadline: u64) {
        self.space().set_alarm(deadline);
        self.machine().point(Call::SetAlarm);
    }

    fn slack(&self, _: &'static Thread) -> u64 {
        self.machine().style.slack
    }
}

impl Watch for Sim {
    fn is_blocked(&self, activation: &Activation<Self>, cheap_doubt: bool) -> bool {
        let machine = self.machine();
        machine.point(Call::IsBlocked);
        let Some(index) = Machine::vessel_of(activation) else {
            return false;
        };
        match machine.doing(index) {
            Doing::Blocked { .. } => true,
            _ => cheap_doubt && machine.chance(machine.style.doubts),
        }
    }

    fn waits_for_events(&self, _owner: &Activation<Self>) -> bool {
        let machine = self.machine();
        machine.chance(machine.style.doubts)
    }

    /// A nap is a yield: what it costs is time, which is not simulated.
    fn nap_ns(
        &self,
        _standby: &Activation<Self>,
        _only_events: bool,
        _quiet_ns: impl FnOnce() -> u64,
    ) -> Option<u64> {
        let machine = self.machine();
        machine.chance(machine.style.doubts).then_some(1)
    }

    fn waiting(&self, activation: &Activation<Self>) -> Waiting {
        self.machine().point(Call::Waiting);
        match Self::is_interruptible(activation) {
            true => Waiting::Interruptible,
            false => Waiting::Deaf,
        }
    }

    fn needs_heirs(&self) -> bool {
        self.machine().point(Call::Sentinel);
        self.machine().style.sentinel
    }
}

impl Trace for Sim {
    fn note(&self, event: Event<Self>) {
        let machine = self.machine();
        let (space, me) = (self.space(), machine.running.get());
        let what = (event.what, event.vp.index(), machine.clock.get());
        if let Err((before, of)) = space.timeline.take(what, event.thread, me) {
            machine.fail(format!(
                "the_timeline_adds_up: {:?} of vessel {me}, but of vessel {of} the thread was left in place {before}",
                event.what
            ));
        }
    }
}

impl Share for Sim {
    fn tick(&self, inside: &Inside<Self>, _thread: &'static Thread) {
        self.bind(inside);
    }

    fn may_run(&self, vp: &'static Vp) -> bool {
        let machine = self.machine();
        let space = self.space();
        let lacks = space.lacks_processor(vp);
        if space.loses_processors() {
            machine.point(Call::MayRun);
        }
        !lacks
    }

    fn may_finish(&self, _vp: &'static Vp) -> bool {
        self.space().finishes.get()
    }

    fn await_turn(&self, activation: &Activation<Self>, seen: u32) {
        let machine = self.machine();
        machine.point(Call::AwaitTurn);
        let vp = activation.vp();
        let space = self.space();
        // As where a backend calls `added`.
        let has_another = space.vps().iter().any(|vp| !space.lacks_processor(vp));
        let is_told = vp.has_ready() && has_another;
        let is_due = is_told || !space.lacks_processor(vp);
        if activation.wake_word().load(Ordering::SeqCst) == seen && !is_due {
            self.wait_in_turn(activation, Doing::Sleeping);
        }
    }

    fn is_contended(&self) -> bool {
        self.machine().is_contended(self.space)
    }

    fn resting(&self, activation: &Activation<Self>) {
        let machine = self.machine();
        machine.rests(self.space, activation.vp().processor());
        machine.point(Call::Resting);
    }
}

extern "C" fn begin(activation: usize, _: usize, _: usize) -> ! {
    // SAFETY: `spawn` passes its activation.
    let activation: &'static Activation<Sim> = unsafe { &*(activation as *const _) };
    let kernel = activation.runtime().kernel();
    kernel
        .word(Activation::<Sim>::OFFSET_INSIDE)
        .store(1, Ordering::SeqCst);
    // SAFETY: this is its kernel thread, on its stack.
    unsafe { activation.main() }
}
