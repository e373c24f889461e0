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
use crate::state::inside::Inside;
use crate::state::vp::{Displaced, State, Vp, Word};

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

    /// As [`Runtime::replace_blocked`], where the owner has perhaps announced no call: then it is unsettled. It is
    /// before it can run again, since that begins with the list's lock.
    pub(super) fn replace_unsettled(
        &'static self,
        vp: &'static Vp<K>,
        word: Word<K>,
        next: &'static Activation<K>,
        state: State,
    ) -> bool {
        if word.state() == State::Kernel {
            return self.replace_blocked(vp, word, next, state);
        }
        let mut list = vp.displaced.lock(&self.kernel);
        let replaced = self.replace_blocked(vp, word, next, state);
        if replaced {
            self.unsettle(vp, &mut list, word.owner());
        }
        replaced
    }

    /// An activation arrives as owner of `vp`, perhaps as heir.
    pub(super) fn inherit(&'static self, heir: &'static Activation<K>, vp: &'static Vp<K>) {
        vp.offer_soon(self.kernel.now());
        if let Some(owner) = heir.bequest.get(Ordering::Relaxed) {
            if owner.is_in_call() {
                // It looks by itself when it returns.
                heir.bequest.set(None, Ordering::Relaxed);
            } else {
                let mut list = vp.displaced.lock(&self.kernel);
                // Not if it is back by now.
                if heir.bequest.replace_if(Some(owner), None) {
                    self.unsettle(vp, &mut list, owner);
                }
            }
            owner.tell_of_absent(vp);
        }
    }

    fn unsettle(&self, vp: &'static Vp<K>, list: &mut Displaced<K>, owner: &'static Activation<K>) {
        list.push_unsettled(owner);
        vp.has_unsettled.store(true, Ordering::Relaxed);
    }

    pub(super) fn owner_blocked(&'static self, vp: &'static Vp<K>, owner: &'static Activation<K>) {
        self.vps.clear_idle(vp);
        vp.offer_soon(self.kernel.now());
        // Last: this may make the adviser ready, which takes a while.
        owner.tell_of_absent(vp);
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
            if self.kernel.waiting(activation) == Waiting::Deaf {
                self.kernel.interrupt(activation);
            }
        }
        vp.has_unsettled.store(false, Ordering::Relaxed);
    }
}

impl<K: Kernel> Inside<K> {
    /// The standby has seen that the owner in `word` is blocked: the upcall. Nothing happens if
    /// the word has changed meanwhile.
    pub(super) fn take_over(&self, vp: &'static Vp<K>, word: Word<K>) {
        let runtime = self.runtime();
        let owner = word.owner();
        let Some(word) = vp.unbias(&runtime.kernel, word) else {
            return;
        };
        if vp.nr_displaced.load(Ordering::Relaxed) != 0 {
            let mut displaced = vp.displaced.lock(&runtime.kernel);
            let Some(next) = displaced.pop() else { return };
            if runtime.replace_blocked(vp, word, next, State::Granted) {
                vp.nr_displaced.fetch_sub(1, Ordering::Relaxed);
                // In `Kernel` it looks by itself when it returns.
                if word.state() != State::Kernel {
                    runtime.unsettle(vp, &mut displaced, owner);
                }
                drop(displaced);
                runtime.owner_blocked(vp, owner);
                if runtime.is_ranked() {
                    next.publish_rank();
                }
            } else {
                displaced.push(next);
            }
            return;
        }
        if runtime.kernel.needs_heirs() {
            let Some(next) = self.take_spare_for(vp) else {
                return;
            };
            if runtime.replace_unsettled(vp, word, next, State::Rung) {
                runtime.owner_blocked(vp, owner);
                next.notify();
            } else {
                next.give_back();
            }
            return;
        }
        // Still the standby if it does not succeed: an owner that is about to go into its next call
        // may rely on it. The next one is called when there is something for it to guard.
        if runtime.replace_unsettled(vp, word, self.activation(), State::Runtime) {
            self.quit_standby(vp);
            runtime.owner_blocked(vp, owner);
        }
    }

    /// As [`Inside::take_over`], by a standby of `vp` that has an heir. It holds no lock meanwhile: what needs
    /// one is the heir's, when it arrives. Afterwards the standby sleeps until somebody who calls it
    /// has found the next heir.
    pub(super) fn bequeath(&self, vp: &'static Vp<K>, word: Word<K>) {
        let runtime = self.runtime();
        let Some(word) = vp.unbias(&runtime.kernel, word) else {
            return;
        };
        // None where the standby needed no heir a moment ago, or was called by one that saw the heir which it has just used up.
        let heir = vp.heir.get(Ordering::Acquire);
        let Some(heir) = heir.or_else(|| self.take_spare_for(vp)) else {
            return;
        };
        vp.heir.set(None, Ordering::Relaxed);
        // Before the heir can arrive, which may call at once.
        runtime.retire_standby(vp);
        heir.bequest.set(Some(word.owner()), Ordering::Relaxed);
        if runtime.replace_blocked(vp, word, heir, State::Rung) {
            runtime.vps.clear_idle(vp);
            heir.notify();
            self.await_call(vp);
            return;
        }
        heir.bequest.set(None, Ordering::Relaxed);
        if !vp.heir.replace_if(None, Some(heir)) {
            heir.give_back();
        }
        runtime.rouse_standby(vp);
    }
}
