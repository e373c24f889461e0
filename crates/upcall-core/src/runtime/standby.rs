//! The standby of a virtual processor: it runs when the owner does not, and that is the upcall.

use core::sync::atomic::Ordering;

use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::state::activation::Activity;
use crate::state::inside::Inside;
use crate::state::vp::{State, Vp, Word};
use crate::sync::CHECKED;

/// Looks in a row that find nothing to stand by for, before the standby sleeps.
const LOOKS: u32 = if CHECKED { 0 } else { 4 };
/// A standby that was called so often within this many nanoseconds naps beside an idle virtual processor.
const MANY_CALLS: u32 = if CHECKED { 1 } else { 4 };
const MANY_CALLS_NS: u64 = 8_000_000;
/// Nanoseconds without a call that blocked, after which the next one may go unnoticed for the rest of a nap, if nobody waits for
/// the virtual processor.
const CALM_NS: u64 = if CHECKED { 0 } else { 128_000_000 };

impl<K: Kernel> Runtime<K> {
    /// Returns true if nobody stands by for the owner of `vp` just now. SeqCst: an owner that roams looks here afterwards; who
    /// stands by looks for owners that roam afterwards.
    pub fn is_unwatched(&self, vp: &Vp<K>) -> bool {
        self.vps.is_unwatched(vp) || vp.naps.load(Ordering::SeqCst)
    }

    /// Returns true if somebody notices when the owner of `vp` blocks, and has somebody to call then.
    #[inline]
    pub(super) fn standby_is_awake(&self, vp: &'static Vp<K>) -> bool {
        !self.vps.is_unwatched(vp)
            && vp.standby.get(Ordering::Relaxed).is_some()
            && !(self.kernel.needs_heirs() && self.spares.are_few())
    }

    /// Makes sure that somebody notices if the owner of `vp` blocks.
    #[inline]
    pub(super) fn call_standby(&'static self, vp: &'static Vp<K>) {
        let is_awake = self.standby_is_awake(vp);
        if !is_awake || vp.naps.load(Ordering::Relaxed) {
            vp.count_call();
        }
        if !is_awake {
            self.wake_standby(vp);
        }
    }

    #[cold]
    fn wake_standby(&'static self, vp: &'static Vp<K>) {
        if self.is_left() {
            return;
        }
        if self.kernel.needs_heirs()
            && self.spares.are_few()
            && self.kernel.current().activity() != Activity::Standby
            && let Some(spare) = self.spawn_activation(vp, false)
        {
            spare.give_back();
        }
        if let Some(standby) = vp.standby.get(Ordering::Acquire) {
            let able = !self.kernel.needs_heirs() || self.find_heir(vp);
            if able && self.rouse_standby(vp) {
                // SeqCst: pairs with `quit_standby`, which takes it away before it says that nobody watches.
                if !vp.standby.holds(standby, Ordering::SeqCst) {
                    self.retire_standby(vp);
                    return self.wake_standby(vp);
                }
                standby.notify();
            }
            return;
        }
        let needs_heir = self.kernel.needs_heirs();
        if needs_heir && !self.find_heir(vp) {
            return;
        }
        // One creator at a time: a standby too many that only watches could not be put to another use.
        if vp.calling.swap(true, Ordering::SeqCst) {
            return;
        }
        if vp.standby.get(Ordering::SeqCst).is_some() {
            // Another caller was quicker.
            vp.calling.store(false, Ordering::SeqCst);
            return self.wake_standby(vp);
        }
        let standby = if needs_heir {
            self.spawn_activation(vp, true)
        } else {
            self.take_spare(vp)
        };
        let stands_by = standby.is_some_and(|one| vp.standby.replace_if(None, Some(one)));
        if stands_by {
            self.rouse_standby(vp);
        }
        // Before it is a standby: it may take over at once, and call the next one itself.
        vp.calling.store(false, Ordering::SeqCst);
        let Some(activation) = standby else { return };
        if stands_by {
            activation.set_activity(Activity::Standby);
            activation.notify();
        } else {
            activation.give_back();
        }
    }

    /// Makes sure that the standby of `vp`, which needs an heir, can act. Returns true if it can.
    fn find_heir(&'static self, vp: &'static Vp<K>) -> bool {
        if vp.heir.get(Ordering::Relaxed).is_some() {
            return true;
        }
        let Some(heir) = self.take_spare(vp) else {
            return false;
        };
        if !vp.heir.replace_if(None, Some(heir)) {
            heir.give_back();
        }
        true
    }

    /// The standby of `vp` is about to sleep, or unable to act.
    pub(super) fn retire_standby(&self, vp: &'static Vp<K>) {
        self.vps.set_unwatched(vp);
    }

    /// Ends the sleep of the standby of `vp` in the books. Returns true if it was asleep.
    pub(super) fn rouse_standby(&self, vp: &'static Vp<K>) -> bool {
        let slept = self.vps.clear_unwatched(vp);
        if slept {
            self.kernel.hold(vp);
        }
        slept
    }

