//! The passage of a thread through the runtime: entering and leaving, system calls, parking, waking,
//! and being chosen to run.
//!
//! A thread enters the runtime on its own stack ([`Runtime::enter`]), does what it came for, and
//! leaves ([`Runtime::leave`]). When it parks, its registers are saved and the activation goes on
//! alone on its own stack, from the top: there the bookkeeping that must follow the saving is
//! done (`after`), and `Runtime::schedule` picks the next thread. So a thread that others can
//! find is always a saved thread, and the activation's stack never holds state across a switch.
//! Approach rejected: switching from thread to thread directly, which is some nanoseconds
//! cheaper and leaves the bookkeeping of one thread to the next one.

use core::sync::atomic::Ordering;

use crate::activation::Activation;
use crate::arch;
use crate::kernel::Kernel;
use crate::runtime::{Runtime, Transition};
use crate::thread::{CLAIMED, Claim, PARKED, PARKING, RUNNING, Thread, WakeReason};
use crate::vp::{State, Vp};

/// A busy virtual processor looks at the poller this often, in nanoseconds, if nobody sits in it.
const POLL_EVERY_NS: u64 = 4_000;

/// So many activations, beside four a virtual processor, may be away for waits that could park.
const FEW_AWAY: u64 = 12;

/// What is done on the activation's own stack after a thread's registers are saved. May name the
/// thread to run next, which the caller then owns and which is in no list.
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
                self.kernel.deferred(self, activation, activation.thread());
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
                self.idle.insert(vp.index());
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
            self.idle.remove(vp.index());
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
                    runtime.push_back(vp, thread);
                    return None;
                }
                let next = vp.ready.exchange(&runtime.kernel, thread);
                runtime.is_chosen(activation, next).then_some(next)
            },
            0,
        )
    }

    /// Whether the first of the ready list is to run; if not, it is back in front. Who asked the owner to
    /// choose again while it did so may mean this thread, which must not be preempted for having asked.
    #[inline]
    pub(super) fn is_chosen(
        &'static self,
        activation: &'static Activation<K>,
        thread: &'static Thread<K>,
    ) -> bool {
        let vp = activation.vp();
        // The claim first: who puts it back does not ask this virtual processor for what it ran before.
        let chosen =
            (!self.is_ranked() || self.claims(vp, thread.rank())) && !activation.is_to_choose();
        if !chosen {
            self.put_back(vp, thread);
        }
        chosen
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
                } else {
                    runtime.push_back(vp, thread);
                }
                None
            },
            0,
        )
    }

    /// Whether nothing but the ready list has a say in what runs next.
    #[inline]
    fn is_plain_turn(&self, activation: &'static Activation<K>, vp: &'static Vp<K>) -> bool {
        activation.attention.load(Ordering::Relaxed) == 0
            && vp.nr_displaced.load(Ordering::Relaxed) == 0
            && self.stats.absent.get() == 0
            && !self.is_ranked()
            && !self.poller_is_due(vp)
    }

    /// Declares the current thread findable by [`Thread::claim`]; [`Runtime::park_until_claimed`] must follow.
    pub fn begin_park(&self, thread: &'static Thread<K>) {
        thread.state.store(PARKING, Ordering::Release);
    }

    /// Parks the current thread, which is findable, until it is claimed, at the latest at `deadline` (nanoseconds of
    /// [`Kernel::now`]). Returns the activation that carries it then.
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
    pub fn exit_thread(
        &'static self,
        activation: &'static Activation<K>,
        after: After<K>,
        argument: usize,
    ) -> ! {
        self.tell_of_current(activation, Transition::Ended);
        self.park(activation, after, argument);
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

    /// Makes a thread ready that the caller has claimed or created. Called inside the runtime.
    pub fn make_ready(
        &'static self,
        activation: &'static Activation<K>,
        thread: &'static Thread<K>,
    ) {
        self.make_ready_on(activation.vp(), thread);
    }

    /// As [`Runtime::make_ready`], for a new thread that should run before those that wait: its creator divides
    /// its work by threads, and the next thing is to wait for them.
    #[inline]
    pub fn make_ready_forked(
        &'static self,
        activation: &'static Activation<K>,
        thread: &'static Thread<K>,
    ) {
        self.make_ready_new(activation.vp(), thread, true);
    }

    #[inline]
    pub(crate) fn make_ready_new(
        &'static self,
        vp: &'static Vp<K>,
        thread: &'static Thread<K>,
        forked: bool,
    ) {
        self.tell(vp, thread, Transition::Created);
        if self.goes_first(forked) {
            vp.ready.push_forked(&self.kernel, thread);
            self.has_ready.insert(vp.index());
        } else {
            self.push_back(vp, thread);
        }
        self.announce(vp, thread);
    }

    #[inline]
    pub(crate) fn make_ready_on(&'static self, vp: &'static Vp<K>, thread: &'static Thread<K>) {
        self.tell(vp, thread, Transition::Unblocked);
        self.push_back(vp, thread);
        self.announce(vp, thread);
    }

    /// A thread waits in the ready list of `vp`: an idle virtual processor is put to work, or, if
    /// there is none, no busy one may block unnoticed from here on, be it on a page fault. Whoever
    /// comes out of idleness, or becomes the owner, looks for threads that were announced meanwhile:
    /// who was rung may find something else to run. Says whether one was put to work.
    #[inline]
    pub(crate) fn announce_ready(&'static self, vp: &'static Vp<K>) -> bool {
        let rung = !self.idle.is_empty() && self.ring(vp.index());
        // SeqCst: the thread was made visible before; a standby declares itself asleep before the
        // virtual processor leaves the idleness that let it, and the owner looks afterwards.
        if !rung && !self.unwatched.is_empty() {
            self.watch_busy();
        }
        rung
    }

    /// The next thread for a virtual processor: its own, or one that waits elsewhere.
    #[inline(always)]
    pub(super) fn next_thread(&'static self, vp: &'static Vp<K>) -> Option<&'static Thread<K>> {
        if self.is_ranked() {
            return self.most_urgent(vp);
        }
        match vp.ready.pop(&self.kernel) {
            None => self.steal_thread(vp),
            own => own,
        }
    }

    fn steal_thread(&'static self, vp: &'static Vp<K>) -> Option<&'static Thread<K>> {
        let vps = self.vps();
        self.has_ready.find(vp.index(), vps.len(), |index| {
            let other = &vps[index as usize];
            let thread = other.ready.steal(&self.kernel);
            if thread.is_some() {
                self.stats.stolen.add();
            } else {
                self.forget_empty(other);
            }
            thread
        })
    }

    /// A ready list was found empty: takes it out of `has_ready`, if it still is.
    pub(super) fn forget_empty(&self, vp: &'static Vp<K>) {
        vp.ready.if_empty(&self.kernel, || {
            self.has_ready.remove(vp.index());
        });
    }

    /// Puts a thread at the end of the ready list of `vp`. Whose list is not empty is in `has_ready`,
    /// or somebody is here; whoever looks there in vain takes it out, with the list locked: so who puts
    /// a thread in afterwards finds it missing.
    #[inline]
    pub(super) fn push_back(&self, vp: &'static Vp<K>, thread: &'static Thread<K>) {
        vp.ready.push_back(&self.kernel, thread);
        self.has_ready.insert(vp.index());
    }

    /// The same at the front.
    pub(super) fn push_front(&self, vp: &'static Vp<K>, thread: &'static Thread<K>) {
        vp.ready.push_front(&self.kernel, thread);
        self.has_ready.insert(vp.index());
    }

    /// The life of an activation on its own stack, from the top after every thread that it ran.
    #[inline(always)]
    fn carry_on(&'static self, activation: &'static Activation<K>) -> ! {
        loop {
            let word = activation.vp().word();
            let arrives = !word.is_owned_by(activation) || word.state() != State::Runtime;
            if arrives {
                self.wait(activation);
            }
            self.schedule(activation, arrives);
        }
    }

    /// Runs what should run next on the virtual processor that the activation owns. Returns when it
    /// does not own it any more. `arrived`: it did not own it, busy, before.
    #[inline(always)]
    fn schedule(&'static self, activation: &'static Activation<K>, mut arrived: bool) {
        loop {
            let vp = activation.vp();
            debug_assert!(vp.word().is_owned_by(activation));
            if activation.take_attention() & Activation::<K>::DEFERRED != 0 {
                self.kernel.deferred(self, activation, None);
            }
            if self.poller_is_due(vp) {
                self.look_at_poller(activation, vp);
            }
            while !self.kernel.may_run(vp) {
                if !self.pause(activation, vp) {
                    return;
                }
            }
            if self.stats.absent.get() != 0 && !self.let_return(activation) {
                return;
            }
            if self.grant_displaced(vp) {
                return;
            }
            if let Some(thread) = self.next_thread(vp) {
                if !self.is_chosen(activation, thread) {
                    continue;
                }
                if arrived {
                    self.look_around(vp);
                }
                self.run(activation, vp, thread);
            }
            if self.tell_idle(vp) {
                continue;
            }
            if !self.idle(activation, vp) {
                return;
            }
            arrived = true;
        }
    }

    /// Whether it is time to look at the poller from a busy virtual processor, because nobody
    /// sits in it.
    #[inline]
    fn poller_is_due(&self, vp: &'static Vp<K>) -> bool {
        self.seat_is_wanted()
            && self
                .kernel
                .now()
                .wrapping_sub(vp.polled_ns.load(Ordering::Relaxed))
                >= POLL_EVERY_NS
    }

    #[inline(always)]
    pub(super) fn run(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
        thread: &'static Thread<K>,
    ) -> ! {
        if vp.has_ready() {
            self.call_standby(vp);
            if !self.idle.is_empty() {
                self.ring(vp.index());
            }
        }
        if vp.only_computes.load(Ordering::Relaxed) {
            self.fill_seat(vp);
        }
        thread.state.store(RUNNING, Ordering::Relaxed);
        thread.carrier.set(Some(activation), Ordering::Release);
        activation.thread.set(Some(thread), Ordering::Relaxed);
        if self.is_ranked() {
            self.publish_rank(activation);
        }
        vp.count_dispatch();
        self.kernel.install(activation, thread);
        // SAFETY: the thread came from a ready list: its registers are saved and nobody else
        // resumes it.
        unsafe {
            arch::resume(
                thread.context.load(Ordering::Relaxed),
                activation.control.load(Ordering::Relaxed),
            )
        }
    }

    #[cold]
    fn fill_seat(&'static self, vp: &'static Vp<K>) {
        if self.seat_is_wanted() {
            self.call_spare(vp);
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
