//! The passage of a thread through the runtime: entering and leaving, system calls, parking and ending.
//!
//! A thread enters the runtime on its own stack ([`Runtime::enter`]), does what it came for, and
//! leaves ([`Runtime::leave`]). When it parks, its registers are saved and the activation goes on
//! alone on its own stack, from the top: there the bookkeeping that must follow the saving is
//! done (`after`), and `Runtime::schedule` picks the next thread. So a thread that others can
//! find is always a saved thread, and the activation's stack never holds state across a switch.
//! Approach rejected: switching from thread to thread directly, which is some nanoseconds
//! cheaper and leaves the bookkeeping of one thread to the next one.

use core::sync::atomic::Ordering;

use crate::arch;
use crate::kernel::Kernel;
use crate::runtime::{Runtime, Transition};
use crate::state::activation::Activation;
use crate::state::thread::{CLAIMED, Claim, PARKED, PARKING, Thread, WakeReason};
use crate::state::vp::State;

/// So many activations, beside four a virtual processor, may be away for waits that could park.
const FEW_AWAY: u64 = 12;

/// What is done on the activation's own stack after a thread's registers are saved. May name the
/// thread to run next, which the caller then owns and which is in no list. It is
/// told the runtime, too, which it would else have to look up once more at every switch.
pub type After<K> = fn(
    &'static Runtime<K>,
    &'static Activation<K>,
    &'static Thread<K>,
    usize,
) -> Option<&'static Thread<K>>;

/// An [`After`], by its own type: it becomes a part of the landing.
pub trait Step<K: Kernel>:
    Copy
    + FnOnce(
        &'static Runtime<K>,
        &'static Activation<K>,
        &'static Thread<K>,
        usize,
    ) -> Option<&'static Thread<K>>
{
}

impl<K: Kernel, F> Step<K> for F where
    F: Copy
        + FnOnce(
            &'static Runtime<K>,
            &'static Activation<K>,
            &'static Thread<K>,
            usize,
        ) -> Option<&'static Thread<K>>
{
}

