//! What runs next: threads become ready, are chosen, and run.
//!
//! Everything here is done on behalf of a virtual processor by the activation that owns it, but for making a thread ready,
//! which others may do. How a thread comes to park, and what is done then, is in `passage.rs`; what ranks
//! have to say, in `urgency.rs`.

use core::sync::atomic::Ordering;

use crate::arch;
use crate::event::What;
use crate::kernel::Kernel;
use crate::runtime::{Runtime, Transition};
use crate::state::inside::Inside;
use crate::state::ready::By;
use crate::state::thread::{Phase, Thread};
use crate::state::vp::{State, Vp};

impl<K: Kernel> Inside<K> {
    /// Makes a thread ready that the caller has claimed or created.
    pub fn make_ready(&self, thread: &'static Thread<K>) {
        self.runtime()
            .make_ready_on(self.vp(), self.user_of_list(), thread);
    }

    /// As [`Inside::make_ready`], for a new thread that should run before those that wait: its creator divides
    /// its work by threads, and the next thing is to wait for them.
    #[inline]
    pub fn make_ready_forked(&self, thread: &'static Thread<K>) {
        self.runtime().make_ready_new(self, thread, true);
    }

    /// As whom it uses the ready list of its virtual processor: as an owner, if it is the owner.
    #[inline]
    pub(super) fn user_of_list(&self) -> By {
        match self.vp().word().is(self.activation(), State::Runtime) {
            true => By::Owner,
            false => By::Others,
        }
    }

    /// The life of an activation on its own stack, from the top after every thread that it ran.
    #[inline(always)]
    pub(super) fn carry_on(&self) -> ! {
        loop {
            let word = self.vp().word();
            let arrives = !word.is(self.activation(), State::Runtime);
            if arrives {
                self.wait();
            }
            self.schedule(arrives);
        }
    }

    /// The next thread, where nothing but the own ready list has a say: what `schedule` does mostly, in less steps. The
    /// activation owns its virtual processor, and did before. `None`: `schedule` decides.
    #[inline(always)]
    pub fn choose_plainly(&self) -> Option<&'static Thread<K>> {
        let runtime = self.runtime();
        let vp = self.vp();
        debug_assert!(vp.word().is_owned_by(self.activation()));
        if !self.is_plain_turn(vp) || !runtime.kernel.may_run(vp) {
            return None;
        }
        let thread = vp.ready.pop(&runtime.kernel, By::Owner)?;
        if self.is_to_choose() {
            // As in `is_chosen`.
            runtime.put_back(vp, thread);
            return None;
        }
        Some(thread)
    }

    /// Runs what should run next on the virtual processor that the activation owns. Returns when it
    /// does not own it any more. `arrived`: it did not own it, busy, before.
    #[inline(always)]
    fn schedule(&self, mut arrived: bool) {
        let runtime = self.runtime();
        loop {
            let vp = self.vp();
            debug_assert!(vp.word().is_owned_by(self.activation()));
            self.look_at_deferred();
            if runtime.poller_is_due(vp) {
                self.look_at_poller(vp);
            }
            if !runtime.kernel.may_run(vp) && !self.pause(vp) {
                return;
            }
            if runtime.stats.absent.get() != 0 && !self.let_return() {
                return;
            }
            if runtime.grant_displaced(vp) {
                return;
            }
            if let Some(thread) = runtime.next_thread(vp) {
                if !self.is_chosen(thread) {
                    continue;
                }
                if arrived {
                    runtime.look_around(vp);
                }
                self.run(vp, thread);
            }
            if runtime.tell_idle(vp) {
                continue;
            }
            if !self.idle(vp) {
                return;
            }
            arrived = true;
        }
    }

    /// Returns true if the first of the ready list is to run. If not, it is back in front. A request to choose again
    /// that comes while the owner chooses may be for this thread, which its own request must not preempt.
    #[inline]
    pub(super) fn is_chosen(&self, thread: &'static Thread<K>) -> bool {
        let runtime = self.runtime();
        let vp = self.vp();
        // The claim first: then `put_back` does not ask this virtual processor because of what it ran before.
        let chosen =
            (!runtime.is_ranked() || runtime.claims(vp, thread.rank())) && !self.is_to_choose();
        if !chosen {
            runtime.put_back(vp, thread);
        }
        chosen
    }

    /// Returns true if nothing but the ready list has a say in what runs next, and nobody is told.
    #[inline]
    pub(super) fn is_plain_turn(&self, vp: &'static Vp<K>) -> bool {
        let runtime = self.runtime();
        self.attention.load(Ordering::Relaxed) == 0
            && vp.nr_displaced.load(Ordering::Relaxed) == 0
            && runtime.stats.absent.get() == 0
            && !runtime.listeners.any()
            && !runtime.poller_is_due(vp)
    }

    /// The thread for which a ticket has waited.
    // Beside the way of threads that have begun.
    #[inline(never)]
    fn begin(&self, vp: &'static Vp<K>, ticket: &'static Thread<K>) -> &'static Thread<K> {
        let runtime = self.runtime();
        let thread = runtime.kernel.begins(self, ticket);
        runtime.tell(vp, thread, Transition::Created);
        thread
    }

    /// The calling thread has ended for all others, and goes on as another one: as the one of a ticket, which
    /// [`Inside::choose_plainly`] gave.
    #[inline(always)]
    pub fn goes_on(&self, thread: &'static Thread<K>) {
        let vp = self.vp();
        self.looks_around(vp);
        self.counts(vp);
        self.runtime().kernel.install(self.activation(), thread);
    }

    /// A thread is about to run: who is to notice that it blocks, and who might run others.
    #[inline(always)]
    fn looks_around(&self, vp: &'static Vp<K>) {
        let runtime = self.runtime();
        if vp.has_ready() {
            runtime.call_standby(vp);
            if runtime.vps.any_idle() {
                runtime.ring(vp.index());
            }
        }
        if vp.only_computes.load(Ordering::Relaxed) {
            runtime.fill_seat(vp);
        }
    }

    #[inline(always)]
    fn counts(&self, vp: &'static Vp<K>) {
        vp.count_dispatch();
        if vp.woken_wait.load(Ordering::Relaxed) {
            vp.begin_turn(self.runtime().kernel.now());
        }
    }

    #[inline(always)]
    pub(super) fn run(&self, vp: &'static Vp<K>, thread: &'static Thread<K>) -> ! {
        let runtime = self.runtime();
        self.looks_around(vp);
        let thread = match thread.is_ticket() {
            true => self.begin(vp, thread),
            false => thread,
        };
        thread.state.store(Phase::Running, Ordering::Relaxed);
        thread
            .carrier
            .set(Some(self.activation()), Ordering::Release);
        self.thread.set(Some(thread), Ordering::Relaxed);
        if runtime.listeners.any() {
            self.tell_of_run(vp, thread);
        }
        self.counts(vp);
        runtime.kernel.install(self.activation(), thread);
        // SAFETY: the thread came from a ready list: its registers are saved and nobody else
        // resumes it.
        unsafe {
            arch::resume(
                thread.context.load(Ordering::Relaxed),
                self.control.load(Ordering::Relaxed),
            )
        }
    }
}

