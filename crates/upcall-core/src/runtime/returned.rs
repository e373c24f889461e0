//! Upcall: an activation has unblocked (Anderson, Table 2).
//!
//! An absent activation comes back from the kernel with its thread and finds, at its first step, that
//! it is not the owner. It tries, in this order:
//! 1. the virtual processor is idle, or its owner is in a system call: take it;
//! 2. another virtual processor is idle: give it the thread;
//! 3. the owner runs program code and is therefore stopped right now (both are bound to one
//!    processor): displace it. Its thread stays inside it until it is granted the processor
//!    again, or until it runs: then it replaces an owner that has blocked, or gives the thread to
//!    the ready list;
//! 4. the owner is inside the runtime: put the thread at the front of the ready list and leave;
//!    the owner is about to choose (critical-section recovery: it is continued first).

use core::sync::atomic::Ordering;

use crate::kernel::Kernel;
use crate::runtime::{Runtime, Transition};
use crate::state::activation::{Activation, Role};
use crate::state::vp::{State, Vp, Word};

impl<K: Kernel> Runtime<K> {
    /// The current thread runs on an activation that may not own its virtual processor any more:
    /// gets one. Inside the runtime's mark. Returns the activation that carries the thread then,
    /// which is the owner, in state `Runtime`.
    #[cold]
    pub(super) fn regain(
        &'static self,
        activation: &'static Activation<K>,
    ) -> &'static Activation<K> {
        let vp = activation.vp();
        let (owns, displaced) = self.come_back(activation, vp);
        if owns {
            // The standby may have gone to sleep, or left, while the virtual processor was offered or idle, and
            // nobody who made a thread ready meanwhile called it: an idle owner would look for itself.
            if self.vps.any_unwatched() {
                self.look_around(vp);
            }
            if !self.kernel.may_run(vp) {
                // Its processor was taken meanwhile: the thread stops as soon as it leaves the runtime.
                activation.attend(Activation::<K>::RESCHEDULE);
            }
            if self.is_ranked() {
                self.publish_rank(activation);
            }
            return activation;
        }
        // To have the owner choose again is to displace it: not for one that it has displaced itself, nor
        // for one that it has chosen meanwhile.
        self.park(
            activation,
            |runtime, activation, thread, displaced| {
                let vp = activation.vp();
                if runtime.is_ranked() {
                    runtime.put_back(vp, thread);
                    return None;
                }
                runtime.push_front(vp, thread);
                if !runtime.announce_ready(vp)
                    && displaced == 0
                    && vp.ready.is_first(&runtime.kernel, thread)
                {
                    runtime.ask_owner(vp, false);
                }
                None
            },
            usize::from(displaced),
        )
    }

    /// The activation runs again, and knows how it was replaced. Returns whether it owns `vp` now, in state
    /// `Runtime`, and whether it was displaced before. There are three cases:
    /// 1. It is in the displaced list: it was displaced.
    /// 2. It was granted the processor: it was displaced, and nobody has replaced it since.
    /// 3. Otherwise it was replaced as blocked, once, and is absent until here.
    ///
    /// After that nobody but itself makes it the owner.
    pub(super) fn come_back(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
    ) -> (bool, bool) {
        // Out of the list before anything else: whoever is in it may be granted the processor, and
        // its link is the spare pool's.
        let displaced = self.leave_displaced(activation, vp);
        // Not by store: the standby may see that it was granted while blocked.
        let granted = !displaced && vp.step(activation, State::Granted, State::Runtime);
        if !displaced && !granted {
            self.end_absence(activation);
            self.tell_of_current(activation, Transition::Unblocked);
        }
        // The virtual processor may have moved meanwhile.
        self.kernel.bind(activation);
        if granted {
            return (true, false);
        }
        // One that was displaced does not displace in its turn: the two would go on for ever. But among
        // other programs, who parks its thread here waits for its owner's share as well.
        let owns = self.acquire(activation, vp, !displaced || self.kernel.crowded());
        (owns, displaced)
    }

    /// Takes back the mark that its replacement has left on an absent activation.
    fn end_absence(&self, activation: &'static Activation<K>) {
        activation.marks.fetch_sub(1, Ordering::AcqRel);
        self.stats.absent.down();
        self.stats.unblocked.add();
    }

    /// Tries to make `activation` the owner of `vp`, in state `Runtime`. With `displace`, also
    /// takes it from an owner that runs program code, unless another virtual processor is idle.
    pub(super) fn acquire(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
        displace: bool,
    ) -> bool {
        loop {
            let word = vp.word();
            let owner = word.owner();
            match word.state() {
                // It rested as idle owner, and somebody has rung.
                State::Rung if word.is_owned_by(activation) => {
                    vp.set(activation, State::Runtime);
                    return true;
                }
                State::Granted | State::Rung | State::Runtime => return false,
                State::Idle => {
                    vp.only_computes.store(false, Ordering::Relaxed);
                    if vp.replace(word, activation, State::Runtime) {
                        self.vps.clear_idle(vp);
                        if !word.is_owned_by(activation) {
                            self.retire_from(owner, Role::Resting);
                        }
                        return true;
                    }
                }
                State::Kernel => {
                    if self.replace_blocked(vp, word, activation, State::Runtime) {
                        self.vps.clear_idle(vp);
                        self.tell_of_absent(vp, owner);
                        // Beside one that was displaced no standby with an heir runs: the displaced one comes first by right.
                        let alone = displace && vp.nr_displaced.load(Ordering::Relaxed) == 0;
                        if self.kernel.needs_heirs() && alone && vp.has_ready() {
                            self.kernel.overdue();
                        }
                        return true;
                    }
                }
                State::User => {
                    // Displaced by the owner, it runs again perhaps because that one has blocked.
                    if !displace && self.kernel.is_blocked(owner, false) {
                        if self.replace_blocked(vp, word, activation, State::Runtime) {
                            self.owner_blocked(vp, owner, word);
                            return true;
                        }
                        continue;
                    }
                    if !displace || self.vps.any_idle() {
                        return false;
                    }
                    if self.is_ranked() && self.is_less_urgent(activation, owner) {
                        return false;
                    }
                    if self.displace(activation, vp, word) {
                        return true;
                    }
                }
            }
        }
    }

    fn displace(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
        word: Word<K>,
    ) -> bool {
        let owner = word.owner();
        // A standby that only watches runs after every activation that returns: the owner may be blocked,
        // unnoticed, and must not be granted the processor before it is back. Another standby notices that
        // such an owner was granted the processor, and takes it over then.
        if self.kernel.needs_heirs() && self.kernel.is_blocked(owner, false) {
            let replaced = self.replace_blocked(vp, word, activation, State::Runtime);
            if replaced {
                self.owner_blocked(vp, owner, word);
            }
            return replaced;
        }
        let mut displaced = vp.displaced.lock(&self.kernel);
        if !vp.replace(word, activation, State::Runtime) {
            return false;
        }
        displaced.push(owner);
        vp.nr_displaced.fetch_add(1, Ordering::Relaxed);
        drop(displaced);
        self.stats.displaced.add();
        self.kernel.interrupt(owner);
        // One less is absent, and nobody retires in its place, who would look.
        self.end_surplus();
        true
    }

    /// Grants the virtual processor, which the caller owns, to an activation that was displaced
    /// from it, if there is one: the downcall `resume`.
    pub(super) fn grant_displaced(&'static self, vp: &'static Vp<K>) -> bool {
        if vp.nr_displaced.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // It may be blocked on a page fault by now.
        self.look_around(vp);
        if self.is_ranked() && !self.may_be_granted(vp) {
            return false;
        }
        let mut displaced = vp.displaced.lock(&self.kernel);
        let Some(activation) = displaced.pop() else {
            return false;
        };
        vp.nr_displaced.fetch_sub(1, Ordering::Relaxed);
        // If it was given another rank while it was stopped, it sees so when it regains the processor.
        vp.set(activation, State::Granted);
        true
    }

    /// Says whether the activation was displaced and not yet granted the processor again.
    fn leave_displaced(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
    ) -> bool {
        let mut displaced = vp.displaced.lock(&self.kernel);
        let was = displaced.remove(activation);
        if was {
            vp.nr_displaced.fetch_sub(1, Ordering::Relaxed);
        }
        was
    }
}
