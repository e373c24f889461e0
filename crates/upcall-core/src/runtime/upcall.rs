//! What the runtime does when the kernel has taken a decision (Anderson, Table 2).
//!
//! **Blocked.** The standby runs because the owner does not: it takes the virtual processor over
//! with one compare-and-swap, or gives it to a displaced activation that already has a thread.
//! The owner is *absent* until it comes back.
//!
//! **Unblocked.** An absent activation comes back from the kernel with its thread and finds, at
//! its first step, that it is not the owner. It tries, in this order:
//! 1. the virtual processor is idle, or its owner is in a system call: take it;
//! 2. another virtual processor is idle: give it the thread;
//! 3. the owner runs program code and is therefore stopped right now (both are bound to one
//!    processor): displace it. Its thread stays inside it until it is granted the processor
//!    again, or until it runs: then it replaces an owner that has blocked, or gives the thread to
//!    the ready list;
//! 4. the owner is inside the runtime: put the thread at the front of the ready list and leave;
//!    the owner is about to choose (critical-section recovery: it is continued first).
//!
//! **Preempted.** At the end of a time slice the interrupted activation itself parks its thread;
//! the complete register state waits in the frame that the kernel has put on the thread's stack.
//!
//! An activation that was replaced while its thread ran program code (page fault, displacement)
//! is interrupted by [`Kernel::interrupt`], so that it learns of it before its thread goes on.

use core::sync::atomic::Ordering;

use crate::activation::{Activation, Role};
use crate::kernel::{Kernel, Waiting};
use crate::runtime::{Runtime, Transition};
use crate::thread::Thread;
use crate::vp::{State, Vp, Word};

