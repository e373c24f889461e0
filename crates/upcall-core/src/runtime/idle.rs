//! An activation without a thread: standby, idle owner, poller or spare.
//!
//! ```text
//!            schedule ──nothing to run──▶ idle owner ──▶ (poller)
//!               ▲                             │ replaced
//!               │ granted                     ▼
//!   standby ────┴──────────────────────── spare ──▶ (poller)
//! ```
//!
//! The poller is not a role of its own: an idle owner or a spare sits in [`Kernel::poll`] instead
//! of sleeping when nobody else does. Every sleep follows the same protocol: read the wake word,
//! look whether there is a reason not to sleep, sleep on the value read; whoever creates a reason
//! changes the wake word first.
//!
//! A page fault of the poller's own delays every event until the page is there, as the first page
//! that a thread touches delays the thread: nobody takes its seat meanwhile. It is memory that the
//! runtime has mapped, which the program cannot make wait for ever.

use core::sync::atomic::Ordering;

use crate::activation::{Activation, Role};
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::thread_list::ThreadList;
use crate::vp::{State, Vp, Word};

/// An idle processor waits this long, in nanoseconds, before it sleeps, if that has paid lately.
const SPELL_NS: u64 = 20_000;
/// A sleep shorter than this says that waiting would have paid.
const SHORT_SLEEP_NS: u64 = 60_000;
/// While activations are absent, their processor is offered to them at most this often.
const RETURN_EVERY_NS: u64 = 100_000;

impl<K: Kernel> Runtime<K> {
    /// What an activation does that has neither thread nor processor, until it has one: returns as
    /// the owner of its virtual processor, in state `Runtime`.
    pub(super) fn wait(&'static self, activation: &'static Activation<K>) {
        loop {
            let seen = activation.wake.load(Ordering::SeqCst);
            self.look_at_deferred(activation);
            self.kernel.bind(activation);
            let vp = activation.vp();
            let word = vp.word();
            if word.is_owned_by(activation) {
                match word.state() {
                    State::Rung | State::Runtime => {
                        vp.set(activation, State::Runtime);
                        activation.set_role(Role::Carrier);
                        self.inherit(vp);
                        return;
                    }
                    State::Idle => {
                        self.rest_as_owner(activation, vp, || self.rest(activation, seen));
                    }
                    State::User | State::Kernel | State::Granted => self
                        .kernel
                        .broken("an owner without a thread outside of the runtime"),
                }
                continue;
            }
            match activation.role() {
                Role::Standby => self.stand_by(activation, vp),
                Role::Spare => {
                    if self.is_surplus(self.spares.lock(&self.kernel).len) {
                        if activation.stays() {
                            // Another one, in its place.
                            self.end_surplus();
                        } else if !self.seat_is_wanted() && self.leave_spares(activation) {
                            self.end_activation(activation);
                        }
                    }
                    self.rest(activation, seen);
                }
                Role::Reserved => self.kernel.sleep(activation, seen),
                Role::Carrier | Role::Resting => self.retire_from(activation, Role::Carrier),
            }
        }
    }

    /// Rests while it owns the idle virtual processor; perhaps it does not any more afterwards, and is
    /// a spare.
    fn rest_as_owner(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
        rest: impl FnOnce(),
    ) {
        activation.change_role(Role::Carrier, Role::Resting);
        let word = vp.word();
        if word.is_owned_by(activation) && word.state() == State::Idle {
            rest();
        }
        activation.change_role(Role::Resting, Role::Carrier);
    }

    /// Whether threads wait for descriptors or deadlines and nobody waits for those.
    #[inline]
    pub(super) fn seat_is_wanted(&self) -> bool {
        self.poller.get(Ordering::Relaxed).is_none() && self.kernel.wants_poller()
    }

    /// Events that came while the activation had no thread.
    #[inline]
    pub(super) fn look_at_deferred(&'static self, activation: &'static Activation<K>) {
        if activation.take_attention() & Activation::<K>::DEFERRED != 0 {
            self.kernel.deferred(self, activation, None);
        }
    }

    /// Sleeps, or polls if nobody else does.
    pub(super) fn rest(&'static self, activation: &'static Activation<K>, seen: u32) {
        self.look_at_deferred(activation);
        if !self.sit(activation, seen) {
            self.kernel.sleep(activation, seen);
        }
    }

    /// Polls, if nobody else does; says whether it did.
    fn sit(&'static self, activation: &'static Activation<K>, seen: u32) -> bool {
        if self.poller.get(Ordering::Relaxed).is_some()
            || !self.poller.replace_if(None, Some(activation))
        {
            return false;
        }
        // Perhaps it was woken to end, and is needed here.
        self.end_surplus();
        let list = self.kernel.poll(self, activation, Some(seen));
        self.poller.set(None, Ordering::Release);
        if list.is_empty() {
            // The last deadline may have been nobody's.
            self.kernel.look_for_deadlock(self, activation);
            if self.kernel.sentinel() {
                self.stand_in(activation);
            }
        }
        self.deliver(activation, list);
        true
    }