    /// The owner of `vp`, the caller, has announced a call in which it may block: its standby, which naps, is to see that. With
    /// no barrier between the announcement and the look for naps the two may miss each other. Then the nap ends by itself.
    ///
    /// Where calls hardly ever block and nothing waits for the virtual processor but events, the standby naps on. What gets
    /// ready meanwhile rings.
    #[cold]
    pub(super) fn calls_beside_nap(&'static self, vp: &'static Vp<K>) {
        if self.seat_is_wanted() {
            vp.count_call();
        }
        if !self.may_notice_late(vp) {
            self.end_nap(vp);
        }
    }

    /// The owner of `vp` is in a call. Returns true if a block there may be noticed a nap late: then those that make a thread
    /// ready ring `vp`. Not where the standby may not get to run when its nap ends.
    fn may_notice_late(&'static self, vp: &'static Vp<K>) -> bool {
        let relieved = vp.relieved_ns.load(Ordering::Relaxed);
        let is_calm = || self.kernel.now().saturating_sub(relieved) >= CALM_NS;
        if self.kernel.needs_heirs() || self.work_waits_here(vp) || !is_calm() {
            return false;
        }
        // SeqCst: who makes a thread ready looks here afterwards, and we for the thread.
        self.vps.set_idle(vp);
        !self.work_waits_here(vp)
    }

    /// Returns true if there is something to run on `vp` as soon as it is free.
    fn work_waits_here(&'static self, vp: &'static Vp<K>) -> bool {
        self.work_waits_for(vp) || self.work_waits(vp)
    }

    /// Ends the nap of the standby of `vp`, if it naps.
    pub(super) fn end_nap(&self, vp: &'static Vp<K>) {
        if vp.naps.swap(false, Ordering::Relaxed)
            && let Some(standby) = vp.standby.get(Ordering::Acquire)
        {
            standby.notify();
        }
    }

    /// Returns true if there would be anything to do if the owner of `vp` blocked. Not for the displaced,
    /// which run then, and look themselves.
    fn has_reason(&self, vp: &'static Vp<K>) -> bool {
        self.work_waits(vp) || self.seat_is_wanted() || self.kernel.is_contended()
    }
}

impl<K: Kernel> Inside<K> {
    pub(super) fn quit_standby(&self, vp: &'static Vp<K>) -> bool {
        if !vp.standby.replace_if(Some(self.activation()), None) {
            return false;
        }
        self.runtime().vps.set_unwatched(vp);
        self.set_activity(Activity::Running);
        true
    }

    /// The standby has seen that the owner in `word` is blocked, and perhaps `late`: after a nap that nobody has ended. Returns true
    /// if it is not the standby any more.
    fn relieve(&self, vp: &'static Vp<K>, word: Word<K>, late: bool) -> bool {
        let runtime = self.runtime();
        let last_ns = match word.state() {
            State::Kernel => late.then_some(&vp.relieved_ns),
            _ => Some(&vp.surprised_ns),
        };
        if let Some(last_ns) = last_ns {
            last_ns.store(runtime.kernel.now(), Ordering::Relaxed);
        }
        if runtime.kernel.needs_heirs() {
            self.bequeath(vp, word);
        } else {
            self.take_over(vp, word);
        }
        !vp.standby.holds(self.activation(), Ordering::Relaxed)
    }

    /// Sleeps as standby until somebody calls.
    pub(super) fn await_call(&self, vp: &'static Vp<K>) {
        let runtime = self.runtime();
        loop {
            let seen = self.wake.load(Ordering::SeqCst);
            self.look_at_deferred();
            if !runtime.vps.is_unwatched(vp) {
                return;
            }
            runtime.kernel.sleep(self.activation(), seen);
        }
    }

    /// Sleeps as standby, unless there is a reason to go on, which is asked when the books say that it
    /// sleeps: a caller that makes one later finds it so and calls.
    fn sleep_unless(&self, vp: &'static Vp<K>, seen: u32, has_reason: impl FnOnce() -> bool) {
        let runtime = self.runtime();
        runtime.retire_standby(vp);
        if !runtime.kernel.needs_heirs() {
            runtime.see_lists();
        } else if runtime.vps.any_free() {
            // Without the lists' locks: it would hold them while it does not get to run.
            runtime.kernel.pass_barriers();
        }
        if !has_reason() {
            runtime.kernel.sleep(self.activation(), seen);
        }
        runtime.rouse_standby(vp);
        runtime.kernel.bind(self.activation());
    }

