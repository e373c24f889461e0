//! The machine's loop: what happens between two points.

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
            self.watch()?;
            match self.ask(|policy| policy.choose(self)) {
                Some(index) => self.resume(index),
                None => self.jump()?,
            }
        }
    }

    /// Events of the kernel whose time has come.
    fn happen(&self) {
        let now = self.clock.get();
        for space in &self.spaces {
            space.fire(now);
        }
        let spurious = self.style.spurious != 0 && self.chance(self.style.spurious);
        for vessel in self.vessels.borrow().iter() {
            let over = match vessel.doing.get() {
                Doing::Blocked { until, .. } => until <= now,
                Doing::Polling => spurious || self.spaces[vessel.space].has_news(now),
                Doing::Sleeping => spurious,
                Doing::Runnable | Doing::Gone => false,
            };
            if over {
                vessel.doing.set(Doing::Runnable);
            }
        }
    }

    /// Nothing can run: the clock goes to the next event.
    fn jump(&self) -> Result<(), String> {
        self.watch_rest()?;
        let mut next = u64::MAX;
        for vessel in self.vessels.borrow().iter() {
            match vessel.doing.get() {
                Doing::Blocked { until, .. } => next = next.min(until),
                Doing::Polling => next = next.min(self.spaces[vessel.space].next_news()),
                _ => {}
            }
        }
        if next == u64::MAX {
            return Err("everybody waits for ever".to_owned());
        }
        self.ask(|policy| policy.jump(self, next));
        Ok(())
    }
}