impl<K: Kernel> Runtime<K> {
    /// Enters the runtime from a thread's own code. Returns the activation that carries the thread,
    /// which owns its virtual processor: the thread may have had to wait for one here, if the
    /// processor was given away while the thread did not look.
    #[inline]
    pub fn enter(&'static self) -> &'static Activation<K> {
        self.kernel.set_inside();
        let activation = self.kernel.current();
        if activation
            .vp()
            .step(activation, State::User, State::Runtime)
        {
            activation
        } else {
            self.regain(activation)
        }
    }

    /// Leaves the runtime: the thread's own code goes on.
    #[inline]
    pub fn leave(&'static self, activation: &'static Activation<K>) {
        activation.vp().set(activation, State::User);
        if self.kernel.clear_inside() {
            self.attend();
        }
    }

    /// Leaves the runtime without looking at events that came meanwhile.
    pub fn leave_quietly(&'static self, activation: &'static Activation<K>) {
        activation.vp().set(activation, State::User);
        self.kernel.clear_inside();
    }

    #[cold]
    pub(super) fn attend(&'static self) {
        loop {
            let mut activation = self.enter();
            let bits = activation.take_attention();
            // First what is for this thread, while it is on this activation.
            if bits & Activation::<K>::DEFERRED != 0 {
                // Leaves by itself, since events for the thread must find it outside.
                self.kernel.deferred(activation, activation.thread());
                if self.is_left() {
                    return;
                }
                activation = self.enter();
            }
            let vp = activation.vp();
            if bits & Activation::<K>::RESCHEDULE != 0 && self.gives_way(vp, activation.thread()) {
                activation = self.park_to_choose(activation);
            }
            activation.vp().set(activation, State::User);
            if !self.kernel.clear_inside() {
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
        self.return_from_kernel();
        if self.kernel.clear_inside() {
            self.attend();
        }
        result
    }

    /// Goes into a system call: somebody must notice if it blocks while there is work, be it that of
    /// the poller.
    #[inline]
    fn announce_kernel(&'static self, activation: &'static Activation<K>) {
        let vp = activation.vp();
        activation.in_call.store(true, Ordering::Relaxed);
        if self.standby_is_awake(vp) {
            vp.set(activation, State::Kernel);
        } else if !self.is_left()
            && (vp.has_ready() || self.seat_is_wanted() || self.kernel.is_contended())
        {
            self.call_standby(vp);
            vp.set(activation, State::Kernel);
        } else {
            vp.set(activation, State::Kernel);
            if self.vps().len() > 1 {
                // No work now: whoever gets some may ring this virtual processor. Not before it is
                // in `Kernel`: a ring would see it at work and go on.
                self.vps.set_idle(vp);
            }
        }
    }

    /// In a handler that interrupted the thread's system call: back to the thread's own code, with
    /// a virtual processor. [`Runtime::resume_blocking`] must follow before the handler returns into the call.
    pub fn interrupt_blocking(&'static self) {
        self.return_from_kernel();
        if self.kernel.clear_inside() {
            self.attend();
        }
    }

    /// Into a system call of the thread, for the first time or back after a handler.
    #[inline]
    pub fn resume_blocking(&'static self) {
        loop {
            let activation = self.enter();
            self.announce_kernel(activation);
            if !self.kernel.clear_inside() {
                return;
            }
            self.interrupt_blocking();
        }
    }

    /// Whether a thread that would wait for a pollable descriptor, or sleep, had better block its
    /// activation: its virtual processor only computes, so that the kernel's own wake-up is the fastest
    /// interruption there is, and few activations are away.
    pub fn prefers_blocking(&self, activation: &'static Activation<K>) -> bool {
        activation.vp().only_computes()
            && !self.is_short()
            && self.stats.absent.get() < 4 * self.vps().len() as u64 + FEW_AWAY
    }

    /// Back from a system call, outside of the runtime's mark: ends in `User`, inside the mark.
    #[inline]
    fn return_from_kernel(&'static self) {
        self.kernel.set_inside();
        let activation = self.kernel.current();
        activation.in_call.store(false, Ordering::Relaxed);
        let vp = activation.vp();
        if vp.step(activation, State::Kernel, State::Runtime) {
            self.vps.clear_idle(vp);
            vp.set(activation, State::User);
        } else {
            let activation = self.regain(activation);
            activation.vp().set(activation, State::User);
        }
    }

    /// Parks the current thread: saves it, then calls `after` with `argument` on the activation's
    /// own stack. Returns when the thread runs again, with the activation that carries it then.
    /// Called inside the runtime. Inlined, so that no return is mispredicted: see `arch`.
    #[inline(always)]
    pub fn park<F: Step<K>>(
        &'static self,
        activation: &'static Activation<K>,
        after: F,
        argument: usize,
    ) -> &'static Activation<K> {
        let Some(thread) = activation.thread() else {
            self.kernel.broken("park without a thread");
        };
        // SAFETY: `context` is the thread's own, the activation's stack is free while its thread
        // runs, and the landing never returns. It takes `after` before anybody can find the thread.
        unsafe {
            arch::switch_out(
                thread.context.as_ptr(),
                activation.stack_top(),
                parked::<K, F>,
                core::ptr::from_ref(activation) as usize,
                &raw const after as usize,
                argument,
            );
        }
        self.kernel.current()
    }

    /// Puts the current thread at the end of the ready list and runs another one.
    pub(super) fn park_ready(
        &'static self,
        activation: &'static Activation<K>,
    ) -> &'static Activation<K> {
        self.park(
            activation,
            |runtime, activation, thread, _| {
                let vp = activation.vp();
                if !runtime.is_plain_turn(activation, vp) {
                    runtime.tell(vp, thread, Transition::Yielded);
                    runtime.push_last(vp, thread);
                    return None;
                }
                let next = vp.ready.exchange(&runtime.kernel, thread);
                runtime.is_chosen(activation, next).then_some(next)
            },
            0,
        )
    }

    /// As [`Runtime::park_ready`], where something has come that may have a say in what runs next, and in
    /// whether anything may.
    pub(super) fn park_to_choose(
        &'static self,
        activation: &'static Activation<K>,
    ) -> &'static Activation<K> {
        self.park(
            activation,
            |runtime, activation, thread, _| {
                let vp = activation.vp();
                runtime.tell(vp, thread, Transition::Preempted);
                if runtime.is_ranked() && runtime.is_more_urgent_ready(vp, thread.rank()) {
                    runtime.put_back(vp, thread);
                } else if runtime.takes_turns() {
                    runtime.push_back(vp, thread);
                } else {
                    runtime.push_front(vp, thread);
                }
                None
            },
            0,
        )
    }

    /// Declares the current thread findable by [`Thread::claim`]; [`Runtime::park_until_claimed`] must follow.
    pub fn begin_park(&self, thread: &'static Thread<K>) {
        thread.state.store(PARKING, Ordering::Release);
    }

