//! Upcall: an activation has unblocked (Anderson, Table 2).
//!
//! An absent activation comes back from the kernel with its thread and finds, at its first step, that
//! it is not the owner. It tries, in this order:
//! 1. the virtual processor is idle, or its owner is in a system call: take it; but if that is a wait of an event loop, and
//!    another virtual processor is idle, as in 2;
//! 2. another virtual processor is idle: give it the thread;
//! 3. the owner runs program code and is therefore stopped right now (both are bound to one
//!    processor): displace it. Its thread stays inside it until it is granted the processor
//!    again, or until it runs: then it replaces an owner that has blocked, or gives the thread to
//!    the ready list;
//! 4. the owner is inside the runtime: put the thread at the front of the ready list and leave;
//!    the owner is about to choose (critical-section recovery: it is continued first).

use core::sync::atomic::Ordering;

use crate::event::What;
use crate::kernel::Kernel;
use crate::runtime::{Runtime, Transition};
use crate::state::activation::{Activation, Activity};
use crate::state::inside::{Entered, Inside};
use crate::state::vp::{State, Vp, Word};

/// What who wants a virtual processor does about an owner that runs program code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rival {
    /// It is displaced, unless another virtual processor is idle.
    IsDisplaced,
    /// The kernel is asked: it is replaced if it is blocked there.
    IsAsked,
    /// It goes on. Its standby looks whether it is blocked.
    GoesOn,
}

impl<K: Kernel> Entered<K> {
    /// The current thread runs on an activation that may not own its virtual processor any more:
    /// gets one. Afterwards the activation that carries the thread is the owner, in state `Runtime`.
    #[cold]
    pub(super) fn regain(self) -> Self {
        let runtime = self.runtime();
        let vp = self.vp();
        let (owns, displaced) = self.come_back(vp);
        if owns {
            // The standby may have gone to sleep, or left, while the virtual processor was offered or idle, and
            // nobody who made a thread ready meanwhile called it: an idle owner would look for itself.
            if runtime.vps.any_unwatched() {
                runtime.look_around(vp);
            }
            if !runtime.kernel.may_run(vp) {
                // Its processor was taken meanwhile: the thread stops as soon as it leaves the runtime.
                self.attend(Activation::<K>::RESCHEDULE);
            }
            if runtime.is_ranked() {
                self.activation().publish_rank();
            } else if !self.is_in_section() && vp.ready.begins_with_section(&runtime.kernel) {
                // Its request to choose again was for the owner before.
                self.attend(Activation::<K>::RESCHEDULE);
            }
            self.trace_own(What::Resumes);
            return self;
        }
        // To have the owner choose again is to displace it: not for one that it has displaced itself, nor
        // for one that it has chosen meanwhile. One in a critical section has it choose again all the same.
        self.park(
            |inside, thread, displaced| {
                let runtime = inside.runtime();
                let vp = inside.vp();
                if displaced != 0 {
                    runtime.trace(What::Preempted, vp, Some(thread));
                }
                if runtime.is_ranked() {
                    runtime.put_back(vp, thread);
                    runtime.look_after(vp);
                    return None;
                }
                if thread.is_in_section() {
                    runtime.put_first(vp, thread, false);
                    runtime.look_after(vp);
                    return None;
                }
                runtime.push_returned(vp, thread);
                // An owner in its own code looks when it enters the runtime next. One that was stopped inside may have
                // looked already.
                let waits_for_turn =
                    vp.woken_wait.load(Ordering::Relaxed) && vp.word().state() == State::User;
                if !runtime.announce_ready(vp)
                    && displaced == 0
                    && !waits_for_turn
                    && vp.ready.awaits_owner(&runtime.kernel, thread)
                {
                    runtime.ask_owner(vp, false);
                }
                runtime.look_after(vp);
                None
            },
            usize::from(displaced),
        )
    }
}

impl<K: Kernel> Inside<K> {
    /// The activation runs again, and knows how it was replaced. Returns whether it owns `vp` now, in state
    /// `Runtime`, and whether it was displaced before. There are three cases:
    /// 1. It is in the displaced list: it was displaced.
    /// 2. It was granted the processor: it was displaced, and nobody has replaced it since.
    /// 3. Otherwise it was replaced as blocked, once, and is absent until here.
    ///
    /// After that nobody but itself makes it the owner.
    pub(super) fn come_back(&self, vp: &'static Vp<K>) -> (bool, bool) {
        let runtime = self.runtime();
        // Out of the list before anything else: an activation in it may be granted the processor, and
        // its link is the spare pool's.
        let mut list = vp.displaced.lock(&runtime.kernel);
        let displaced = list.remove(self.activation());
        if displaced {
            vp.nr_displaced.fetch_sub(1, Ordering::Relaxed);
        }
        // Not by store: the standby may see that it was granted while blocked.
        let granted = !displaced && vp.step(self.activation(), State::Granted, State::Runtime);
        let is_back = !displaced && !granted;
        if is_back {
            // An heir that has not arrived is still the owner, and need not unsettle it.
            let bequest = &vp.word().owner().bequest;
            if bequest.holds(self.activation(), Ordering::Relaxed) {
                bequest.replace_if(Some(self.activation()), None);
            }
        }
        drop(list);
        if is_back {
            self.end_absence();
            self.tell_of_current(Transition::Unblocked);
        }
        // The virtual processor may have moved meanwhile.
        runtime.kernel.bind(self.activation());
        if granted {
            return (true, false);
        }
        // One that was displaced does not displace in its turn: the two would go on for ever. But among
        // other programs, who parks its thread here waits for its owner's share as well. Where woken threads wait
        // for each other, nobody displaces who is in no critical section.
        let waits = vp.woken_wait.load(Ordering::Relaxed) && !self.is_in_section();
        let owns = self.acquire(
            vp,
            match displaced {
                true if waits || !runtime.kernel.crowded() => Rival::IsAsked,
                false if waits => Rival::GoesOn,
                _ => Rival::IsDisplaced,
            },
        );
        (owns, displaced)
    }

