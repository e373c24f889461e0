//! Upcall: an activation was preempted (Anderson, Table 2), and the downcall that asks for it.
//!
//! At the end of a time slice the interrupted activation itself parks its thread; the complete
//! register state waits in the frame that the kernel has put on the thread's stack.

use core::ptr;
use core::sync::atomic::Ordering;

use crate::kernel::Kernel;
use crate::runtime::{Runtime, Transition};
use crate::state::activation::Activation;
use crate::state::inside::Inside;
use crate::state::ready::{By, MOST_NS};
use crate::state::thread::Thread;
use crate::state::vp::{Mix, State, Vp};

/// Dispatches in a time slice below which a virtual processor counts as one that only computes.
const SCHEDULING_POINTS: u64 = 64;

impl<K: Kernel> Runtime<K> {
    /// The kernel interrupted the current activation while it was outside the runtime, at the end
    /// of a time slice (`tick`) or because of [`Vessels::interrupt`](crate::kernel::Vessels::interrupt). Runs in the interrupted
    /// thread, whose registers are saved in the frame below; returns when the thread may go on,
    /// perhaps on another activation.
    pub fn interrupted(&'static self, tick: bool) {
        let inside = self.mark_inside();
        if inside.is_in_call() {
            // In a system call: it will look when it returns, unless something came for the thread.
            if self.kernel.clear_inside() {
                self.interrupt_blocking();
                self.resume_blocking();
            }
            return;
        }
        let word = inside.vp().word();
        let is_in_code = matches!(word.state(), State::User | State::Granted);
        if word.is_owned_by(inside.activation()) && !is_in_code {
            self.kernel.broken("interrupted outside of any thread");
        }
        let inside = if !inside.vp().enter(inside.activation()) {
            // It was replaced, and perhaps granted the processor since.
            inside.regain()
        } else if tick {
            // Not on the thread's stack, which may be small and holds the kernel's frame.
            inside.park(Inside::slice_ended, 0)
        } else if self.gives_way(inside.vp(), inside.thread()) {
            self.stats.preempted.add();
            inside.park_to_choose()
        } else {
            inside
        };
        inside.leave();
    }

    /// The thread, which had so many nanoseconds of its slice, is stopped in favour of others.
    pub(super) fn put_behind(
        &'static self,
        vp: &'static Vp<K>,
        thread: &'static Thread<K>,
        used: u64,
    ) {
        self.stats.preempted.add();
        self.tell(vp, thread, Transition::Preempted);
        if thread.is_in_section() {
            // Its processor was taken.
            self.push_first(vp, thread);
        } else if self.takes_turns() {
            vp.ready
                .push_spent(&self.kernel, By::Owner, thread, used.min(MOST_NS));
            self.vps.set_ready(vp);
        } else {
            // It was stopped for another program, or for a more urgent thread, and has not had its turn.
            self.push_front(vp, By::Owner, thread);
        }
    }

    /// Threads that wait on `vp` have somebody who looks for them, while another one goes on there.
    fn guard_ready(&'static self, vp: &'static Vp<K>) {
        if vp.has_ready() {
            self.call_standby(vp);
            if self.vps.any_idle() {
                self.ring(vp.index());
            }
        }
    }

