//! The poller: somebody waits for descriptors and deadlines in [`Poll::poll`](crate::kernel::Poll::poll), one activation at a time.
//!
//! The poller is not an activity of its own: an idle owner or a spare sits there instead of sleeping when
//! nobody else does. Busy virtual processors look there now and then while the seat is empty, and where all of them are busy
//! with threads that run for moments, it stays empty ([`Runtime::owners_look`]).
//!
//! A page fault of the poller's own delays every event until the page is there, as the first page
//! that a thread touches delays the thread: nobody takes its seat meanwhile. It is memory that the
//! runtime has mapped, which the program cannot make wait for ever.

use core::sync::atomic::Ordering;

use crate::event::What;
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::runtime::returned::Rival;
use crate::slot::Slot;
use crate::state::activation::{Activation, Activity};
use crate::state::inside::Inside;
use crate::state::ready::By;
use crate::state::thread::ThreadList;
use crate::state::vp::{State, Vp};

/// A busy virtual processor looks at the poller this often, in nanoseconds, if nobody sits in it.
const POLL_EVERY_NS: u64 = 4_000;
/// How seldom it looks where its looks find nothing.
const POLL_SELDOM_NS: u64 = 32_000;
/// A look that finds so many threads has come late.
const MANY: usize = 4;

/// How long after a look that has found so many threads the next one is due; it was due after `every_ns` itself.
fn next_look_ns(every_ns: u64, found: usize) -> u64 {
    let next_ns = match found {
        0 => 2 * every_ns,
        MANY.. => every_ns / 2,
        _ => every_ns,
    };
    next_ns.clamp(POLL_EVERY_NS, POLL_SELDOM_NS)
}

/// The poller's seat.
pub(super) struct Seat<K: Kernel>(Slot<Activation<K>>);

impl<K: Kernel> Seat<K> {
    pub(super) const fn empty() -> Self {
        Seat(Slot::empty())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.get(Ordering::Relaxed).is_none()
    }

    /// The activation that sits there, at some moment.
    pub(super) fn holder(&self) -> Option<&'static Activation<K>> {
        self.0.get(Ordering::Relaxed)
    }

    pub(super) fn is_held_by(&self, activation: &'static Activation<K>) -> bool {
        self.0.holds(activation, Ordering::SeqCst)
    }

    /// Returns true if the seat was empty and is the activation's now.
    fn take(&self, activation: &'static Activation<K>) -> bool {
        self.is_empty() && self.0.replace_if(None, Some(activation))
    }

    fn leave(&self) {
        // SeqCst: who leaves looks for standbys that sleep afterwards ([`Runtime::owners_look`]).
        self.0.set(None, Ordering::SeqCst);
    }
}

impl<K: Kernel> Runtime<K> {
    /// Returns true if threads wait for descriptors or deadlines and nobody waits for those.
    #[inline]
    pub(super) fn seat_is_wanted(&self) -> bool {
        // SeqCst: a standby says that it sleeps before it looks here.
        !self.seat_is_taken() && self.kernel.wants_poller()
    }

    /// Returns true if an activation sits in the poller, or is about to. Who was told to wake one that sits there, and has not
    /// left meanwhile, finds it so.
    #[inline]
    pub fn seat_is_taken(&self) -> bool {
        self.seat.0.get(Ordering::SeqCst).is_some()
    }

    /// Returns true if the owners of all virtual processors look at the poller themselves, often, and have enough to do until
    /// then. Who sat there would cost two switches for each event, and bring it to a list in which it waits all the same.
    ///
    /// Each has a standby that is awake, as it stays while the seat is empty: so nobody blocks unnoticed. Who finds that it is
    /// so does not sit down. Whoever ends it (falls idle, only computes, loses its processor) fills the seat, or calls somebody.
    pub(super) fn owners_look(&'static self) -> bool {
        let looks = |vp: &'static Vp<K>| {
            let is_busy = matches!(
                vp.word().state(),
                State::User | State::Kernel | State::Runtime
            );
            is_busy && vp.has_ready() && !vp.only_computes() && self.kernel.may_run(vp)
        };
        !self.is_ranked()
            && !self.kernel.needs_heirs()
            && !self.vps.any_unwatched()
            && self.vps().iter().all(looks)
    }

    #[cold]
    pub(super) fn fill_seat(&'static self, vp: &'static Vp<K>) {
        if self.seat_is_wanted() {
            self.call_spare(vp);
        }
    }

    /// Returns true if it is time to look at the poller from a busy virtual processor, because nobody
    /// sits in it.
    #[inline(always)]
    pub(super) fn poller_is_due(&self, vp: &'static Vp<K>) -> bool {
        self.seat_is_wanted() && self.has_polled_long_ago(vp)
    }

    #[inline(never)]
    fn has_polled_long_ago(&self, vp: &'static Vp<K>) -> bool {
        let every_ns = match self.is_ranked() {
            true => POLL_EVERY_NS,
            false => vp.poll_every_ns.load(Ordering::Relaxed).max(POLL_EVERY_NS),
        };
        let polled_ns = vp.polled_ns.load(Ordering::Relaxed);
        self.kernel.now().wrapping_sub(polled_ns) >= every_ns
    }

    /// Makes threads ready whose events have come, as `vp` has found out. Returns how many there were. Each goes back to the
    /// virtual processor on which it began to wait, where its data may still be, unless more threads wait there than here, or
    /// another program has its processor.
    pub(super) fn add_ready(&'static self, vp: &'static Vp<K>, mut list: ThreadList<K>) -> usize {
        let mut count = 0;
        let here = self.with_processor(vp);
        while let Some(thread) = list.pop_front() {
            count += 1;
            let home = thread.home.get(Ordering::Relaxed).unwrap_or(here);
            let is_busier = home.ready.len() > here.ready.len() + 1;
            let is_better_here = is_busier || !self.kernel.may_run(home);
            let place = if is_better_here { here } else { home };
            let afar = !core::ptr::eq(place, vp);
            if thread.is_in_section() {
                self.make_ready_first(place, thread, afar);
            } else {
                self.make_ready_at(place, By::Others, thread, afar);
            }
            self.look_after(place);
        }
        count
    }
}

