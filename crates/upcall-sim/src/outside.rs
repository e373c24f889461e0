//! What others decide: whether a processor is there.

use crate::machine::Machine;
use crate::sim::Vp;
use crate::space::Space;
use crate::threads::Me;

impl Me {
    /// The processors of these virtual processors are another address space's until that time, and
    /// those of all others are this one's.
    pub fn lose_processors(self, which: std::ops::Range<usize>, until: u64) {
        let activation = self.runtime.enter();
        let vps = &self.runtime.vps()[which];
        {
            let machine = self.machine.enter();
            self.space
                .taken
                .replace(vps.iter().map(|vp| vp.index()).collect());
            self.space.back_at.set(until);
            self.space.restore(&machine);
        }
        for vp in vps {
            self.runtime.recall(vp);
        }
        self.runtime.leave(activation);
    }

    /// Whether a processor is another address space's.
    pub fn lacks_processors(self) -> bool {
        !self.space.taken.borrow().is_empty()
    }
}

impl Space {
    /// Whether a virtual processor's processor is another address space's.
    pub(crate) fn lacks(&self, vp: u32) -> bool {
        self.taken.borrow().contains(&vp)
    }

    /// Whether a virtual processor has not its processor now, whoever says so.
    pub(crate) fn lacks_processor(&self, vp: &Vp) -> bool {
        self.lacks(vp.index()) || self.stopped(vp.processor()).is_some()
    }

    /// Gives back the processors whose time has come, and wakes who waits for one that is back.
    pub(crate) fn restore(&self, machine: &Machine) {
        if self.back_at.get() <= machine.clock.get() {
            self.back_at.set(u64::MAX);
            self.taken.borrow_mut().clear();
        }
        self.awaiting.borrow_mut().retain(|&(vessel, vp)| {
            let waits = self.lacks(vp);
            if !waits {
                machine.wake(vessel, 0);
            }
            waits
        });
    }
}
