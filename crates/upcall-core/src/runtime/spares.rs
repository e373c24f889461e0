//! The pool of activations without work: taken instead of new ones, ended when there are too many.

use core::sync::atomic::Ordering;

use crate::activation::{Activation, Role};
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::vp::Vp;

/// Spare activations that are kept whatever happens, beside two a virtual processor.
const SPARES: u64 = 6;

impl<K: Kernel> Runtime<K> {
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
            let seated = |one: &&'static Activation<K>| self.seat.is_held_by(one);
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
            && let Some(poller) = self.seat.holder()
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

    pub(super) fn spawn_activation(
        &'static self,
        vp: &'static Vp<K>,
        sentinel: bool,
    ) -> Option<&'static Activation<K>> {
        let Ok(activation) = self.new_activation(Some(vp)) else {
            self.stats.refused.add();
            self.short.store(true, Ordering::Relaxed);
            return None;
        };
        activation.set_role(Role::Reserved);
        if self.kernel.spawn(activation, sentinel).is_err() {
            self.stats.refused.add();
            self.short.store(true, Ordering::Relaxed);
            self.bury(activation);
            return None;
        }
        if self.is_short() {
            self.short.store(false, Ordering::Relaxed);
        }
        Some(activation)
    }

    /// A spare takes itself out of the pool; says whether it still was in it.
    pub(super) fn leave_spares(&'static self, activation: &'static Activation<K>) -> bool {
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

    /// Wakes some spare, or a new one, for the poller's seat; says whether there is one.
    pub(super) fn call_spare(&'static self, vp: &'static Vp<K>) -> bool {
        let spare = self.spares.lock(&self.kernel).head;
        if let Some(activation) = spare {
            self.notify(activation);
        } else if let Some(activation) = self.spawn_activation(vp, false) {
            self.give_back(activation);
        } else {
            return false;
        }
        true
    }

    /// From now on no activation ends, however many sleep: something in the kernel that outlives a
    /// call is tied to one of them, and nobody can say to which.
    pub fn keep_activations(&self) {
        // Seen by the caller's own activation when it is about to end, and by others with what the
        // caller publishes afterwards.
        self.keeps_activations.store(true, Ordering::Relaxed);
    }

    /// Whether there are more spares than what is really blocked justifies.
    pub(super) fn is_surplus(&self, spares: u64) -> bool {
        !self.keeps_activations.load(Ordering::Relaxed)
            && spares > 2 * self.vps().len() as u64 + SPARES + self.stats.absent.get()
    }

    pub(super) fn end_activation(&'static self, activation: &'static Activation<K>) -> ! {
        self.bury(activation);
        // The others went to sleep when more were blocked: each wakes the next.
        self.end_surplus();
        self.kernel.exit_activation(activation)
    }

    /// Wakes a spare that may end, if there are too many.
    pub(super) fn end_surplus(&'static self) {
        let next = {
            let spares = self.spares.lock(&self.kernel);
            if !self.is_surplus(spares.len) {
                return;
            }
            let listed =
                core::iter::successors(spares.head, |spare| spare.next.get(Ordering::Relaxed));
            let may_end = |one: &&'static Activation<K>| !self.seat.is_held_by(one) && !one.stays();
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