    /// Parks the current thread, which is findable, until it is claimed, at the latest at `deadline` (nanoseconds of
    /// [`Machine::now`](crate::Machine::now)). Returns the activation that carries it then.
    #[inline(always)]
    pub fn park_until_claimed(
        &'static self,
        activation: &'static Activation<K>,
        thread: &'static Thread<K>,
        deadline: Option<u64>,
    ) -> &'static Activation<K> {
        if let Some(deadline) = deadline {
            self.arm(thread, deadline);
        }
        let activation = self.park(
            activation,
            |runtime, activation, thread, _| {
                runtime.tell(activation.vp(), thread, Transition::Blocked);
                runtime.finish_park(activation, thread);
                None
            },
            0,
        );
        self.disarm(thread);
        activation
    }

    /// Ends the parking of a saved thread: it is parked, or ready if it was claimed meanwhile.
    pub fn finish_park(
        &'static self,
        activation: &'static Activation<K>,
        thread: &'static Thread<K>,
    ) {
        // Pairs with `Thread::claim`. SeqCst: whoever has an event for the thread notes it before it
        // tries to claim the thread; here the thread can be claimed before the note is looked for.
        match thread
            .state
            .compare_exchange(PARKING, PARKED, Ordering::SeqCst, Ordering::Acquire)
        {
            Ok(_) => {
                if self.kernel.is_interrupted(thread)
                    && thread.claim(WakeReason::Interrupted) == Claim::Ready
                {
                    self.make_ready(activation, thread);
                }
            }
            Err(state) => {
                debug_assert_eq!(state & 0xff, CLAIMED);
                thread.reason.store(state >> 8, Ordering::Relaxed);
                self.make_ready(activation, thread);
            }
        }
    }

    /// Ends the current thread. `after` is called when nothing runs on its stack any more and
    /// must free the thread. Called inside the runtime.
    #[inline(always)]
    pub fn exit_thread(
        &'static self,
        activation: &'static Activation<K>,
        after: After<K>,
        argument: usize,
    ) -> ! {
        // All on the activation's stack: the thread's may be small.
        self.park(
            activation,
            move |runtime: &'static Self, activation: &'static Activation<K>, thread, argument| {
                runtime.tell(activation.vp(), thread, Transition::Ended);
                after(runtime, activation, thread, argument)
            },
            argument,
        );
        self.kernel.broken("an ended thread was resumed")
    }

    /// Gives way to other ready threads. Called from the thread's own code.
    pub fn yield_now(&'static self) {
        let activation = self.enter();
        let activation = self.give_way(activation);
        self.leave(activation);
    }

    /// As [`Runtime::yield_now`], inside the runtime.
    #[inline]
    pub fn give_way(&'static self, activation: &'static Activation<K>) -> &'static Activation<K> {
        let vp = activation.vp();
        if vp.has_ready()
            || vp.nr_displaced.load(Ordering::Relaxed) != 0
            || self.stats.absent.get() != 0
            || self.poller_is_due(vp)
        {
            self.park_ready(activation)
        } else {
            // A scheduling point all the same.
            vp.count_dispatch();
            self.kernel.yield_processor();
            activation
        }
    }

    /// Where the kernel thread of an activation begins.
    pub fn activation_main(&'static self, activation: &'static Activation<K>) -> ! {
        activation.control.store(arch::control(), Ordering::Relaxed);
        self.carry_on(activation)
    }
}

/// On the activation's own stack, the thread being saved.
extern "C" fn parked<K: Kernel, F: Step<K>>(activation: usize, after: usize, argument: usize) -> ! {
    // SAFETY: `park` passes its activation, which lives for ever, and a step in the frame of the thread, which
    // nobody else resumes before that step.
    let (activation, after) = unsafe {
        (
            &*(activation as *const Activation<K>),
            (after as *const F).read(),
        )
    };
    let runtime = activation.runtime();
    if let Some(thread) = activation.thread() {
        // SAFETY: it was just saved, and nobody finds it before the step.
        let control = unsafe { arch::saved_control(thread.context.load(Ordering::Relaxed)) };
        activation.control.store(control, Ordering::Relaxed);
        activation.thread.set(None, Ordering::Relaxed);
        runtime.kernel.uninstall(activation, thread);
        thread.carrier.set(None, Ordering::Relaxed);
        if let Some(next) = after(runtime, activation, thread, argument) {
            runtime.run(activation, activation.vp(), next);
        }
    }
    runtime.carry_on(activation)
}
