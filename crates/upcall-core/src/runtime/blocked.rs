//! Upcall: an activation has blocked (Anderson, Table 2).
//!
//! The standby runs because the owner does not: it takes the virtual processor over with one
//! compare-and-swap, or gives it to a displaced activation that already has a thread. The owner is
//! *absent* until it comes back.
//!
//! An activation that was replaced while its thread ran program code (page fault, displacement)
//! is interrupted by [`Vessels::interrupt`](crate::kernel::Vessels::interrupt), so that it learns of it before its thread goes on.

use core::sync::atomic::Ordering;

use crate::kernel::{Kernel, Waiting};
use crate::runtime::Runtime;
use crate::state::activation::Activation;
use crate::state::vp::{State, Vp, Word};

impl<K: Kernel> Runtime<K> {
    /// Replaces the owner in `word`, which is blocked. Returns whether it did. The mark is there before the
    /// owner can learn of it. Each that tries has a mark of its own, and takes it back if it fails; the mark
    /// of the one that succeeds is the owner's to take back, when it returns.
    pub(super) fn replace_blocked(
        &'static self,
        vp: &'static Vp<K>,
        word: Word<K>,
        next: &'static Activation<K>,
        state: State,
    ) -> bool {
        let owner = word.owner();
        self.stats.absent.up();
        owner.marks.fetch_add(1, Ordering::AcqRel);
        if vp.replace(word, next, state) {
            self.stats.blocked.add();
            return true;
        }
        owner.marks.fetch_sub(1, Ordering::AcqRel);
        self.stats.absent.down();
        false
    }

    /// The standby has seen that the owner in `word` is blocked: the upcall. Nothing happens if
    /// the word has changed meanwhile.
    pub(super) fn take_over(
        &'static self,
        standby: &'static Activation<K>,
        vp: &'static Vp<K>,
        word: Word<K>,
    ) {
        let owner = word.owner();
        if vp.nr_displaced.load(Ordering::Relaxed) != 0 {
            let mut displaced = vp.displaced.lock(&self.kernel);
            let Some(next) = displaced.pop() else { return };
            if self.replace_blocked(vp, word, next, State::Granted) {
                vp.nr_displaced.fetch_sub(1, Ordering::Relaxed);
                drop(displaced);
                self.owner_blocked(vp, owner, word);
                if self.is_ranked() {
                    self.publish_rank(next);
                }
            } else {
                displaced.push(next);
            }
            return;
        }
        if self.kernel.needs_heirs() {
            let Some(next) = self.take_spare_for(standby, vp) else {
                return;
            };
            if self.replace_blocked(vp, word, next, State::Rung) {
                self.owner_blocked(vp, owner, word);
                self.notify(next);
            } else {
                self.give_back(next);
            }
            return;
        }
        // Still the standby if it does not succeed: an owner that is about to go into its next call
        // may rely on it. The next one is called when there is something for it to guard.
        if self.replace_blocked(vp, word, standby, State::Runtime) {
            self.quit_standby(standby, vp);
            self.owner_blocked(vp, owner, word);
        }
    }

    /// As [`Runtime::take_over`], by a standby of `vp` that has an heir. It holds no lock meanwhile: what needs
    /// one is the heir's, when it arrives. Afterwards the standby sleeps until somebody who calls it
    /// has found the next heir.
    pub(super) fn bequeath(
        &'static self,
        standby: &'static Activation<K>,
        vp: &'static Vp<K>,
        word: Word<K>,
    ) {
        // None where the standby needed no heir a moment ago: once.
        let heir = vp.heir.get(Ordering::Acquire);
        let Some(heir) = heir.or_else(|| self.take_spare(vp)) else {
            return;
        };
        vp.heir.set(None, Ordering::Relaxed);
        // Before the heir can arrive, which may call at once.
        self.retire_standby(vp);
        vp.bequeathed.set(Some(word.owner()), Ordering::Relaxed);
        if self.replace_blocked(vp, word, heir, State::Rung) {
            self.vps.clear_idle(vp);
            self.notify(heir);
            self.await_call(standby, vp);
            return;
        }
        vp.bequeathed.set(None, Ordering::Relaxed);
        if !vp.heir.replace_if(None, Some(heir)) {
            self.give_back(heir);
        }
        self.rouse_standby(vp);
    }

    /// An activation arrives as owner of `vp`, perhaps as heir.
    pub(super) fn inherit(&'static self, vp: &'static Vp<K>) {
        vp.offered_ns.store(self.kernel.now(), Ordering::Relaxed);
        if let Some(owner) = vp.bequeathed.get(Ordering::Relaxed) {
            vp.bequeathed.set(None, Ordering::Relaxed);
            // In a call it looks by itself when it returns.
            if !owner.in_call.load(Ordering::Relaxed) {
                self.unsettle(vp, owner);
            }
            self.tell_of_absent(vp, owner);
        }
    }

    fn unsettle(&'static self, vp: &'static Vp<K>, owner: &'static Activation<K>) {
        vp.displaced.lock(&self.kernel).push_unsettled(owner);
        vp.has_unsettled.store(true, Ordering::Relaxed);
    }

    pub(super) fn owner_blocked(
        &'static self,
        vp: &'static Vp<K>,
        owner: &'static Activation<K>,
        word: Word<K>,
    ) {
        self.vps.clear_idle(vp);
        // A ready thread runs first; those that come back get their chance afterwards.
        vp.offered_ns.store(self.kernel.now(), Ordering::Relaxed);
        // In `Kernel` it looks by itself when it returns.
        if word.state() != State::Kernel {
            self.unsettle(vp, owner);
        }
        // Last: this may make the adviser ready, which takes a while.
        self.tell_of_absent(vp, owner);
    }

    /// Activations that blocked outside of any announced call must learn, before their threads go on,
    /// that they were replaced. One whose wait an interruption would cut short learns it at its
    /// next step into the runtime or at the end of its slice. Not done at once: the thread that
    /// runs instead comes first.
    pub(super) fn settle(&'static self, vp: &'static Vp<K>) {
        if !vp.has_unsettled.load(Ordering::Relaxed) {
            return;
        }
        let mut list = vp.displaced.lock(&self.kernel);
        while let Some(activation) = list.pop_unsettled() {
            if activation.is_absent() && self.kernel.waiting(activation) == Waiting::Deaf {
                self.kernel.interrupt(activation);
            }
        }
        vp.has_unsettled.store(false, Ordering::Relaxed);
    }
}