    /// Waits, runnable as a rule, for the owner to block; sleeps while the virtual processor is idle, or has
    /// for some looks had nothing else to do: a program's sched_yield(2) goes to others then, and not
    /// here and back. A caller that makes a thread ready calls the standby.
    pub(super) fn stand_by(&self, vp: &'static Vp<K>) {
        let runtime = self.runtime();
        let mut looks = 0;
        let mut has_slept = false;
        while vp.standby.holds(self.activation(), Ordering::Relaxed) {
            let seen = self.wake.load(Ordering::SeqCst);
            self.look_at_deferred();
            let word = vp.word();
            if word.is_owned_by(self.activation()) {
                self.quit_standby(vp);
                return;
            }
            match word.state() {
                // Offered to those that come back; the owner or one of them goes on in a moment.
                State::Idle if runtime.work_waits_for(vp) => {}
                State::Idle if self.naps_beside_idle(vp, seen) => {}
                State::Idle => {
                    self.sleep_unless(vp, seen, || {
                        let idle = vp.word().state() == State::Idle;
                        if idle && runtime.seat_is_wanted() {
                            // The owner saw somebody in it who is not there any more.
                            word.owner().notify();
                        }
                        !idle
                    });
                    continue;
                }
                State::User | State::Kernel => {
                    looks = if runtime.has_reason(vp) { 0 } else { looks + 1 };
                    if looks > LOOKS {
                        looks = 0;
                        self.sleep_unless(vp, seen, || runtime.has_reason(vp));
                        continue;
                    }
                    let cheap_doubt =
                        word.state() == State::Kernel && runtime.work_waits_for(vp) && !has_slept;
                    if runtime.kernel.is_blocked(word.owner(), cheap_doubt) {
                        if self.relieve(vp, word, has_slept) {
                            return;
                        }
                    } else if word.state() == State::User && runtime.work_waits_for(vp) {
                        let dispatches = vp.dispatches.load(Ordering::Relaxed);
                        runtime.kernel.computes(word.owner(), dispatches);
                    }
                }
                // Displaced, it blocked on a page fault before it was granted.
                State::Granted => {
                    if runtime.kernel.is_blocked(word.owner(), false)
                        && self.relieve(vp, word, has_slept)
                    {
                        return;
                    }
                }
                State::Runtime | State::Rung => {}
            }
            // The virtual processor may have moved to another processor.
            runtime.kernel.bind(self.activation());
            has_slept = self.stand_aside(vp, seen);
        }
    }

    /// Lets the owner and others run before the standby looks again. Returns true if it has napped to the end: then it may itself
    /// have stopped an owner that ran.
    fn stand_aside(&self, vp: &'static Vp<K>, seen: u32) -> bool {
        let runtime = self.runtime();
        let may_nap = || vp.word().state() != State::Kernel || runtime.may_notice_late(vp);
        let nap_ns = match may_nap() {
            true => self.nap_ns(vp, !runtime.work_waits_here(vp)),
            false => None,
        };
        let Some(nap_ns) = nap_ns else {
            runtime.kernel.yield_processor();
            return false;
        };
        let napped = self.nap(vp, seen, nap_ns, may_nap);
        if !napped {
            // The owner has ended it, and goes on to its call first.
            runtime.kernel.yield_processor();
        }
        napped
    }

    /// For how many nanoseconds it may nap, if it may. `only_events`: no thread waits for the virtual processor.
    fn nap_ns(&self, vp: &Vp<K>, only_events: bool) -> Option<u64> {
        let kernel = &self.runtime().kernel;
        kernel.nap_ns(self.activation(), only_events, || {
            let since = vp.surprised_ns.load(Ordering::Relaxed);
            kernel.now().saturating_sub(since)
        })
    }

    /// Naps for so long at most, if it may then still. Returns true if nobody has ended the nap.
    fn nap(&self, vp: &'static Vp<K>, seen: u32, ns: u64, may: impl FnOnce() -> bool) -> bool {
        let runtime = self.runtime();
        // SeqCst: see `Runtime::calls_beside_nap`.
        vp.naps.store(true, Ordering::SeqCst);
        if may() {
            runtime.kernel.nap(self.activation(), seen, ns);
        }
        // SeqCst: see `Runtime::is_unwatched`.
        let napped = vp.naps.swap(false, Ordering::SeqCst);
        runtime.kernel.hold(vp);
        napped
    }

    /// Naps while the virtual processor is idle, if it was called often lately: it costs more to call one that sleeps. Returns
    /// false if it is to sleep. One with an heir sleeps: where it does not get to run, it stays behind when its virtual processor
    /// moves.
    fn naps_beside_idle(&self, vp: &'static Vp<K>, seen: u32) -> bool {
        let runtime = self.runtime();
        if runtime.kernel.needs_heirs() {
            return false;
        }
        if vp.calls.load(Ordering::Relaxed) < MANY_CALLS || runtime.seat_is_wanted() {
            return false;
        }
        vp.calls.store(0, Ordering::Relaxed);
        let now = runtime.kernel.now();
        let since = vp.calls_ns.swap(now, Ordering::Relaxed);
        if now.saturating_sub(since) > MANY_CALLS_NS {
            return false;
        }
        let Some(ns) = self.nap_ns(vp, true) else {
            return false;
        };
        self.nap(vp, seen, ns, || {
            vp.word().state() == State::Idle && !runtime.work_waits_for(vp)
        });
        true
    }
}