impl<K: Kernel> Runtime<K> {
    /// Returns true if anybody is told what happens to threads.
    #[inline]
    pub fn has_listeners(&self) -> bool {
        self.listeners.any()
    }

    #[inline]
    pub(crate) fn make_ready_new(
        &'static self,
        inside: &Inside<K>,
        thread: &'static Thread<K>,
        forked: bool,
    ) {
        let (vp, by) = (inside.vp(), inside.user_of_list());
        self.tell(vp, thread, Transition::Created);
        if self.goes_first(forked) {
            vp.ready.push_forked(&self.kernel, by, thread);
            self.vps.set_ready(vp);
        } else {
            self.push_back(vp, by, thread);
        }
        self.announce(vp, thread);
    }

    #[inline]
    pub(crate) fn make_ready_on(
        &'static self,
        vp: &'static Vp<K>,
        by: By,
        thread: &'static Thread<K>,
    ) {
        if vp.woken_wait.load(Ordering::Relaxed) && self.all_take_turns() {
            self.make_ready_in_turn(vp, by, thread);
        } else {
            self.make_ready_at(vp, by, thread, false);
        }
    }

    /// As [`Runtime::make_ready_on`], where woken threads wait for each other: a thread that is woken by the one that runs,
    /// and not by the poller, has its part of that one's turn. It is in the middle of its work, and perhaps holds what others
    /// wait for.
    #[cold]
    fn make_ready_in_turn(&'static self, vp: &'static Vp<K>, by: By, thread: &'static Thread<K>) {
        self.tell(vp, thread, Transition::Unblocked);
        if vp.has_begun_turn(self.kernel.now()) {
            vp.share_turn();
            self.push_front(vp, by, thread);
        } else {
            self.push_back(vp, by, thread);
        }
        self.announce(vp, thread);
    }

    /// As [`Runtime::make_ready_on`]. `afar`: the caller is perhaps on another processor than `vp`, see
    /// [`Runtime::choose_again`].
    #[inline(always)]
    pub(super) fn make_ready_at(
        &'static self,
        vp: &'static Vp<K>,
        by: By,
        thread: &'static Thread<K>,
        afar: bool,
    ) {
        self.tell(vp, thread, Transition::Unblocked);
        self.push_back(vp, by, thread);
        if !self.announce(vp, thread) && vp.only_computes() {
            self.give_way_to_woken(vp, afar);
        }
    }

    /// A thread was woken where threads only compute, and no virtual processor is idle: if one of these has
    /// woken it, that gives way at once, as to a wake-up in the kernel. It goes on before those whose slice has ended. Threads
    /// with ranks have been told already.
    #[cold]
    fn give_way_to_woken(&'static self, vp: &'static Vp<K>, afar: bool) {
        // Among threads that were woken it waits for its turn.
        let waits_for_others = vp.woken_wait.load(Ordering::Relaxed);
        if !self.is_ranked() && !waits_for_others && vp.word().owner().thread().is_some() {
            self.ask_owner(vp, afar);
        }
    }