    /// Takes back the mark that its replacement has left on an absent activation.
    fn end_absence(&self) {
        let runtime = self.runtime();
        self.marks.fetch_sub(1, Ordering::AcqRel);
        runtime.stats.absent.down();
        runtime.stats.returned.add();
    }

    /// Tries to make the activation the owner of `vp`, in state `Runtime`. `rival`: what happens to an owner that runs
    /// program code.
    pub(super) fn acquire(&self, vp: &'static Vp<K>, rival: Rival) -> bool {
        let runtime = self.runtime();
        loop {
            let word = vp.word();
            let owner = word.owner();
            match word.state() {
                State::Granted | State::Runtime => return false,
                State::Rung if !word.is_owned_by(self.activation()) => return false,
                // Its own, where it rested as idle owner, rung or not.
                State::Rung | State::Idle => {
                    vp.only_computes.store(false, Ordering::Relaxed);
                    if vp.replace(word, self.activation(), State::Runtime) {
                        runtime.vps.clear_idle(vp);
                        runtime.ends_rest(vp);
                        if !word.is_owned_by(self.activation()) {
                            owner.retire_from(Activity::Resting);
                        }
                        return true;
                    }
                }
                State::Kernel => {
                    // Two threads that wait for events in turn would go on here, and the other processor would stay idle.
                    if runtime.kernel.waits_for_events(owner) && runtime.vps.another_rests(vp) {
                        return false;
                    }
                    if runtime.replace_blocked(vp, word, self.activation(), State::Runtime) {
                        runtime.vps.clear_idle(vp);
                        owner.tell_of_absent(vp);
                        // Beside one that was displaced no standby with an heir runs: the displaced one comes first by right.
                        let alone = rival == Rival::IsDisplaced
                            && vp.nr_displaced.load(Ordering::Relaxed) == 0;
                        if runtime.kernel.needs_heirs() && alone && vp.has_ready() {
                            runtime.kernel.overdue();
                        }
                        return true;
                    }
                }
                State::User => {
                    // In a critical section it is blocked, or goes on to the end of that.
                    let is_asked = match rival {
                        Rival::GoesOn => return false,
                        Rival::IsAsked => true,
                        Rival::IsDisplaced => owner.is_in_section(),
                    };
                    if is_asked {
                        if !runtime.kernel.is_blocked(owner, false) {
                            return false;
                        }
                        let Some(word) = vp.unbias(&runtime.kernel, word) else {
                            return false;
                        };
                        if runtime.replace_unsettled(vp, word, self.activation(), State::Runtime) {
                            runtime.owner_blocked(vp, owner);
                            return true;
                        }
                        continue;
                    }
                    if runtime.vps.another_is_idle(vp) {
                        return false;
                    }
                    if runtime.is_ranked() && self.is_less_urgent(owner) {
                        return false;
                    }
                    // If not, it is as one inside the runtime.
                    let Some(word) = vp.unbias(&runtime.kernel, word) else {
                        return false;
                    };
                    if self.displace(vp, word) {
                        return true;
                    }
                }
            }
        }
    }

    fn displace(&self, vp: &'static Vp<K>, word: Word<K>) -> bool {
        let runtime = self.runtime();
        let owner = word.owner();
        // A standby that only watches runs after every activation that returns: the owner may be blocked,
        // unnoticed, and must not be granted the processor before it is back. Another standby notices that
        // such an owner was granted the processor, and takes it over then.
        if runtime.kernel.needs_heirs() && runtime.kernel.is_blocked(owner, false) {
            let replaced = runtime.replace_unsettled(vp, word, self.activation(), State::Runtime);
            if replaced {
                runtime.owner_blocked(vp, owner);
            }
            return replaced;
        }
        let mut displaced = vp.displaced.lock(&runtime.kernel);
        if !vp.replace(word, self.activation(), State::Runtime) {
            return false;
        }
        displaced.push(owner);
        vp.nr_displaced.fetch_add(1, Ordering::Relaxed);
        // With the list locked: the owner takes itself out first when it runs again.
        runtime.trace(What::Displaced, vp, owner.thread());
        drop(displaced);
        runtime.stats.displaced.add();
        runtime.kernel.interrupt(owner);
        // One less is absent, and nobody retires in its place, who would look.
        runtime.end_surplus();
        true
    }
}

impl<K: Kernel> Runtime<K> {
    /// Grants the virtual processor, which the caller owns, to an activation that was displaced
    /// from it, if there is one: the downcall `resume`.
    pub(super) fn grant_displaced(&'static self, vp: &'static Vp<K>) -> bool {
        if vp.nr_displaced.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // It may be blocked on a page fault by now.
        self.look_around(vp);
        let comes_first = match self.is_ranked() {
            true => self.may_be_granted(vp),
            false => !vp.ready.begins_with_section(&self.kernel),
        };
        if !comes_first {
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
}