    /// Does the sentinels' work for once: another process may keep them from running.
    #[cold]
    fn stand_in(&'static self, activation: &'static Activation<K>) {
        for vp in self.vps() {
            let word = vp.word();
            if !matches!(word.state(), State::Kernel | State::User) {
                continue;
            }
            if self.work_waits_for(vp) && self.kernel.is_blocked(word.owner(), false) {
                // Out of the pool first, so that it does not call itself.
                if activation.role() == Role::Spare && !self.leave_spares(activation) {
                    return;
                }
                self.take_over(activation, vp, word);
            }
        }
    }

    /// Threads can run again, and the activation that learned it has none.
    fn deliver(&'static self, activation: &'static Activation<K>, mut list: ThreadList<K>) {
        if list.is_empty() {
            return;
        }
        self.stats.unblocked.add();
        // Out of the pool first: nobody else may give it work meanwhile.
        let spare = activation.role() == Role::Spare && self.leave_spares(activation);
        let free = spare || activation.change_role(Role::Resting, Role::Carrier);
        let vp = activation.vp();
        if free
            && !self.is_ranked()
            && self.kernel.may_run(vp)
            && self.acquire(activation, vp, true)
        {
            // Before anything else, a displaced activation included.
            if let Some(first) = list.pop_front() {
                self.add_ready(vp, list);
                self.look_around(vp);
                self.run(activation, vp, first);
            }
        }
        if spare {
            self.retire_from(activation, Role::Carrier);
        }
        self.add_ready(vp, list);
        self.choose_again(vp);
    }

    /// Makes ready whose events have come, without waiting for any.
    pub(super) fn look_at_poller(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
    ) {
        let list = self.kernel.poll(self, activation, None);
        vp.polled_ns.store(self.kernel.now(), Ordering::Relaxed);
        self.add_ready(vp, list);
    }

    pub(super) fn add_ready(&'static self, vp: &'static Vp<K>, mut list: ThreadList<K>) {
        while let Some(thread) = list.pop_front() {
            self.make_ready_on(vp, thread);
        }
    }

    /// Nothing to run on a virtual processor that the activation owns. Returns whether it still
    /// owns it, in state `Runtime`.
    pub(super) fn idle(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
    ) -> bool {
        if self.seat_is_wanted() {
            let list = self.kernel.poll(self, activation, None);
            if !list.is_empty() {
                self.add_ready(vp, list);
                return true;
            }
        }
        self.vps.set_idle(vp);
        if !vp.step(activation, State::Runtime, State::Idle) {
            self.kernel.broken("an idle owner was replaced");
        }
        let began = self.kernel.now();
        let spell = vp.spell_ns.load(Ordering::Relaxed);
        loop {
            if self.work_waits(vp) {
                break;
            }
            if self.kernel.now().wrapping_sub(began) >= spell {
                if self.idle_sleep(activation, vp) {
                    break;
                }
                return false;
            }
            self.kernel.yield_processor();
            let word = vp.word();
            if !word.is_owned_by(activation) {
                return false;
            }
            if word.state() == State::Rung {
                break;
            }
        }
        let slept = self.kernel.now().wrapping_sub(began);
        vp.spell_ns.store(
            if slept < SHORT_SLEEP_NS { SPELL_NS } else { 0 },
            Ordering::Relaxed,
        );
        self.reclaim(activation, vp)
    }

    /// The idle owner goes back to work, if it still is the owner.
    fn reclaim(&'static self, activation: &'static Activation<K>, vp: &'static Vp<K>) -> bool {
        if vp.step(activation, State::Idle, State::Runtime) {
            self.vps.clear_idle(vp);
            self.kernel.bind(activation);
            return true;
        }
        let word = vp.word();
        if word.is_owned_by(activation) && word.state() == State::Rung {
            vp.set(activation, State::Runtime);
            activation.set_role(Role::Carrier);
            if vp.bequeathed.get(Ordering::Relaxed).is_some() {
                // It lost the virtual processor in its sleep, and is its heir now.
                self.inherit(vp);
            }
            self.kernel.bind(activation);
            return true;
        }
        false
    }

    /// Sleeps as idle owner until there is a reason to look; says whether it may still be the owner.
    fn idle_sleep(&'static self, activation: &'static Activation<K>, vp: &'static Vp<K>) -> bool {
        loop {
            let seen = activation.wake.load(Ordering::SeqCst);
            let word = vp.word();
            if !word.is_owned_by(activation) {
                return false;
            }
            if word.state() != State::Idle || self.work_waits(vp) {
                return true;
            }
            self.kernel.resting(self, activation);
            self.kernel.look_for_deadlock(self, activation);
            self.rest_as_owner(activation, vp, || self.rest(activation, seen));
        }
    }

