//! Upcalls: the processor of a virtual processor was preempted, or added (Anderson, Table 2).
//!
//! The backend says which virtual processors have theirs ([`Share::may_run`](crate::kernel::Share::may_run)). A program that
//! loses some goes on with the others:
//!
//! 1. The backend changes what it says. Then it calls [`Runtime::recall`], once for each virtual processor that loses its processor.
//! 2. An owner that runs a thread parks it, as soon as it is outside of the runtime. An idle owner is rung. One in a system
//!    call does so when it returns, or its successor does: all of them meet [`Inside::pause`].
//! 3. There the owner *gives away* its ready list, in its order, to the virtual processor that has fewest of those with a
//!    processor. Then it sleeps as an idle owner that nobody rings, until its processor is back. If there is no other, the list stays.
//! 4. When processors are back, the backend wakes their owners, and calls [`Runtime::added`]. That wakes one which sits in the poller,
//!    or is on its way there and has seen that its processor is another's. Who kept its list, since there was no other processor,
//!    gives it away now. Threads come to an owner whose processor is back as to any that was idle.
//!
//! A caller that puts a thread on a virtual processor which is not its own looks afterwards if that still has its processor
//! (`look_after`). An owner that pauses is idle first, and then looks for threads that came meanwhile. One of the
//! two sees the other.
//!
//! Bound threads and what the program runs beside its activations are no part of this.

use core::sync::atomic::Ordering;

use crate::event::What;
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::state::activation::Activation;
use crate::state::inside::Inside;
use crate::state::ready::By;
use crate::state::vp::{State, Vp};

impl<K: Kernel> Runtime<K> {
    /// The owner of a virtual processor looks again, as soon as it can, what should run on it, and
    /// whether it may ([`Share::may_run`](crate::kernel::Share::may_run)). To be called when its processor was taken, by an
    /// activation or another kernel thread, after `may_run` says so.
    pub fn recall(&'static self, vp: &'static Vp<K>) {
        let owner = vp.word().owner();
        owner.attend(Activation::<K>::RESCHEDULE);
        // SeqCst: an owner that falls idle afterwards sees that its processor was taken.
        let word = vp.word();
        match word.state() {
            // It left the runtime in between and may not have seen the note; see `choose_again`.
            State::User | State::Runtime if word.is_owned_by(owner) => self.kernel.interrupt(owner),
            // Nobody may ring it. One that pauses already is not in the set.
            State::Idle if self.vps.clear_idle(vp) => {
                self.grant_idle(vp, word);
            }
            State::Kernel => {
                self.vps.clear_idle(vp);
            }
            State::User | State::Runtime | State::Idle | State::Granted | State::Rung => {}
        }
    }

    /// These virtual processors have their processors back, by what [`Share::may_run`](crate::kernel::Share::may_run) says: one of
    /// them may not have stopped at all meanwhile. May be called whenever the caller is inside the runtime.
    pub fn added(&'static self, back: impl Iterator<Item = &'static Vp<K>>) {
        for vp in back {
            let (word, caller) = (vp.word(), self.kernel.current());
            let owner = word.owner();
            // The caller looks by itself. In a poll it would be woken by each of its own decisions.
            if word.state() != State::Idle || core::ptr::eq(owner, caller) {
                continue;
            }
            // SeqCst: who is about to poll takes the seat first, and looks at its word afterwards.
            owner.wake.fetch_add(1, Ordering::SeqCst);
            if self.seat.is_held_by(owner) {
                self.kernel.wake(owner);
            }
        }
        let Some(first) = self.vps().first() else {
            return;
        };
        self.vps.find_ready(first, |vp| {
            self.look_after(vp);
            None::<()>
        });
    }