    /// A thread waits in the ready list of `vp`: an idle virtual processor is put to work, or, if
    /// there is none, no busy one may block unnoticed from here on, be it on a page fault. An activation that
    /// comes out of idleness, or becomes the owner, looks for threads that were announced meanwhile:
    /// an owner that was rung may find something else to run. Returns true if one was put to work.
    #[inline]
    pub(crate) fn announce_ready(&'static self, vp: &'static Vp<K>) -> bool {
        let rung = self.vps.any_idle() && self.ring(vp.index());
        // SeqCst: the thread was made visible before; a standby declares itself asleep before the
        // virtual processor leaves the idleness that let it, and the owner looks afterwards.
        if !rung && self.vps.any_unwatched() {
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
        match vp.ready.pop(&self.kernel, By::Owner) {
            None => self.steal_thread(vp),
            own => own,
        }
    }

    fn steal_thread(&'static self, vp: &'static Vp<K>) -> Option<&'static Thread<K>> {
        self.vps.find_ready(vp, |other| {
            let thread = self.steal_from(other);
            if thread.is_none() {
                self.forget_empty(other);
            }
            thread
        })
    }

    /// Takes a ready thread of another virtual processor.
    pub(super) fn steal_from(&'static self, other: &'static Vp<K>) -> Option<&'static Thread<K>> {
        let thread = other.ready.steal(&self.kernel)?;
        self.stats.stolen.add();
        self.trace(What::Stolen, other, Some(thread));
        Some(thread)
    }

    /// A ready list was found empty: takes it out of `has_ready`, if it still is.
    pub(super) fn forget_empty(&self, vp: &'static Vp<K>) {
        vp.ready.if_empty(&self.kernel, || {
            self.vps.clear_ready(vp);
        });
    }

    /// Puts a thread at the end of the ready list of `vp`. A virtual processor whose list is not empty is in
    /// `has_ready`, or somebody is here. An activation that looks in its list in vain takes it out of the set,
    /// with the list locked: so a caller that puts a thread in afterwards finds it missing.
    #[inline(always)]
    pub(super) fn push_back(&self, vp: &'static Vp<K>, by: By, thread: &'static Thread<K>) {
        vp.ready.push_back(&self.kernel, by, thread);
        self.vps.set_ready(vp);
    }

    /// The same behind all, those included whose time slice has ended.
    #[inline]
    pub(super) fn push_last(&self, vp: &'static Vp<K>, by: By, thread: &'static Thread<K>) {
        vp.ready.push_last(&self.kernel, by, thread);
        self.vps.set_ready(vp);
    }

    /// The same at the front.
    pub(super) fn push_front(&self, vp: &'static Vp<K>, by: By, thread: &'static Thread<K>) {
        vp.ready.push_front(&self.kernel, by, thread);
        self.vps.set_ready(vp);
    }

    /// The same for a thread that comes back from the kernel.
    pub(super) fn push_returned(&self, vp: &'static Vp<K>, thread: &'static Thread<K>) {
        vp.ready.push_returned(&self.kernel, thread);
        self.vps.set_ready(vp);
    }

    /// The owner of `vp`, which calls this now and then, may use its list without the lock from here on, if nobody else has
    /// used it for some time.
    pub(super) fn free_list(&self, vp: &'static Vp<K>, now: u64) {
        if vp.ready.is_to_be_freed(now) {
            vp.ready.free(&self.kernel, || self.vps.set_free(vp));
        }
    }

    /// The caller has said that it is about to sleep, or that nobody watches its virtual processor, and looks for ready threads
    /// afterwards. Owners that use their lists without the lock put a thread in and look who sleeps without a barrier in
    /// between: they pass one here. They take the lock for a while then, as who sleeps once does it again.
    pub(super) fn see_lists(&self) {
        if !self.vps.any_free() {
            return;
        }
        if self.vps().len() == 1 {
            // No other processor is interrupted, so that it may be done again and again.
            self.kernel.pass_barriers();
            return;
        }
        let mut unseen = false;
        self.vps.each_free(|vp| {
            unseen |= vp.ready.begin_end(&self.kernel, || self.vps.clear_free(vp));
        });
        if unseen && !self.kernel.pass_barriers() {
            // It is just being forbidden: see `forbid_barriers`.
            self.vps()
                .iter()
                .for_each(|vp| vp.ready.forbid_free(&self.kernel));
        }
    }

    /// From here on nothing needs [`Machine::pass_barriers`](crate::Machine::pass_barriers), which is about to be forbidden.
    pub fn forbid_barriers(&self) {
        for vp in self.vps() {
            vp.forbid_bias();
            vp.ready.forbid_free(&self.kernel);
            let word = vp.word();
            if word.is_biased() {
                // It has no bias any more when it has been inside.
                self.kernel.interrupt(word.owner());
            }
        }
    }
}
