//! The machine's loop: what happens between two points.

use std::cmp::Reverse;

use crate::machine::{Doing, Machine};

/// Points after which a run counts as making no progress.
const MOST_POINTS: u64 = 3_000_000;

impl Machine {
    /// Runs until a thread says that all is done.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn run(&self) -> Result<(), String> {
        loop {
            self.points.set(self.points.get() + 1);
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.done.get() {
                return Ok(());
            }
            if self.points.get() > MOST_POINTS {
                return Err("no end in sight".to_owned());
            }
            self.happen();
            self.watch_over();
            self.watch()?;
            self.ran.set(None);
            match self.ask(|policy| policy.choose(self)) {
                Some(index) => {
                    self.ran.set(Some(index));
                    self.resume(index);
                }
                None => self.jump()?,
            }
        }
    }

    /// Events of the kernel whose time has come.
    fn happen(&self) {
        let now = self.clock.get();
        for space in &self.spaces {
            space.fire(now);
            space.restore(self);
        }
        while self.next_unblocking() <= now {
            let first = self.blocked.borrow_mut().pop();
            if let Some(Reverse((_, index))) = first {
                self.set_doing(index, Doing::Runnable);
            }
        }
        for space in &self.spaces {
            if !space.pollers.borrow().is_empty() && space.has_news(now) {
                for index in space.pollers.take() {
                    if self.doing(index) == Doing::Polling {
                        self.wake(index, self.style.late);
                    }
                }
            }
        }
        if self.chance(self.style.spurious) {
            for index in 0..self.nr_vessels() {
                if self.chance(2) {
                    self.wake(index, 0);
                }
            }
        }
        if self.chance(self.style.interruptions) {
            let index = self.pick(self.nr_vessels() as u64) as usize;
            let begun = self.vessel(index, |vessel| vessel.activation.get().is_some());
            if begun && self.doing(index) != Doing::Gone {
                self.interrupt(index);
            }
        }
    }

    /// When the first of those that are blocked can run again.
    fn next_unblocking(&self) -> u64 {
        let mut blocked = self.blocked.borrow_mut();
        while let Some(&Reverse((time, index))) = blocked.peek() {
            match self.doing(index) {
                Doing::Blocked { until, .. } | Doing::Waking { until } if until == time => {
                    return time;
                }
                // It came back earlier.
                _ => blocked.pop(),
            };
        }
        u64::MAX
    }

    /// Nothing can run: the clock goes to the next event.
    fn jump(&self) -> Result<(), String> {
        // A vessel that was woken and does not run yet may be half-way through anything.
        let waking = |index| matches!(self.doing(index), Doing::Waking { .. });
        if !(0..self.nr_vessels()).any(waking) {
            self.watch_rest()?;
        }
        let mut next = self.next_unblocking().min(self.next_of_daemon());
        for space in &self.spaces {
            next = next.min(space.back_at.get());
            space
                .pollers
                .borrow_mut()
                .retain(|&index| self.doing(index) == Doing::Polling);
            if !space.pollers.borrow().is_empty() {
                next = next.min(space.next_news());
            }
        }
        if next == u64::MAX {
            return Err("everybody waits for ever".to_owned());
        }
        self.ask(|policy| policy.jump(self, next));
        Ok(())
    }
}