impl<K: Kernel> Inside<K> {
    /// Makes ready whose events have come, without waiting for any. The next look comes later the less this one finds:
    /// threads that are found wait behind those that are ready already.
    pub(super) fn look_at_poller(&self, vp: &'static Vp<K>) {
        let runtime = self.runtime();
        let list = runtime.kernel.poll(self.activation(), None);
        vp.polled_ns.store(runtime.kernel.now(), Ordering::Relaxed);
        let found = runtime.add_ready(vp, list);
        let next_ns = next_look_ns(vp.poll_every_ns.load(Ordering::Relaxed), found);
        vp.poll_every_ns.store(next_ns, Ordering::Relaxed);
    }

    /// Takes the seat, if it is empty and somebody is to sit there. A spare does so with the pool locked: it is not taken for
    /// something else while it sits there, and does not sit there afterwards. It would leave the seat when nobody any more
    /// expects that.
    pub(super) fn take_seat(&self) -> bool {
        let (runtime, me) = (self.runtime(), self.activation());
        if self.vp().word().is_owned_by(me) {
            return runtime.seat.take(me);
        }
        if !runtime.seat.is_empty() || runtime.owners_look() {
            return false;
        }
        let takes = || self.activity() == Activity::Spare && runtime.seat.take(me);
        runtime.spares.with_pool(&runtime.kernel, takes)
    }

    /// Polls, if nobody else does. Returns true if it did.
    pub(super) fn sit(&self, seen: u32) -> bool {
        let runtime = self.runtime();
        if !self.take_seat() {
            return false;
        }
        // Perhaps it was woken to end, and is needed here.
        runtime.end_surplus();
        runtime.trace(What::Polls, self.vp(), None);
        let list = runtime.kernel.poll(self.activation(), Some(seen));
        runtime.trace(What::Polled, self.vp(), None);
        runtime.seat.leave();
        if list.is_empty() {
            // The last deadline may have been nobody's.
            runtime.kernel.look_for_deadlock(self);
            if runtime.kernel.needs_heirs() {
                self.stand_in();
            }
        }
        self.deliver(list);
        true
    }

    /// Does the standbys' work for once: another process may keep those from running that only watch.
    #[cold]
    fn stand_in(&self) {
        let runtime = self.runtime();
        for vp in runtime.vps() {
            let word = vp.word();
            if !matches!(word.state(), State::Kernel | State::User) {
                continue;
            }
            if runtime.work_waits_for(vp) && runtime.kernel.is_blocked(word.owner(), false) {
                // Out of the pool first, so that it does not call itself.
                if self.activity() == Activity::Spare && !self.leave_spares() {
                    return;
                }
                self.take_over(vp, word);
            }
        }
    }

    /// Threads can run again, and the activation that learned it has none.
    fn deliver(&self, mut list: ThreadList<K>) {
        let runtime = self.runtime();
        if list.is_empty() {
            return;
        }
        runtime.stats.delivered.add();
        // Out of the pool first: nobody else may give it work meanwhile.
        let spare = self.activity() == Activity::Spare && self.leave_spares();
        let free = spare || self.leave_rest();
        let vp = self.vp();
        // Among threads that wait for each other it waits for its turn.
        let waits = vp.woken_wait.load(Ordering::Relaxed);
        let rival = match waits {
            true => Rival::GoesOn,
            false => Rival::IsDisplaced,
        };
        if free && !runtime.is_ranked() && runtime.kernel.may_run(vp) && self.acquire(vp, rival) {
            // Before anything else, a displaced activation included.
            if let Some(first) = list.pop_front() {
                runtime.trace(What::Unblocked, vp, Some(first));
                runtime.add_ready(vp, list);
                runtime.look_around(vp);
                self.run(vp, first);
            }
        }
        if spare {
            self.activation().retire_from(Activity::Running);
        }
        runtime.add_ready(vp, list);
        let here = runtime.with_processor(vp);
        if waits && !runtime.is_ranked() {
            runtime.announce_ready(here);
        } else {
            runtime.choose_again(here, !core::ptr::eq(here, vp));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_find_nothing_become_seldom_and_no_more() {
        let mut every_ns = 0;
        for _ in 0..9 {
            every_ns = next_look_ns(every_ns, 0);
        }
        assert_eq!(every_ns, POLL_SELDOM_NS);
        assert_eq!(next_look_ns(every_ns, 1), POLL_SELDOM_NS);
        for _ in 0..9 {
            every_ns = next_look_ns(every_ns, MANY);
        }
        assert_eq!(every_ns, POLL_EVERY_NS);
    }
}