/// Dispatches in a time slice below which a virtual processor counts as one that only computes.
const SCHEDULING_POINTS: u64 = 64;

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
            if !self.unwatched.is_empty() {
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
                        self.idle.remove(vp.index());
                        if !word.is_owned_by(activation) {
                            self.retire_from(owner, Role::Resting);
                        }
                        return true;
                    }
                }
                State::Kernel => {
                    if self.replace_blocked(vp, word, activation, State::Runtime) {
                        self.idle.remove(vp.index());
                        self.tell_of_absent(vp, owner);
                        // Beside one that was displaced no sentinel runs: it comes first by right.
                        let alone = displace && vp.nr_displaced.load(Ordering::Relaxed) == 0;
                        if self.kernel.sentinel() && alone && vp.has_ready() {
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
                    if !displace || !self.idle.is_empty() {
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
        // A sentinel runs after every activation that returns: the owner may be blocked, unnoticed,
        // and must not be granted the processor before it is back. An ordinary standby notices that
        // such an owner was granted the processor, and takes it over then.
        if self.kernel.sentinel() && self.kernel.is_blocked(owner, false) {
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
        if self.kernel.sentinel() {
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

    /// As [`Runtime::take_over`], by the sentinel of `vp`, which holds no lock meanwhile: what needs
    /// one is the heir's, when it arrives. Afterwards the sentinel sleeps until somebody who calls it
    /// has found the next heir.
    pub(super) fn bequeath(
        &'static self,
        sentinel: &'static Activation<K>,
        vp: &'static Vp<K>,
        word: Word<K>,
    ) {
        // None where it was an ordinary standby a moment ago: once.
        let heir = vp.heir.get(Ordering::Acquire);
        let Some(heir) = heir.or_else(|| self.take_spare(vp)) else {
            return;
        };
        vp.heir.set(None, Ordering::Relaxed);
        // Before the heir can arrive, which may call at once.
        self.retire_standby(vp);
        vp.bequeathed.set(Some(word.owner()), Ordering::Relaxed);
        if self.replace_blocked(vp, word, heir, State::Rung) {
            self.idle.remove(vp.index());
            self.notify(heir);
            self.await_call(sentinel, vp);
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

    fn owner_blocked(
        &'static self,
        vp: &'static Vp<K>,
        owner: &'static Activation<K>,
        word: Word<K>,
    ) {
        self.idle.remove(vp.index());
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

    /// The kernel interrupted the current activation while it was outside the runtime, at the end
    /// of a time slice (`tick`) or because of [`Kernel::interrupt`]. Runs in the interrupted
    /// thread, whose registers are saved in the frame below; returns when the thread may go on,
    /// perhaps on another activation.
    pub fn interrupted(&'static self, tick: bool) {
        self.kernel.set_inside();
        let activation = self.kernel.current();
        if activation.in_call.load(Ordering::Relaxed) {
            // In a system call: it will look when it returns, unless something came for the thread.
            if self.kernel.clear_inside() {
                self.interrupt_blocking();
                self.resume_blocking();
            }
            return;
        }
        let vp = activation.vp();
        let word = vp.word();
        if !word.is_owned_by(activation) {
            self.lost(activation);
            return;
        }
        match word.state() {
            State::User => {
                if !vp.step(activation, State::User, State::Runtime) {
                    self.lost(activation);
                    return;
                }
                let activation = if tick {
                    // Not on the thread's stack, which may be small and holds the kernel's frame.
                    self.park(activation, Self::slice_ended, 0)
                } else if self.gives_way(vp, activation.thread()) {
                    self.stats.preempted.add();
                    self.park_to_choose(activation)
                } else {
                    activation
                };
                self.leave(activation);
            }
            State::Granted => self.lost(activation),
            State::Kernel | State::Runtime | State::Idle | State::Rung => {
                self.kernel.broken("interrupted outside of any thread")
            }
        }
    }

    /// The interrupted activation was replaced, and perhaps granted the processor since.
    fn lost(&'static self, activation: &'static Activation<K>) {
        let activation = self.regain(activation);
        self.leave(activation);
    }

    /// The time slice of a parked thread is over: it runs on if no other should.
    fn slice_ended(
        &'static self,
        activation: &'static Activation<K>,
        thread: &'static Thread<K>,
        _: usize,
    ) -> Option<&'static Thread<K>> {
        self.kernel.tick(self, activation, thread);
        let vp = activation.vp();
        self.settle(vp);
        let dispatches = vp.dispatches.load(Ordering::Relaxed);
        let last = vp.dispatches_at_tick.swap(dispatches, Ordering::Relaxed);
        // Few dispatches in a whole slice: threads that only compute.
        let computes = dispatches.wrapping_sub(last) < SCHEDULING_POINTS;
        vp.only_computes.store(computes, Ordering::Relaxed);
        if computes && self.seat_is_wanted() && !self.call_spare(vp) {
            // Nobody else looks while this thread computes.
            self.look_at_poller(activation, vp);
        }
        self.fetch_stranded(vp);
        // With a policy of the program's it is that which says whether the thread runs on.
        let advised = self.advises_on_slice(thread);
        if !advised && !self.gives_way(vp, Some(thread)) {
            return Some(thread);
        }
        if vp.has_ready() {
            self.call_standby(vp);
            if !self.idle.is_empty() {
                self.ring(vp.index());
            }
        }
        self.stats.preempted.add();
        // Where threads come and go, all take turns.
        vp.ready.age(&self.kernel, !computes);
        self.tell(vp, thread, Transition::Preempted);
        if self.takes_turns() {
            vp.ready.push_spent(&self.kernel, thread);
            self.has_ready.insert(vp.index());
        } else {
            // It was stopped for another program, or for a more urgent thread, and has not had its turn.
            self.push_front(vp, thread);
        }
        None
    }

    /// A thread that is ready where no processor is, since another address space has it, is nobody's next:
    /// while all others compute, none of them looks for more. So who has a processor does now and then.
    fn fetch_stranded(&'static self, vp: &'static Vp<K>) {
        let vps = self.vps();
        let stranded = self.has_ready.find(vp.index(), vps.len(), |index| {
            let other = &vps[index as usize];
            (other.has_ready() && !self.kernel.may_run(other)).then_some(other)
        });
        if let Some(other) = stranded
            && self.kernel.may_run(vp)
            && let Some(thread) = other.ready.steal(&self.kernel)
        {
            self.stats.stolen.add();
            self.push_back(vp, thread);
        }
    }

    /// Threads were added to the ready list of a virtual processor that the caller does not own: an
    /// idle processor takes them, or the owner chooses again as soon as it can. The caller runs on the
    /// processor of `vp`, or its owner would not be seen to leave the runtime in time: see
    /// [`Runtime::choose_again_from_afar`].
    pub(crate) fn choose_again(&'static self, vp: &'static Vp<K>) {
        self.make_choose(vp, false);
    }

    /// As [`Runtime::choose_again`], from another processor. An owner leaves the runtime by a store and
    /// a look for notes, with no barrier in between: from here it may still seem to be inside when it
    /// has looked. So it is interrupted, which it is after the one or before the other.
    pub(crate) fn choose_again_from_afar(&'static self, vp: &'static Vp<K>) {
        self.make_choose(vp, true);
    }

    fn make_choose(&'static self, vp: &'static Vp<K>, afar: bool) {
        if !self.announce_ready(vp) {
            self.ask_owner(vp, afar);
        }
    }

    pub(super) fn ask_owner(&'static self, vp: &'static Vp<K>, afar: bool) {
        loop {
            let owner = vp.word().owner();
            owner.attend(Activation::<K>::RESCHEDULE);
            let word = vp.word();
            if !word.is_owned_by(owner) {
                continue;
            }
            match word.state() {
                // It left the runtime in between and may not have seen the note.
                State::User => self.kernel.interrupt(owner),
                State::Runtime if afar => self.kernel.interrupt(owner),
                // It became idle without having seen the threads.
                State::Idle if !self.grant_idle(vp, word) => continue,
                // It is going to choose, or its standby sees that it is blocked.
                State::Idle | State::Kernel | State::Runtime | State::Granted | State::Rung => {}
            }
            return;
        }
    }

    /// The owner of a virtual processor looks again, as soon as it can, what should run on it, and
    /// whether it may ([`Kernel::may_run`]).
    pub fn recall(&'static self, vp: &'static Vp<K>) {
        let owner = vp.word().owner();
        owner.attend(Activation::<K>::RESCHEDULE);
        let word = vp.word();
        if matches!(word.state(), State::User | State::Runtime) && word.is_owned_by(owner) {
            // It left the runtime in between and may not have seen the note; see
            // `choose_again_from_afar`.
            self.kernel.interrupt(owner);
        }
    }
}
