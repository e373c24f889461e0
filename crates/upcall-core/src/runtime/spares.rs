//! The pool of activations without work: taken instead of new ones, ended when there are too many.

use core::sync::atomic::Ordering;

use crate::kernel::Kernel;
use crate::lock::SpinLock;
use crate::runtime::Runtime;
use crate::state::activation::{Activation, ActivationList, Activity};
use crate::state::inside::Inside;
use crate::state::vp::Vp;
use crate::sync::AtomicBool;

/// Spare activations that are kept whatever happens, beside two a virtual processor.
const SPARES: u64 = 6;

/// The pool.
pub(super) struct Spares<K: Kernel> {
    pool: SpinLock<Pool<K>>,
    /// There may be none that could be an heir. Written with the pool locked, read as a hint.
    few: AtomicBool,
}

struct Pool<K: Kernel> {
    list: ActivationList<K>,
    len: u64,
}

impl<K: Kernel> Spares<K> {
    pub(super) const fn none() -> Self {
        Spares {
            pool: SpinLock::new(Pool {
                list: ActivationList::new(),
                len: 0,
            }),
            few: AtomicBool::new(true),
        }
    }

    pub(super) fn are_few(&self) -> bool {
        self.few.load(Ordering::Relaxed)
    }

    pub(super) fn len(&self, kernel: &K) -> u64 {
        self.pool.lock(kernel).len
    }

    /// Nobody comes into the pool or leaves it meanwhile.
    pub(super) fn with_pool<R>(&self, kernel: &K, act: impl FnOnce() -> R) -> R {
        let _pool = self.pool.lock(kernel);
        act()
    }

    /// Changes the pool, and notes how many there are then. Of two, one may sit in the poller.
    fn change<R>(&self, kernel: &K, change: impl FnOnce(&mut Pool<K>) -> R) -> R {
        let mut pool = self.pool.lock(kernel);
        let answer = change(&mut pool);
        self.few.store(pool.len < 2, Ordering::Relaxed);
        answer
    }
}

impl<K: Kernel> Activation<K> {
    /// Puts an activation without work into the pool, if it does this.
    pub(super) fn retire_from(&'static self, from: Activity) {
        let runtime = self.runtime();
        let retires = runtime.spares.change(&runtime.kernel, |pool| {
            // Who rests now may be somebody's owner again by the time that its successor comes here. In this order: who rests
            // and owns nothing becomes no owner while the pool is locked.
            let is_still = self.activity() == from;
            let owns = from == Activity::Resting && self.vp().word().is_owned_by(self);
            let retires = is_still && !owns && self.change_activity(from, Activity::Spare);
            if retires {
                pool.list.push(self);
                pool.len += 1;
            }
            retires
        });
        // Others look at the pool themselves on their way to sleep.
        if retires && from == Activity::Resting {
            runtime.end_surplus();
        }
    }

    /// A reserved activation is not needed after all.
    pub(super) fn give_back(&'static self) {
        self.retire_from(Activity::Reserved);
        self.notify();
    }
}

impl<K: Kernel> Runtime<K> {
    /// A spare activation, or a new one, for `vp`, `Reserved`: it sleeps until it has been
    /// made a standby or an owner and [`Activation::notify`] wakes it.
    pub(super) fn take_spare(&'static self, vp: &'static Vp<K>) -> Option<&'static Activation<K>> {
        self.take_pooled(vp)
            .or_else(|| self.spawn_activation(vp, false))
    }

    /// As [`Runtime::take_spare`], from the pool only.
    fn take_pooled(&'static self, vp: &'static Vp<K>) -> Option<&'static Activation<K>> {
        let (spare, left) = self.spares.change(&self.kernel, |pool| {
            // A spare that sits in the poller stays there.
            let spare = pool.list.take(|one| !self.seat.is_held_by(one));
            if let Some(activation) = spare {
                pool.len -= 1;
                activation.vp.set(Some(vp), Ordering::Relaxed);
                activation.set_activity(Activity::Reserved);
            }
            (spare, pool.len)
        });
        if spare.is_some() {
            self.stats.recycled.add();
            if self.is_surplus(left) {
                // Perhaps it was woken to end.
                self.end_surplus();
            }
        }
        spare
    }

    /// Wakes some spare, or a new one, for the poller's seat. Returns true if there is one.
    pub(super) fn call_spare(&'static self, vp: &'static Vp<K>) -> bool {
        let spare = self.spares.pool.lock(&self.kernel).list.first;
        if let Some(activation) = spare {
            activation.notify();
        } else if let Some(activation) = self.spawn_activation(vp, false) {
            activation.give_back();
        } else {
            return false;
        }
        true
    }

    /// Returns true if there are more spares than what is really blocked justifies.
    pub(super) fn is_surplus(&self, spares: u64) -> bool {
        self.activations.may_end()
            && spares > 2 * self.vps().len() as u64 + SPARES + self.stats.absent.get()
    }

    /// Wakes a spare that may end, if there are too many.
    pub(super) fn end_surplus(&'static self) {
        let next = {
            let pool = self.spares.pool.lock(&self.kernel);
            if !self.is_surplus(pool.len) {
                return;
            }
            let mut all = pool.list.iter();
            all.find(|&one| !self.seat.is_held_by(one) && !one.stays())
        };
        if let Some(next) = next {
            next.notify();
        }
    }
}

impl<K: Kernel> Inside<K> {
    /// A spare for the virtual processor whose owner `watcher` found blocked. A standby
    /// that only watches starts none: what it starts might only watch, too. So there are always some in the
    /// pool ([`Runtime::standby_is_awake`]), and if there are not, the poller does the work.
    pub(super) fn take_spare_for(&self, vp: &'static Vp<K>) -> Option<&'static Activation<K>> {
        let runtime = self.runtime();
        if self.activity() != Activity::Standby {
            return runtime.take_spare(vp);
        }
        let spare = runtime.take_pooled(vp);
        if spare.is_none()
            && let Some(poller) = runtime.seat.holder()
        {
            poller.notify();
        }
        spare
    }

    /// A spare takes itself out of the pool. Returns true if it still was in it.
    pub(super) fn leave_spares(&self) -> bool {
        let runtime = self.runtime();
        runtime.spares.change(&runtime.kernel, |pool| {
            if self.activity() != Activity::Spare {
                return false;
            }
            if !pool.list.remove(self.activation()) {
                runtime
                    .kernel
                    .broken("a spare activation outside of the pool");
            }
            pool.len -= 1;
            self.set_activity(Activity::Running);
            true
        })
    }

    /// An idle owner has something to do. Returns false if its successor has made it a spare. With the pool locked: see
    /// [`Activation::retire_from`].
    pub(super) fn leave_rest(&self) -> bool {
        let runtime = self.runtime();
        runtime.spares.with_pool(&runtime.kernel, || {
            self.change_activity(Activity::Resting, Activity::Running)
        })
    }

    pub(super) fn end_activation(&self) -> ! {
        let runtime = self.runtime();
        self.activation().bury();
        // The others went to sleep when more were blocked: each wakes the next.
        runtime.end_surplus();
        runtime.kernel.exit_activation(self)
    }
}
