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

use core::sync::atomic::Ordering;

use crate::activation::{Activation, Role};
use crate::kernel::Kernel;
use crate::ready::ThreadList;
use crate::runtime::Runtime;
use crate::vp::{State, Vp, Word};

/// An idle processor waits this long, in nanoseconds, before it sleeps, if that has paid lately.
const SPELL_NS: u64 = 20_000;
/// A sleep shorter than this says that waiting would have paid.
const SHORT_SLEEP_NS: u64 = 60_000;
/// While activations are absent, their processor is offered to them at most this often.
const RETURN_EVERY_NS: u64 = 100_000;
/// Spare activations that are kept whatever happens, beside two a virtual processor.
const SPARES: u64 = 6;

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
                    State::Granted | State::Runtime => {
                        vp.set(activation, State::Runtime);
                        activation.set_role(Role::Carrier);
                        self.inherit(vp);
                        return;
                    }
                    State::Idle => self.rest_as_owner(activation, vp, seen),
                    State::User | State::Kernel => self
                        .kernel
                        .broken("an owner without a thread outside of the runtime"),
                }
                continue;
            }
            match activation.role() {
                Role::Standby => self.stand_by(activation, vp),
                Role::Spare => {
                    if self.is_surplus(self.spares.lock(&self.kernel).len)
                        && !self.seat_is_wanted()
                        && !self.is_first(activation)
                        && self.leave_spares(activation)
                    {
                        self.end_activation(activation);
                    }
                    self.rest(activation, seen);
                }
                Role::Reserved => self.kernel.sleep(activation, seen),
                Role::Carrier | Role::Resting => self.retire_from(activation, Role::Carrier),
            }
        }
    }

    /// Rests while it owns the idle virtual processor; perhaps it does not any more afterwards.
    fn rest_as_owner(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
        seen: u32,
    ) {
        activation.change_role(Role::Carrier, Role::Resting);
        let word = vp.word();
        if word.is_owned_by(activation) && word.state() == State::Idle {
            self.rest(activation, seen);
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
    fn rest(&'static self, activation: &'static Activation<K>, seen: u32) {
        self.look_at_deferred(activation);
        if self.poller.get(Ordering::Relaxed).is_none()
            && self.poller.replace_if(None, Some(activation))
        {
            // Perhaps it was woken to end, and is needed here.
            self.end_surplus();
            let list = self.kernel.poll(self, activation, Some(seen));
            self.poller.set(None, Ordering::Release);
            if list.is_empty() && self.kernel.sentinel() {
                self.stand_in(activation);
            }
            self.deliver(activation, list);
        } else {
            self.kernel.sleep(activation, seen);
        }
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
        if free && self.acquire(activation, vp, true) {
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
        self.idle.insert(vp.index());
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
            if word.state() == State::Granted {
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
            self.idle.remove(vp.index());
            self.kernel.bind(activation);
            return true;
        }
        let word = vp.word();
        if word.is_owned_by(activation) && word.state() == State::Granted {
            vp.set(activation, State::Runtime);
            activation.set_role(Role::Carrier);
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
            self.rest_as_owner(activation, vp, seen);
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
        if vp.has_ready() && !self.idle.is_empty() {
            self.ring(vp.index());
        }
        if self.seat_is_wanted() {
            self.call_spare(vp);
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
            if activation.take_attention() & Activation::<K>::DEFERRED != 0 {
                self.kernel.deferred(self, activation, None);
            }
            self.kernel.await_turn(self, activation, seen);
        }
        self.reclaim_and_look(activation, vp)
    }

    fn work_waits(&self, vp: &'static Vp<K>) -> bool {
        vp.has_ready() || self.vps().iter().any(Vp::has_ready)
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
        if owns && self.unwatched.load(Ordering::SeqCst) != 0 {
            self.look_around(vp);
        }
        owns
    }

    /// Threads may have been announced to a virtual processor that is busy with another one now.
    #[cold]
    pub(super) fn look_around(&'static self, vp: &'static Vp<K>) {
        if self.work_waits(vp) {
            self.announce_ready(vp);
        }
    }

    /// Calls the standby of every virtual processor that is busy.
    #[cold]
    pub(super) fn watch_busy(&'static self) {
        for vp in self.vps() {
            let word = vp.word();
            let looks_by_itself = match word.state() {
                State::Idle => true,
                State::Granted => word.owner().thread().is_none(),
                State::User | State::Kernel | State::Runtime => false,
            };
            if !looks_by_itself {
                self.call_standby(vp);
            }
        }
    }

    /// Puts an idle virtual processor to work, the nearest to `near`; says whether there was one.
    pub(super) fn ring(&'static self, near: u32) -> bool {
        while let Some(index) = self.idle.take(near) {
            let Some(vp) = self.vps().get(index as usize) else {
                return false;
            };
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
        if !vp.replace(word, word.owner(), State::Granted) {
            return false;
        }
        self.idle.remove(vp.index());
        self.stats.rung.add();
        self.notify(word.owner());
        true
    }

    /// Wakes an activation after a reason was created for it.
    pub(super) fn notify(&'static self, activation: &'static Activation<K>) {
        activation.wake.fetch_add(1, Ordering::SeqCst);
        self.kernel.wake(activation);
    }

    // Standby.

    /// Whether somebody notices if the owner of `vp` blocks, and has somebody to call then.
    #[inline]
    pub(super) fn standby_is_awake(&self, vp: &'static Vp<K>) -> bool {
        !vp.standby_asleep.load(Ordering::SeqCst)
            && vp.standby.get(Ordering::Relaxed).is_some()
            && !(self.kernel.sentinel() && self.spares_are_few.load(Ordering::Relaxed))
    }

    /// Makes sure that somebody notices if the owner of `vp` blocks.
    #[inline]
    pub(super) fn call_standby(&'static self, vp: &'static Vp<K>) {
        if !self.standby_is_awake(vp) {
            self.wake_standby(vp);
        }
    }

    #[cold]
    fn wake_standby(&'static self, vp: &'static Vp<K>) {
        if self.kernel.sentinel()
            && self.spares_are_few.load(Ordering::Relaxed)
            && self.kernel.current().role() != Role::Standby
            && let Some(spare) = self.spawn_activation(vp, false)
        {
            self.give_back(spare);
        }
        if let Some(standby) = vp.standby.get(Ordering::Acquire) {
            let able = !self.kernel.sentinel() || self.find_heir(vp);
            if able && self.rouse_standby(vp) {
                self.notify(standby);
            }
            return;
        }
        let sentinel = self.kernel.sentinel();
        if sentinel && !self.find_heir(vp) {
            return;
        }
        // One creator at a time: a sentinel too many could not be put to another use.
        while !vp.calling.swap(true, Ordering::SeqCst) {
            let standby = if sentinel {
                self.spawn_activation(vp, true)
            } else {
                self.take_spare(vp)
            };
            if let Some(activation) = standby {
                if vp.standby.replace_if(None, Some(activation)) {
                    self.unwatched.fetch_sub(1, Ordering::SeqCst);
                    activation.set_role(Role::Standby);
                    self.notify(activation);
                } else {
                    self.give_back(activation);
                }
            }
            vp.calling.store(false, Ordering::SeqCst);
            // Who called meanwhile counted on this one, whose standby may have taken over already.
            let gone = vp.standby.get(Ordering::SeqCst).is_none();
            if standby.is_none() || !gone || !self.work_waits(vp) {
                return;
            }
        }
    }

    /// Makes sure that the sentinel of `vp` can act; says whether it can.
    fn find_heir(&'static self, vp: &'static Vp<K>) -> bool {
        if vp.heir.get(Ordering::Relaxed).is_some() {
            return true;
        }
        let Some(heir) = self.take_spare(vp) else {
            return false;
        };
        if !vp.heir.replace_if(None, Some(heir)) {
            self.give_back(heir);
        }
        true
    }

    pub(super) fn quit_standby(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
    ) -> bool {
        if !vp.standby.replace_if(Some(activation), None) {
            return false;
        }
        self.unwatched.fetch_add(1, Ordering::SeqCst);
        activation.set_role(Role::Carrier);
        true
    }

    /// The standby has seen that the owner in `word` is blocked.
    fn relieve(&'static self, standby: &'static Activation<K>, vp: &'static Vp<K>, word: Word<K>) {
        if self.kernel.sentinel() {
            self.bequeath(standby, vp, word);
        } else {
            self.take_over(standby, vp, word);
        }
    }

    /// Sleeps as standby until somebody calls.
    pub(super) fn await_call(&'static self, standby: &'static Activation<K>, vp: &'static Vp<K>) {
        loop {
            let seen = standby.wake.load(Ordering::SeqCst);
            self.look_at_deferred(standby);
            if !vp.standby_asleep.load(Ordering::SeqCst) {
                return;
            }
            self.kernel.sleep(standby, seen);
        }
    }

    /// The standby of `vp` is about to sleep, or unable to act.
    pub(super) fn retire_standby(&self, vp: &'static Vp<K>) {
        vp.standby_asleep.store(true, Ordering::SeqCst);
        self.unwatched.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends the sleep of the standby of `vp` in the books; says whether it was asleep.
    pub(super) fn rouse_standby(&self, vp: &'static Vp<K>) -> bool {
        let was_asleep = vp.standby_asleep.swap(false, Ordering::SeqCst);
        if was_asleep {
            self.unwatched.fetch_sub(1, Ordering::SeqCst);
        }
        was_asleep
    }

    /// Waits, runnable, for the owner to block; sleeps while the virtual processor is idle.
    fn stand_by(&'static self, activation: &'static Activation<K>, vp: &'static Vp<K>) {
        while vp.standby.holds(activation, Ordering::Relaxed) {
            let seen = activation.wake.load(Ordering::SeqCst);
            self.look_at_deferred(activation);
            let word = vp.word();
            if word.is_owned_by(activation) {
                self.quit_standby(activation, vp);
                return;
            }
            match word.state() {
                // Offered to those that come back; the owner or one of them goes on in a moment.
                State::Idle if self.work_waits_for(vp) => {}
                State::Idle => {
                    self.retire_standby(vp);
                    if vp.word().state() == State::Idle {
                        if self.seat_is_wanted() {
                            // The owner saw somebody in it who is not there any more.
                            self.notify(word.owner());
                        }
                        self.kernel.sleep(activation, seen);
                    }
                    self.rouse_standby(vp);
                    self.kernel.bind(activation);
                    continue;
                }
                State::User | State::Kernel => {
                    let cheap_doubt = word.state() == State::Kernel && vp.has_ready();
                    if self.kernel.is_blocked(word.owner(), cheap_doubt) {
                        self.relieve(activation, vp, word);
                    }
                }
                // Displaced with its thread, it blocked on a page fault before it was granted.
                State::Granted
                    if word.owner().thread().is_some()
                        && self.kernel.is_blocked(word.owner(), false) =>
                {
                    self.relieve(activation, vp, word);
                }
                State::Runtime | State::Granted => {}
            }
            // The virtual processor may have moved to another processor.
            self.kernel.bind(activation);
            self.kernel.yield_processor();
        }
    }

    // The pool of spare activations.

    /// Puts an activation without work into the pool, if it has this role.
    pub(super) fn retire_from(&'static self, activation: &'static Activation<K>, role: Role) {
        {
            let mut spares = self.spares.lock(&self.kernel);
            // Who rests now may be somebody's owner again by the time that its successor comes here.
            if role == Role::Resting && activation.vp().word().is_owned_by(activation)
                || !activation.change_role(role, Role::Spare)
            {
                return;
            }
            activation.next.set(spares.head, Ordering::Relaxed);
            spares.head = Some(activation);
            spares.len += 1;
            self.count_spares(spares.len);
        }
        // Others look at the pool themselves on their way to sleep.
        if role == Role::Resting {
            self.end_surplus();
        }
    }

    /// Notes how many there are, the pool being locked. Of two, one may sit in the poller.
    fn count_spares(&self, spares: u64) {
        self.spares_are_few.store(spares < 2, Ordering::Relaxed);
    }

    /// A spare activation, or a new one, for `vp`, in role `Reserved`: it sleeps until it has been
    /// given a role or a grant and [`Runtime::notify`] wakes it.
    pub(super) fn take_spare(&'static self, vp: &'static Vp<K>) -> Option<&'static Activation<K>> {
        self.take_pooled(vp)
            .or_else(|| self.spawn_activation(vp, false))
    }

    /// As [`Runtime::take_spare`], from the pool only.
    fn take_pooled(&'static self, vp: &'static Vp<K>) -> Option<&'static Activation<K>> {
        let (spare, surplus) = {
            let mut spares = self.spares.lock(&self.kernel);
            // Whoever sits in the poller stays there.
            let seated = |one: &&'static Activation<K>| self.poller.holds(one, Ordering::Relaxed);
            let first = spares.head;
            let spare = match first.filter(seated) {
                Some(poller) => {
                    let second = poller.next.get(Ordering::Relaxed);
                    if let Some(second) = second {
                        poller
                            .next
                            .set(second.next.get(Ordering::Relaxed), Ordering::Relaxed);
                    }
                    second
                }
                None => {
                    spares.head = first.and_then(|first| first.next.get(Ordering::Relaxed));
                    first
                }
            };
            if let Some(activation) = spare {
                spares.len -= 1;
                self.count_spares(spares.len);
                activation.vp.set(Some(vp), Ordering::Relaxed);
                activation.set_role(Role::Reserved);
            }
            (spare, self.is_surplus(spares.len))
        };
        if spare.is_some() {
            self.stats.recycled.add();
            if surplus {
                // Perhaps it was woken to end.
                self.end_surplus();
            }
        }
        spare
    }

    /// A spare for the virtual processor whose owner `watcher` found blocked. A sentinel starts
    /// none: a kernel thread inherits the idle class, and may not leave it. So there are always some
    /// in the pool ([`Runtime::standby_is_awake`]), and if there are not, the poller, which is no
    /// sentinel, does the work.
    pub(super) fn take_spare_for(
        &'static self,
        watcher: &'static Activation<K>,
        vp: &'static Vp<K>,
    ) -> Option<&'static Activation<K>> {
        if watcher.role() != Role::Standby {
            return self.take_spare(vp);
        }
        let spare = self.take_pooled(vp);
        if spare.is_none()
            && let Some(poller) = self.poller.get(Ordering::Relaxed)
        {
            self.notify(poller);
        }
        spare
    }

    /// A reserved activation is not needed after all.
    pub(super) fn give_back(&'static self, activation: &'static Activation<K>) {
        self.retire_from(activation, Role::Reserved);
        self.notify(activation);
    }

    fn spawn_activation(
        &'static self,
        vp: &'static Vp<K>,
        sentinel: bool,
    ) -> Option<&'static Activation<K>> {
        let Ok(activation) = self.new_activation() else {
            self.stats.refused.add();
            return None;
        };
        activation.vp.set(Some(vp), Ordering::Relaxed);
        activation.set_role(Role::Reserved);
        if self.kernel.spawn(activation, sentinel).is_err() {
            self.stats.refused.add();
            self.bury(activation);
            return None;
        }
        Some(activation)
    }

    /// A spare takes itself out of the pool; says whether it still was in it.
    fn leave_spares(&'static self, activation: &'static Activation<K>) -> bool {
        let mut spares = self.spares.lock(&self.kernel);
        if activation.role() != Role::Spare {
            return false;
        }
        let mut at = spares.head;
        let mut before: Option<&'static Activation<K>> = None;
        while let Some(here) = at {
            let next = here.next.get(Ordering::Relaxed);
            if core::ptr::eq(here, activation) {
                match before {
                    Some(before) => before.next.set(next, Ordering::Relaxed),
                    None => spares.head = next,
                }
                spares.len -= 1;
                self.count_spares(spares.len);
                activation.set_role(Role::Carrier);
                return true;
            }
            before = Some(here);
            at = next;
        }
        self.kernel.broken("a spare activation outside of the pool")
    }

    /// Wakes some spare, or a new one, for the poller's seat.
    pub(super) fn call_spare(&'static self, vp: &'static Vp<K>) {
        let spare = self.spares.lock(&self.kernel).head;
        if let Some(activation) = spare {
            self.notify(activation);
        } else if let Some(activation) = self.spawn_activation(vp, false) {
            self.give_back(activation);
        }
    }

    /// Whether there are more spares than what is really blocked justifies.
    fn is_surplus(&self, spares: u64) -> bool {
        spares > 2 * self.vps().len() as u64 + SPARES + self.stats.absent.get()
    }

    fn end_activation(&'static self, activation: &'static Activation<K>) -> ! {
        self.bury(activation);
        // The others went to sleep when more were blocked: each wakes the next.
        self.end_surplus();
        self.kernel.exit_activation(activation)
    }

    /// Wakes a spare that may end, if there are too many.
    fn end_surplus(&'static self) {
        let next = {
            let spares = self.spares.lock(&self.kernel);
            if !self.is_surplus(spares.len) {
                return;
            }
            let listed =
                core::iter::successors(spares.head, |spare| spare.next.get(Ordering::Relaxed));
            let may_end = |one: &&'static Activation<K>| {
                !self.poller.holds(one, Ordering::Relaxed) && !self.is_first(one)
            };
            listed.into_iter().find(may_end)
        };
        if let Some(next) = next {
            self.notify(next);
        }
    }

    /// Keeps an ended activation until its kernel thread is gone.
    fn bury(&'static self, activation: &'static Activation<K>) {
        self.stats.activations.down();
        let mut spares = self.spares.lock(&self.kernel);
        activation.next.set(spares.ended, Ordering::Relaxed);
        spares.ended = Some(activation);
    }
}