    /// Takes a thread from a virtual processor where at least two more wait than here. One steals when it has nothing else
    /// to run. If its threads compute, or their clients always ask anew, it never gets there, and each of its few
    /// threads would have more of the machine than each of the other's many.
    ///
    /// `mixes`: one where as many wait is enough. That one will find more here soon, and take another.
    fn take_from_fuller(
        &'static self,
        vp: &'static Vp<K>,
        mixes: bool,
    ) -> Option<&'static Thread<K>> {
        let own = vp.ready.len();
        let most = if mixes {
            own.saturating_sub(1)
        } else {
            own + 1
        };
        let is_fuller = |other: &Vp<K>| !ptr::eq(other, vp) && other.ready.len() > most;
        let fuller = self
            .vps
            .find_ready(vp, |other| is_fuller(other).then_some(other))?;
        self.steal_from(fuller)
    }

    /// Threads were added to the ready list of a virtual processor that the caller does not own: an
    /// idle processor takes them, or the owner chooses again as soon as it can. `afar`: the caller is perhaps on another
    /// processor. An owner leaves the runtime by a store and a look for notes, with no barrier in between: from there it may
    /// still seem to be inside when it has looked. So it is interrupted, which it is after the one or before the other.
    pub(super) fn choose_again(&'static self, vp: &'static Vp<K>, afar: bool) {
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
}

impl<K: Kernel> Inside<K> {
    /// The time slice of a parked thread is over: it runs on if no other should.
    fn slice_ended(&self, thread: &'static Thread<K>, _: usize) -> Option<&'static Thread<K>> {
        let (runtime, vp) = (self.runtime(), self.vp());
        runtime.kernel.tick(self, thread);
        runtime.settle(vp);
        let dispatches = vp.dispatches.load(Ordering::Relaxed);
        let last = vp.dispatches_at_tick.swap(dispatches, Ordering::Relaxed);
        // Few dispatches in a whole slice: threads that only compute.
        let chosen = dispatches.wrapping_sub(last);
        let now = runtime.kernel.now();
        let slice_ns = now.wrapping_sub(vp.tick_ns.swap(now, Ordering::Relaxed));
        vp.bias_again(now);
        runtime.free_list(vp, now);
        let computes = chosen < SCHEDULING_POINTS;
        vp.only_computes.store(computes, Ordering::Relaxed);
        // Where each runs for a moment only, nobody waits long, and the clock would cost as much as a switch.
        let woken_wait = computes && vp.ready.woken_wait(&runtime.kernel, By::Owner);
        vp.woken_wait.store(woken_wait, Ordering::Relaxed);
        if computes && runtime.seat_is_wanted() && !runtime.call_spare(vp) {
            // Nobody else looks while this thread computes.
            self.look_at_poller(vp);
        }
        let has_processor = runtime.kernel.may_run(vp);
        if (has_processor || runtime.kernel.may_finish(vp)) && thread.sections.defer_slice() {
            runtime.guard_ready(vp);
            return Some(thread);
        }
        // With a policy of the program's, that policy decides if the thread runs on.
        let advised = runtime.advises_on_slice(thread);
        let are_equals = !advised && runtime.all_take_turns();
        // If not, the slice was others' for the most part.
        let has_had_turn = !(woken_wait && are_equals && vp.has_begun_turn(now));
        let may_take = are_equals && has_had_turn && has_processor;
        // Of threads that spin for each other, all run at the same time now and then: not always the same ones on the same
        // processor, nor in the same order. And of three threads on two processors, none has one for itself.
        let mix = match may_take && computes {
            true => vp.mix(&runtime.kernel, now),
            false => Mix::Nothing,
        };
        let fetched = match mix {
            Mix::Stay => {
                runtime.guard_ready(vp);
                return Some(thread);
            }
            mix if may_take => runtime.take_from_fuller(vp, mix == Mix::Take),
            _ => None,
        };
        if fetched.is_none() && !advised && !runtime.gives_way(vp, Some(thread)) {
            return Some(thread);
        }
        runtime.guard_ready(vp);
        vp.ready.age_by_slice(&runtime.kernel, By::Owner, now);
        if !has_had_turn {
            vp.share_turn();
            return Some(thread);
        }
        // If it is not known, each that ran in the slice had as much as the others.
        let used = vp.ran_ns(now).unwrap_or(slice_ns / chosen.max(1));
        runtime.put_behind(vp, thread, used);
        // At once: it has waited longest where it was.
        fetched.filter(|fetched| self.is_chosen(fetched))
    }
}
