//! An activation without a thread: standby, idle owner, poller or spare.
//!
//! ```text
//!            schedule ──nothing to run──▶ idle owner ──▶ (poller)
//!               ▲                             │ replaced
//!               │ granted                     ▼
//!   standby ────┴──────────────────────── spare ──▶ (poller)
//! ```
//!
//! An idle owner or a spare is the poller, instead of sleeping, when nobody else is (`seat.rs`). Every sleep follows the same protocol: read the wake word,
//! look whether there is a reason not to sleep, sleep on the value read. The caller that creates a
//! reason changes the wake word first.

use core::sync::atomic::Ordering;

use crate::event::What;
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::state::activation::{Activation, Activity};
use crate::state::inside::Inside;
use crate::state::vp::{State, Vp, Word};

/// An idle processor waits this long, in nanoseconds, before it sleeps, if that has paid lately.
const SPELL_NS: u64 = 20_000;
/// A sleep shorter than this says that waiting would have paid.
const SHORT_SLEEP_NS: u64 = 60_000;

impl<K: Kernel> Inside<K> {
    /// What an activation does that has neither thread nor processor, until it has one: returns as
    /// the owner of its virtual processor, in state `Runtime`.
    pub(super) fn wait(&self) {
        let runtime = self.runtime();
        loop {
            let seen = self.wake.load(Ordering::SeqCst);
            self.look_at_deferred();
            runtime.kernel.bind(self.activation());
            let vp = self.vp();
            let word = vp.word();
            if word.is_owned_by(self.activation()) {
                match word.state() {
                    State::Rung | State::Runtime => {
                        vp.set(self.activation(), State::Runtime);
                        self.set_activity(Activity::Running);
                        runtime.ends_rest(vp);
                        runtime.inherit(self.activation(), vp);
                        return;
                    }
                    State::Idle => {
                        self.rest_as_owner(vp, || self.rest(seen));
                    }
                    State::User | State::Kernel | State::Granted => self
                        .runtime()
                        .kernel
                        .broken("an owner without a thread outside of the runtime"),
                }
                continue;
            }
            match self.activity() {
                Activity::Standby => self.stand_by(vp),
                Activity::Spare => {
                    if runtime.is_surplus(runtime.spares.len(&runtime.kernel)) {
                        if self.stays() {
                            // Another one, in its place.
                            runtime.end_surplus();
                        } else if !runtime.seat_is_wanted() && self.leave_spares() {
                            self.end_activation();
                        }
                    }
                    self.rest(seen);
                }
                Activity::Reserved => runtime.kernel.sleep(self.activation(), seen),
                Activity::Running | Activity::Resting => {
                    self.change_activity(Activity::Resting, Activity::Running);
                    self.activation().retire_from(Activity::Running);
                    // An owner that called for a standby meanwhile may have found no spare.
                    if vp.has_ready() && runtime.vps.any_unwatched() {
                        runtime.watch_busy();
                    }
                }
                Activity::InCall | Activity::Displaced | Activity::Unsettled => {
                    runtime.kernel.broken("replaced without a thread");
                }
            }
        }
    }

    /// The virtual processor, which it owns, is idle from now on, until [`Inside::reclaim`]. Who takes it meanwhile makes
    /// this activation a spare at once: beside other programs it may be long until it runs again and sees that itself.
    pub(super) fn fall_idle(&self, vp: &'static Vp<K>) {
        self.set_activity(Activity::Resting);
        if !vp.step(self.activation(), State::Runtime, State::Idle) {
            self.runtime().kernel.broken("an idle owner was replaced");
        }
    }

    /// Rests while it owns the idle virtual processor; perhaps it does not any more afterwards, and is
    /// a spare.
    pub(super) fn rest_as_owner(&self, vp: &'static Vp<K>, rest: impl FnOnce()) {
        // Perhaps it has delivered what came to the poller.
        self.change_activity(Activity::Running, Activity::Resting);
        let word = vp.word();
        if word.is_owned_by(self.activation()) && word.state() == State::Idle {
            rest();
        }
    }

