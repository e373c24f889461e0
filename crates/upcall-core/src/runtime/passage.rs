//! The passage of a thread through the runtime: entering and leaving, system calls, parking and ending.
//!
//! A thread enters the runtime on its own stack ([`Runtime::enter`]), does what it came for, and
//! leaves ([`Entered::leave`]). When it parks, its registers are saved and the activation goes on
//! alone on its own stack, from the top: there the bookkeeping that must follow the saving is
//! done (`after`), and `Runtime::schedule` picks the next thread. So a thread that others can
//! find is always a saved thread, and the activation's stack never holds state across a switch.
//! Approach rejected: switching from thread to thread directly, which is some nanoseconds
//! cheaper and leaves the bookkeeping of one thread to the next one.

use core::sync::atomic::Ordering;

use crate::arch;
use crate::event::What;
use crate::kernel::Kernel;
use crate::runtime::{Runtime, Transition};
use crate::state::activation::{Activation, Activity};
use crate::state::inside::{Entered, Inside};
use crate::state::ready::By;
use crate::state::thread::{Claim, Phase, Thread, WakeReason};
use crate::state::vp::State;

/// So many activations, beside four a virtual processor, may be away for waits that could park.
const FEW_AWAY: u64 = 12;

/// What is done on the activation's own stack after a thread's registers are saved. May name the
/// thread to run next, which the caller then owns and which is in no list.
pub type After<K> = fn(&Inside<K>, &'static Thread<K>, usize) -> Option<&'static Thread<K>>;

/// An [`After`], by its own type: it becomes a part of the landing.
pub trait Step<K: Kernel>:
    Copy + FnOnce(&Inside<K>, &'static Thread<K>, usize) -> Option<&'static Thread<K>>
{
}

impl<K: Kernel, F> Step<K> for F where
    F: Copy + FnOnce(&Inside<K>, &'static Thread<K>, usize) -> Option<&'static Thread<K>>
{
}

impl<K: Kernel> Runtime<K> {
    /// Enters the runtime from a thread's own code. Afterwards the activation that carries the thread owns its
    /// virtual processor: the thread may have had to wait for one here, if the processor was given away while
    /// the thread did not look.
    #[inline]
    pub fn enter(&'static self) -> Entered<K> {
        let inside = self.mark_inside();
        if inside.vp().enter(inside.activation()) {
            inside
        } else {
            inside.regain()
        }
    }

    /// Sets the mark. The caller looks then whether it owns its virtual processor.
    #[inline]
    pub(super) fn mark_inside(&'static self) -> Entered<K> {
        self.kernel.set_inside();
        Entered::on(self.kernel.current())
    }

    /// The first step of a launched thread, which begins inside.
    ///
    /// # Safety
    ///
    /// The caller is the `landing` of [`Inside::launch`].
    pub unsafe fn arrive(&'static self) -> Entered<K> {
        Entered::on(self.kernel.current())
    }

    #[cold]
    fn attend(&'static self) {
        loop {
            let mut inside = self.enter();
            let bits = inside.take_attention();
            // First what is for this thread, while it is on this activation.
            if bits & Activation::<K>::DEFERRED != 0 {
                self.kernel.deferred(inside);
                if self.is_left() {
                    return;
                }
                inside = self.enter();
            }
            let is_asked = bits & Activation::<K>::RESCHEDULE != 0;
            if is_asked && self.gives_way(inside.vp(), inside.thread()) {
                inside = inside.park_to_choose();
            }
            if !inside.step_out() {
                return;
            }
        }
    }

    /// Runs `call`, a system call of the current thread that may block: if it does, the virtual
    /// processor goes to a ready thread, and the thread waits for one when the call is over.
    /// Called from the thread's own code, outside the runtime.
    #[inline]
    pub fn blocking<R>(&'static self, call: impl FnOnce() -> R) -> R {
        self.resume_blocking();
        let result = call();
        self.return_from_kernel().leave();
        result
    }

    /// In a handler that interrupted the thread's system call: back to the thread's own code, with
    /// a virtual processor. [`Runtime::resume_blocking`] must follow before the handler returns into the call.
    pub fn interrupt_blocking(&'static self) {
        self.return_from_kernel().leave();
    }

    /// Into a system call of the thread, for the first time or back after a handler.
    #[inline]
    pub fn resume_blocking(&'static self) {
        while self.enter().step_into_kernel() {
            self.interrupt_blocking();
        }
    }

    /// Called when a system call returns. The caller is not inside the runtime.
    #[inline]
    fn return_from_kernel(&'static self) -> Entered<K> {
        let inside = self.mark_inside();
        inside.set_activity(Activity::Running);
        if inside.step(State::Kernel, State::Runtime) {
            inside.trace_own(What::Returns);
            inside
        } else {
            inside.regain()
        }
    }

    /// Gives way to other ready threads if the thread has had a turn. Called from the thread's own code, before a call that
    /// waits for others (a request, a message) and may find that they were faster. A kernel that runs them beside the
    /// thread makes them so; a thread that never had to wait would keep the processor for a whole slice, and all others
    /// would be late by so much.
    #[inline]
    pub fn end_turn(&'static self) {
        // A hint: the thread may be on another activation next.
        let vp = self.kernel.current().vp();
        if vp.has_ready() && self.all_take_turns() {
            let now = self.kernel.now();
            if vp.has_had_enough(now) {
                self.give_way_to_equals(now);
            }
        }
    }

    #[cold]
    fn give_way_to_equals(&'static self, now: u64) {
        let inside = self.enter();
        let in_section = inside.thread().is_some_and(Thread::is_in_section);
        if in_section || self.is_left() || !inside.vp().has_ready() {
            inside.leave();
            return;
        }
        inside.vp().ready.age(&self.kernel, By::Owner, now);
        let inside = inside.park(
            |inside, thread, _| {
                let (runtime, vp) = (inside.runtime(), inside.vp());
                runtime.tell(vp, thread, Transition::Preempted);
                runtime.push_back(vp, By::Owner, thread);
                None
            },
            0,
        );
        inside.leave();
    }

    /// Returns true if few activations are in the kernel with their threads, so that one more may be. A hint.
    pub fn few_are_away(&self) -> bool {
        self.stats.absent.get() < 4 * self.vps().len() as u64 + FEW_AWAY
    }

    /// Gives way to other ready threads. Called from the thread's own code.
    pub fn yield_now(&'static self) {
        self.enter().give_way().leave();
    }

    /// The same, but the processor stays the program's: if no thread can run instead, the caller goes on.
    pub fn yield_to_threads(&'static self) {
        let inside = self.enter();
        let inside = if inside.may_find_others() {
            inside.park_ready()
        } else {
            inside
        };
        inside.leave();
    }
}

impl<K: Kernel> Activation<K> {
    /// Returns true if a thread that would wait for a pollable descriptor, or sleep, had better block its
    /// activation: its virtual processor only computes, so that the kernel's own wake-up is the fastest
    /// interruption there is, and few activations are away. Not where threads that were woken wait for each other: a
    /// thread that comes back from the kernel would go before all of them.
    pub fn prefers_blocking(&self) -> bool {
        let runtime = self.runtime();
        self.vp().only_computes()
            && !self.vp().woken_wait.load(Ordering::Relaxed)
            && !runtime.is_short()
            && runtime.few_are_away()
    }

    /// Where the kernel thread of an activation begins.
    ///
    /// # Safety
    ///
    /// The caller is the kernel thread that [`Vessels::spawn`](crate::kernel::Vessels::spawn) has started for this
    /// activation, on the activation's own stack.
    pub unsafe fn main(&'static self) -> ! {
        self.control.store(arch::control(), Ordering::Relaxed);
        Entered::on(self).carry_on()
    }
}

impl<K: Kernel> Entered<K> {
    /// Leaves the runtime: the thread's own code goes on.
    #[inline]
    pub fn leave(self) {
        let runtime = self.runtime();
        if self.step_out() {
            runtime.attend();
        }
    }

    /// Leaves the runtime without looking at events that came meanwhile.
    pub fn leave_quietly(self) {
        self.step_out();
    }

    /// Returns true if events came meanwhile.
    #[inline]
    fn step_out(self) -> bool {
        self.vp().leave(self.activation());
        self.runtime().kernel.clear_inside()
    }

    /// Goes into a system call: somebody must notice if it blocks while there is work, be it that of
    /// the poller. Returns true if events came meanwhile.
    #[inline]
    fn step_into_kernel(self) -> bool {
        let (runtime, vp) = (self.runtime(), self.vp());
        self.set_activity(Activity::InCall);
        self.trace_own(What::Calls);
        if runtime.standby_is_awake(vp) {
            self.set(State::Kernel);
            if vp.naps.load(Ordering::Relaxed) {
                runtime.calls_beside_nap(vp);
            }
        } else if !runtime.is_left()
            && (vp.has_ready() || runtime.seat_is_wanted() || runtime.kernel.is_contended())
        {
            runtime.call_standby(vp);
            self.set(State::Kernel);
        } else {
            self.set(State::Kernel);
            if runtime.vps().len() > 1 {
                // No work now: a virtual processor that gets some may ring this one. Not before it is
                // in `Kernel`: a ring would see it at work and go on. It stays in the set when the call is over:
                // to leave it each time would make all processors wait for one cache line.
                runtime.vps.set_idle(vp);
            }
        }
        runtime.kernel.clear_inside()
    }

    /// Parks the current thread: saves it, then calls `after` with `argument` on the activation's
    /// own stack. Returns when the thread runs again.
    /// Inlined, so that no return is mispredicted: see `arch`.
    #[inline(always)]
    pub fn park<F: Step<K>>(self, after: F, argument: usize) -> Self {
        let thread = self.parks();
        self.park_as::<F, false>(thread, after, argument)
    }

    /// As [`Entered::park`], where the activation owns its virtual processor still after the step.
    #[inline(always)]
    pub fn park_owner<F: Step<K>>(self, after: F, argument: usize) -> Self {
        let thread = self.parks();
        self.park_as::<F, true>(thread, after, argument)
    }

    /// The thread that is about to park.
    #[inline(always)]
    pub(super) fn parks(&self) -> &'static Thread<K> {
        let Some(thread) = self.thread() else {
            self.runtime().kernel.broken("park without a thread");
        };
        thread
    }

    /// `thread` is the current one. `OWNS`: see [`Entered::park_owner`].
    #[inline(always)]
    pub(super) fn park_as<F: Step<K>, const OWNS: bool>(
        self,
        thread: &'static Thread<K>,
        after: F,
        argument: usize,
    ) -> Self {
        let runtime = self.runtime();
        // SAFETY: `context` is the thread's own, the activation's stack is free while its thread
        // runs, and the landing never returns. It takes `after` before anybody can find the thread.
        unsafe {
            arch::switch_out(
                thread.context.as_ptr(),
                self.stack_top(),
                parked::<K, F, OWNS>,
                core::ptr::from_ref(self.activation()) as usize,
                &raw const after as usize,
                argument,
            );
        }
        Entered::on(runtime.kernel.current())
    }

    /// Puts the current thread at the end of the ready list and runs another one.
    pub(super) fn park_ready(self) -> Self {
        self.park_owner(
            |inside, thread, _| {
                let runtime = inside.runtime();
                let vp = inside.vp();
                if !inside.is_plain_turn(vp) {
                    runtime.tell(vp, thread, Transition::Yielded);
                    runtime.push_last(vp, By::Owner, thread);
                    return None;
                }
                let next = vp.ready.exchange(&runtime.kernel, By::Owner, thread);
                inside.is_chosen(next).then_some(next)
            },
            0,
        )
    }

    /// As [`Entered::park_ready`], where something has come that may have a say in what runs next, and in
    /// whether anything may.
    pub(super) fn park_to_choose(self) -> Self {
        self.park(
            |inside, thread, _| {
                let runtime = inside.runtime();
                let vp = inside.vp();
                runtime.tell(vp, thread, Transition::Preempted);
                if runtime.is_ranked() && runtime.is_more_urgent_ready(vp, thread.rank()) {
                    runtime.put_back(vp, thread);
                } else if thread.is_in_section() {
                    runtime.push_first(vp, thread);
                } else if runtime.takes_turns() {
                    runtime.push_back(vp, By::Owner, thread);
                } else {
                    runtime.push_front(vp, By::Owner, thread);
                }
                None
            },
            0,
        )
    }

    /// Parks the current thread, which is findable, until it is claimed, at the latest at `deadline` (nanoseconds of
    /// [`Machine::now`](crate::Machine::now)).
    #[inline(always)]
    pub fn park_until_claimed(self, thread: &'static Thread<K>, deadline: Option<u64>) -> Self {
        let runtime = self.runtime();
        if let Some(deadline) = deadline {
            runtime.arm(thread, deadline);
        }
        thread.home.set(Some(self.vp()), Ordering::Relaxed);
        let inside = self.park_owner(
            |inside, thread, _| {
                inside
                    .runtime()
                    .tell(inside.vp(), thread, Transition::Blocked);
                inside.finish_park(thread);
                None
            },
            0,
        );
        runtime.disarm(thread);
        inside
    }

    /// Ends the current thread. `after` is called when nothing runs on its stack any more and
    /// must free the thread.
    #[inline(always)]
    pub fn exit_thread(self, after: After<K>, argument: usize) -> ! {
        let runtime = self.runtime();
        // All on the activation's stack: the thread's may be small.
        let _ = self.park(
            move |inside, thread, argument| {
                inside
                    .runtime()
                    .tell(inside.vp(), thread, Transition::Ended);
                after(inside, thread, argument)
            },
            argument,
        );
        runtime.kernel.broken("an ended thread was resumed")
    }

    /// As [`Runtime::yield_now`], inside the runtime.
    #[inline]
    pub fn give_way(self) -> Self {
        if self.may_find_others() {
            self.park_ready()
        } else {
            // A scheduling point all the same.
            self.vp().count_dispatch();
            self.runtime().kernel.yield_processor();
            self
        }
    }

    /// Returns true if threads are ready here, or may become so when somebody looks.
    #[inline]
    fn may_find_others(&self) -> bool {
        let runtime = self.runtime();
        let vp = self.vp();
        if runtime.is_left() {
            return false;
        }
        vp.has_ready()
            || vp.nr_displaced.load(Ordering::Relaxed) != 0
            || runtime.stats.absent.get() != 0
            || runtime.poller_is_due(vp)
    }
}

impl<K: Kernel> Inside<K> {
    /// Ends the parking of a saved thread: it is parked, or ready if it was claimed meanwhile.
    pub fn finish_park(&self, thread: &'static Thread<K>) {
        // Pairs with `Thread::claim`. SeqCst: a claimer that has an event for the thread notes it before it
        // tries to claim the thread; here the thread can be claimed before the note is looked for.
        match thread.state.compare_exchange(
            Phase::Parking,
            Phase::Parked,
            Ordering::SeqCst,
            Ordering::Acquire,
        ) {
            Ok(_) => {
                if self.runtime().kernel.is_interrupted(thread)
                    && thread.claim(WakeReason::Interrupted) == Claim::Ready
                {
                    self.make_ready(thread);
                }
            }
            Err(state) => {
                thread.reason.store(state.reason(), Ordering::Relaxed);
                if thread.is_in_section() {
                    let vp = self.vp();
                    return self.runtime().make_ready_first(vp, thread, false);
                }
                self.make_ready(thread);
            }
        }
    }
}

/// On the activation's own stack, the thread being saved.
extern "C" fn parked<K: Kernel, F: Step<K>, const OWNS: bool>(
    activation: usize,
    after: usize,
    argument: usize,
) -> ! {
    // SAFETY: `park` passes its activation, which lives for ever, and a step in the frame of the thread, which
    // nobody else resumes before that step.
    let (activation, after) = unsafe {
        (
            &*(activation as *const Activation<K>),
            (after as *const F).read(),
        )
    };
    let inside = Entered::on(activation);
    if let Some(thread) = inside.thread() {
        // SAFETY: it was just saved, and nobody finds it before the step.
        let control = unsafe { arch::saved_control(thread.context.load(Ordering::Relaxed)) };
        inside.control.store(control, Ordering::Relaxed);
        activation.thread.set(None, Ordering::Relaxed);
        inside.runtime().kernel.uninstall(activation, thread);
        thread.carrier.set(None, Ordering::Relaxed);
        let next = match after(&inside, thread, argument) {
            None if OWNS => inside.choose_plainly(),
            next => next,
        };
        if let Some(next) = next {
            inside.run(inside.vp(), next);
        }
    }
    inside.carry_on()
}