    /// Whether there is something to run there as soon as the owner blocks.
    pub(super) fn work_waits_for(&self, vp: &'static Vp<K>) -> bool {
        vp.has_ready() || vp.nr_displaced.load(Ordering::Relaxed) != 0
    }

    /// The processor is another address space's now: sleeps, as idle owner whom nobody rings, until
    /// it is ours again. What comes back from the kernel may take the virtual processor meanwhile.
    /// Returns whether the activation still owns it, in state `Runtime`.
    #[cold]
    pub(super) fn pause(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
    ) -> bool {
        self.stats.taken.add();
        // Not only its own: it may have been rung for another's.
        if self.work_waits(vp) {
            self.announce_ready(vp);
        }
        if !vp.step(activation, State::Runtime, State::Idle) {
            self.kernel.broken("an owner that pauses was replaced");
        }
        loop {
            let seen = activation.wake.load(Ordering::SeqCst);
            let word = vp.word();
            if !word.is_owned_by(activation) || word.state() != State::Idle {
                break;
            }
            if self.kernel.may_run(vp) {
                break;
            }
            self.look_at_deferred(activation);
            // A spare's place; where there is none, its own, or nobody would see that an event makes a
            // thread ready for which a processor is wanted.
            let seatless = self.seat_is_wanted() && !self.call_spare(vp);
            self.rest_as_owner(activation, vp, || {
                if !seatless || !self.sit(activation, seen) {
                    self.kernel.await_turn(self, activation, seen);
                }
            });
        }
        self.reclaim_and_look(activation, vp)
    }

    pub(super) fn work_waits(&self, vp: &'static Vp<K>) -> bool {
        let has_ready = |other: &'static Vp<K>| other.has_ready().then_some(());
        vp.has_ready() || self.vps.find_ready(vp, has_ready).is_some()
    }

    /// While activations are absent: lets those that came back have the processor for a moment.
    /// Returns whether the activation still owns its virtual processor.
    pub(super) fn let_return(&'static self, activation: &'static Activation<K>) -> bool {
        let vp = activation.vp();
        let now = self.kernel.now();
        let last = vp.offered_ns.load(Ordering::Relaxed);
        if now.wrapping_sub(last) < RETURN_EVERY_NS {
            return true;
        }
        self.settle(vp);
        vp.set(activation, State::Idle);
        self.kernel.yield_processor();
        vp.offered_ns.store(self.kernel.now(), Ordering::Relaxed);
        self.reclaim_and_look(activation, vp)
    }

    /// As [`Runtime::reclaim`], for an owner that was idle in name only: nobody rang it.
    fn reclaim_and_look(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
    ) -> bool {
        let owns = self.reclaim(activation, vp);
        if owns && self.vps.any_unwatched() {
            self.look_around(vp);
        }
        owns
    }

    /// Threads may have been announced to a virtual processor that is busy with another one now, and
    /// who sat in the poller may have become its owner: a page fault is announced to nobody. Not where a
    /// sentinel stands by: each would take an heir from the pool.
    #[cold]
    pub(super) fn look_around(&'static self, vp: &'static Vp<K>) {
        if self.work_waits(vp) {
            self.announce_ready(vp);
        }
        if self.seat_is_wanted() && !self.kernel.sentinel() {
            self.call_standby(vp);
        }
    }

    /// Calls the standby of every virtual processor that is busy and has none, or one that sleeps.
    #[cold]
    pub(super) fn watch_busy(&'static self) {
        self.vps.each_unwatched(|vp| {
            let word = vp.word();
            let looks_by_itself = match word.state() {
                State::Idle | State::Rung => true,
                State::User | State::Kernel | State::Runtime | State::Granted => false,
            };
            if !looks_by_itself {
                self.call_standby(vp);
            }
        });
    }

    /// Puts an idle virtual processor to work, the nearest to `near`; says whether there was one. Who sits in
    /// the poller last: it hears the call late where the seat's own page fault delays it.
    pub(super) fn ring(&'static self, near: u32) -> bool {
        let seated = self.poller.get(Ordering::Relaxed);
        let seat = seated.map(|poller| poller.vp().index());
        while let Some(vp) = self.vps.take_idle(near, seat) {
            let word = vp.word();
            match word.state() {
                State::Idle if self.grant_idle(vp, word) => return true,
                // Its standby will see whether the owner is blocked; it may well not be.
                State::Kernel => self.call_standby(vp),
                _ => {}
            }
        }
        false
    }

    /// Tells the idle owner in `word` to look for threads, if it still is that.
    pub(super) fn grant_idle(&'static self, vp: &'static Vp<K>, word: Word<K>) -> bool {
        if !vp.replace(word, word.owner(), State::Rung) {
            return false;
        }
        self.vps.clear_idle(vp);
        self.stats.rung.add();
        self.notify(word.owner());
        true
    }

    /// Wakes an activation after a reason was created for it.
    pub(super) fn notify(&'static self, activation: &'static Activation<K>) {
        activation.wake.fetch_add(1, Ordering::SeqCst);
        self.kernel.wake(activation);
    }
}