    /// Events that came while the activation had no thread.
    #[inline]
    pub(super) fn look_at_deferred(&self) {
        if self.take_attention() & Activation::<K>::DEFERRED != 0 {
            self.runtime().kernel.pass_on(self);
        }
    }

    /// Sleeps, or polls if nobody else does.
    pub(super) fn rest(&self, seen: u32) {
        self.look_at_deferred();
        if !self.sit(seen) {
            self.runtime().kernel.sleep(self.activation(), seen);
        }
    }

    /// Nothing to run on a virtual processor that the activation owns. Returns whether it still
    /// owns it, in state `Runtime`.
    pub(super) fn idle(&self, vp: &'static Vp<K>) -> bool {
        let runtime = self.runtime();
        if runtime.seat_is_wanted() {
            let list = runtime.kernel.poll(self.activation(), None);
            if !list.is_empty() {
                runtime.add_ready(vp, list);
                return true;
            }
        }
        let began = runtime.kernel.now();
        runtime.begins_rest(vp, began);
        runtime.vps.set_idle(vp);
        self.fall_idle(vp);
        runtime.see_lists();
        let spell = vp.spell_ns.load(Ordering::Relaxed);
        loop {
            // SeqCst: its processor may be taken just now; see `Runtime::recall`.
            if runtime.work_waits(vp) || !runtime.kernel.may_run(vp) {
                break;
            }
            if runtime.kernel.now().wrapping_sub(began) >= spell {
                if self.idle_sleep(vp) {
                    break;
                }
                return false;
            }
            runtime.kernel.yield_processor();
            let word = vp.word();
            if !word.is_owned_by(self.activation()) || word.state() == State::Rung {
                break;
            }
        }
        let now = runtime.kernel.now();
        let owns = self.reclaim(vp);
        if now.wrapping_sub(began) >= SHORT_SLEEP_NS {
            vp.spell_ns.store(0, Ordering::Relaxed);
        } else if owns {
            vp.spell_ns.store(SPELL_NS, Ordering::Relaxed);
        }
        if owns {
            runtime.ends_rest_at(vp, now);
        }
        owns
    }

    /// The idle owner goes back to work, if it still is the owner.
    fn reclaim(&self, vp: &'static Vp<K>) -> bool {
        let runtime = self.runtime();
        if vp.step(self.activation(), State::Idle, State::Runtime) {
            self.set_activity(Activity::Running);
            runtime.vps.clear_idle(vp);
            runtime.kernel.bind(self.activation());
            return true;
        }
        let word = vp.word();
        if word.is_owned_by(self.activation()) && word.state() == State::Rung {
            vp.set(self.activation(), State::Runtime);
            self.set_activity(Activity::Running);
            if self.bequest.get(Ordering::Relaxed).is_some() {
                // It lost the virtual processor in its sleep, and is its heir now.
                runtime.inherit(self.activation(), vp);
            }
            runtime.kernel.bind(self.activation());
            return true;
        }
        false
    }

    /// Sleeps as idle owner until there is a reason to look. Returns true if it may still be the owner.
    fn idle_sleep(&self, vp: &'static Vp<K>) -> bool {
        let runtime = self.runtime();
        loop {
            let seen = self.wake.load(Ordering::SeqCst);
            let word = vp.word();
            if !word.is_owned_by(self.activation()) {
                return false;
            }
            if word.state() != State::Idle || runtime.work_waits(vp) {
                return true;
            }
            runtime.kernel.resting(self.activation());
            runtime.kernel.look_for_deadlock(self);
            self.rest_as_owner(vp, || self.rest(seen));
        }
    }