    /// A virtual processor that has its processor, at some moment: this one, or else the one with fewest ready threads; this one,
    /// if there is none.
    #[inline]
    pub(super) fn with_processor(&'static self, vp: &'static Vp<K>) -> &'static Vp<K> {
        if self.kernel.may_run(vp) {
            return vp;
        }
        self.another_with_processor(vp).unwrap_or(vp)
    }

    /// Of the other virtual processors that have their processors, the first of those with fewest ready threads.
    #[cold]
    fn another_with_processor(&'static self, vp: &'static Vp<K>) -> Option<&'static Vp<K>> {
        let others = self.vps().iter().filter(|&other| !core::ptr::eq(other, vp));
        let with = others.filter(|other| self.kernel.may_run(other));
        with.min_by_key(|other| other.ready.len())
    }

    /// The ready threads of `from`, which has no processor, go to a virtual processor that has one, in the order in which they would have
    /// run. Those whose time slice had ended count as due: nobody served their list. Returns true if there was one.
    #[cold]
    pub(super) fn give_away(&'static self, from: &'static Vp<K>) -> bool {
        let Some(to) = self.another_with_processor(from) else {
            return false;
        };
        while let Some(thread) = from.ready.pop(&self.kernel, By::Others) {
            self.stats.stolen.add();
            if thread.is_in_section() {
                self.put_first(to, thread, true);
                continue;
            }
            self.push_back(to, By::Others, thread);
            self.announce(to, thread);
        }
        self.forget_empty(from);
        self.look_after(to);
        true
    }

    /// A thread was put on `vp`, which is not the caller's own: if its processor was taken meanwhile, and its owner has given
    /// its list away already, the owner does so again.
    #[inline]
    pub(super) fn look_after(&'static self, vp: &'static Vp<K>) {
        // SeqCst: the thread was made visible before.
        if !self.kernel.may_run(vp) {
            self.call_back(vp);
        }
    }

    #[cold]
    fn call_back(&'static self, vp: &'static Vp<K>) {
        let word = vp.word();
        if word.state() == State::Idle
            && vp.has_ready()
            && self.another_with_processor(vp).is_some()
        {
            self.grant_idle(vp, word);
        }
    }
}

impl<K: Kernel> Inside<K> {
    /// The processor is another address space's now: gives the ready threads away, and sleeps until the processor is ours again.
    /// What comes back from the kernel may take the virtual processor meanwhile.
    /// Returns whether the activation still owns it, in state `Runtime`.
    #[cold]
    pub(super) fn pause(&self, vp: &'static Vp<K>) -> bool {
        let runtime = self.runtime();
        runtime.stats.taken.add();
        runtime.trace(What::Taken, vp, None);
        while !runtime.kernel.may_run(vp) {
            runtime.give_away(vp);
            // Not only its own: it may have been rung for another's.
            if runtime.work_waits(vp) {
                runtime.announce_ready(vp);
            }
            if !self.await_processor(vp) {
                return false;
            }
        }
        runtime.trace(What::Added, vp, None);
        true
    }

    /// Sleeps as idle owner whom nobody rings, until the processor is back or a thread was put here that others can run. Returns
    /// whether the activation still owns the virtual processor, in state `Runtime`.
    pub(super) fn await_processor(&self, vp: &'static Vp<K>) -> bool {
        let runtime = self.runtime();
        runtime.vps.clear_idle(vp);
        self.fall_idle(vp);
        loop {
            let seen = self.wake.load(Ordering::SeqCst);
            let word = vp.word();
            if !word.is_owned_by(self.activation()) || word.state() != State::Idle {
                break;
            }
            if runtime.kernel.may_run(vp) {
                break;
            }
            if vp.has_ready() && runtime.another_with_processor(vp).is_some() {
                break;
            }
            self.look_at_deferred();
            // A spare's place; where there is none, its own, or nobody would see that an event makes a
            // thread ready for which a processor is wanted.
            let seatless = runtime.seat_is_wanted() && !runtime.call_spare(vp);
            self.rest_as_owner(vp, || {
                if !seatless || !self.sit(seen) {
                    runtime.kernel.await_turn(self.activation(), seen);
                }
            });
        }
        self.reclaim_and_look(vp)
    }
}