    /// While activations are absent: lets those that came back have the processor for a moment.
    /// Returns whether the activation still owns its virtual processor.
    pub(super) fn let_return(&self) -> bool {
        let runtime = self.runtime();
        let vp = self.vp();
        if !vp.offer_is_due(runtime.kernel.now()) {
            return true;
        }
        runtime.settle(vp);
        runtime.vps.clear_idle(vp);
        self.fall_idle(vp);
        runtime.kernel.yield_processor();
        let owns = self.reclaim_and_look(vp);
        vp.offered(runtime.kernel.now(), !owns);
        owns
    }

    /// As [`Inside::reclaim`], for an owner that was idle in name only: nobody rang it.
    pub(super) fn reclaim_and_look(&self, vp: &'static Vp<K>) -> bool {
        let runtime = self.runtime();
        let owns = self.reclaim(vp);
        if owns && runtime.vps.any_unwatched() {
            runtime.look_around(vp);
        }
        owns
    }
}

impl<K: Kernel> Runtime<K> {
    /// The virtual processor is about to be idle, and perhaps another's soon.
    pub(super) fn begins_rest(&self, vp: &'static Vp<K>, now: u64) {
        vp.begins_rest(now);
        self.trace(What::Idle, vp, None);
    }

    /// The virtual processor is the caller's. It may have been idle.
    pub(super) fn ends_rest(&self, vp: &'static Vp<K>) {
        if vp.rests() {
            self.ends_rest_at(vp, self.kernel.now());
        }
    }

    fn ends_rest_at(&self, vp: &'static Vp<K>, now: u64) {
        vp.ends_rest(now);
        self.trace(What::Busy, vp, None);
    }

    /// For how many nanoseconds until `now` there were virtual processors, and for how many of those they were idle, all
    /// together.
    pub fn times(&self, now: u64) -> (u64, u64) {
        let since = now.saturating_sub(self.started_ns.load(Ordering::Relaxed));
        let idle = self.vps().iter().map(|vp| vp.idle_ns(now)).sum();
        (since * self.vps().len() as u64, idle)
    }

    /// Returns true if there is something to run there as soon as the owner blocks.
    pub(super) fn work_waits_for(&self, vp: &'static Vp<K>) -> bool {
        vp.has_ready() || vp.nr_displaced.load(Ordering::Relaxed) != 0
    }

    pub(super) fn work_waits(&self, vp: &'static Vp<K>) -> bool {
        let has_ready = |other: &'static Vp<K>| other.has_ready().then_some(());
        vp.has_ready() || self.vps.find_ready(vp, has_ready).is_some()
    }

    /// Threads may have been announced to a virtual processor that is busy with another one now, and
    /// who sat in the poller may have become its owner: a page fault is announced to nobody. Not where
    /// standbys have heirs: each call would take one from the pool.
    #[cold]
    pub(super) fn look_around(&'static self, vp: &'static Vp<K>) {
        self.see_lists();
        if self.work_waits(vp) {
            self.announce_ready(vp);
        }
        if self.seat_is_wanted() && !self.kernel.needs_heirs() {
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

    /// Puts an idle virtual processor to work, the nearest to `near`. Returns true if there was one. The one that sits in
    /// the poller comes last: it hears the call late where the seat's own page fault delays it.
    pub(super) fn ring(&'static self, near: u32) -> bool {
        let seat = self.seat.holder().map(|poller| poller.vp().index());
        while let Some(vp) = self.vps.take_idle(near, seat) {
            let word = vp.word();
            match word.state() {
                State::Idle if self.grant_idle(vp, word) => return true,
                // Its standby will see whether the owner is blocked; it may well not be.
                State::Kernel => {
                    self.call_standby(vp);
                    self.end_nap(vp);
                }
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
        self.trace(What::Rung, vp, None);
        self.stats.rung.add();
        word.owner().notify();
        true
    }
}

impl<K: Kernel> Activation<K> {
    /// Wakes an activation after a reason was created for it.
    pub(super) fn notify(&'static self) {
        self.wake.fetch_add(1, Ordering::SeqCst);
        self.runtime().kernel.wake(self);
    }
}
