//! The machine's loop: who runs next, what happens to it, and what must always hold.
//!
//! 1. The owner of a virtual processor exists, and owns no other.
//! 2. A thread is on one activation.
//! 3. When nothing can run, no thread is ready, and somebody waits for deadlines and descriptors if
//!    any thread does. The latter is not asked while an owner is on a page fault, which no call
//!    announces; neither once kernel threads have run out.
//! 4. The run ends: not all wait for ever, and it takes a bounded number of points.

use std::sync::atomic::Ordering;

use upcall_core::vp::State;

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
        let mut current = vec![usize::MAX; self.style.processors.len()];
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
            self.watch_owners()?;
            match self.choose(&mut current) {
                Some(index) => {
                    self.tick_clock();
                    if self.chance(self.style.slice) {
                        self.vessel(index, |vessel| vessel.slice_over.set(true));
                    }
                    self.resume(index);
                }
                None => self.jump()?,
            }
        }
    }

    /// Events of the kernel whose time has come.
    fn happen(&self) {
        let now = self.clock.get();
        self.firings.borrow_mut().retain(|&(time, descriptor)| {
            if time <= now {
                self.fired.borrow_mut().push(descriptor);
            }
            time > now
        });
        let polled = now >= self.alarm.get() || !self.fired.borrow().is_empty();
        let spurious = self.style.spurious != 0 && self.chance(self.style.spurious);
        for vessel in self.vessels.borrow().iter() {
            let over = match vessel.doing.get() {
                Doing::Blocked { until, .. } => until <= now,
                Doing::Polling => polled || spurious,
                Doing::Sleeping => spurious,
                Doing::Runnable | Doing::Gone => false,
            };
            if over {
                vessel.doing.set(Doing::Runnable);
            }
        }
    }

    fn choose(&self, current: &mut [usize]) -> Option<usize> {
        let runnable: Vec<usize> = (self.vessels.borrow().iter().enumerate())
            .filter(|(_, vessel)| vessel.doing.get() == Doing::Runnable)
            .map(|(index, _)| index)
            .collect();
        let runnable = if self.style.sentinel && self.style.starved {
            self.without_starved(runnable)
        } else {
            runnable
        };
        if runnable.is_empty() {
            return None;
        }
        let one = runnable[self.pick(runnable.len() as u64) as usize];
        if !self.style.bound {
            return Some(one);
        }
        // Mostly the same as before on that processor, unless it gave way.
        let processor = self.vessel(one, |vessel| vessel.processor.get());
        let before = &mut current[processor as usize];
        let stays = runnable.contains(before)
            && self.vessel(*before, |vessel| {
                vessel.processor.get() == processor && !vessel.yields.get()
            });
        if !stays || self.chance(6) {
            *before = one;
        }
        Some(*before)
    }

    /// Without the sentinels on whose processor anything else can run.
    fn without_starved(&self, runnable: Vec<usize>) -> Vec<usize> {
        let is_sentinel = |index: usize| self.vessel(index, |vessel| vessel.sentinel.get());
        let processor = |index: usize| self.vessel(index, |vessel| vessel.processor.get());
        let busy: Vec<u32> = (runnable.iter().filter(|&&index| !is_sentinel(index)))
            .map(|&index| processor(index))
            .collect();
        (runnable.into_iter())
            .filter(|&index| !is_sentinel(index) || !busy.contains(&processor(index)))
            .collect()
    }

    /// Nothing can run: the clock goes to the next event.
    fn jump(&self) -> Result<(), String> {
        self.watch_rest()?;
        let mut next = u64::MAX;
        let mut polling = false;
        for vessel in self.vessels.borrow().iter() {
            match vessel.doing.get() {
                Doing::Blocked { until, .. } => next = next.min(until),
                Doing::Polling => polling = true,
                _ => {}
            }
        }
        if polling {
            next = next.min(self.alarm.get());
            for &(time, _) in self.firings.borrow().iter() {
                next = next.min(time);
            }
        }
        if next == u64::MAX {
            return Err("everybody waits for ever".to_owned());
        }
        self.clock.set(next.max(self.clock.get()));
        Ok(())
    }

    fn watch_owners(&self) -> Result<(), String> {
        let Some(runtime) = self.runtime.get() else {
            return Ok(());
        };
        let mut seen = Vec::new();
        for vp in runtime.vps() {
            let owner = vp.word().owner();
            let Some(index) = Self::vessel_of(owner) else {
                continue;
            };
            if self.vessel(index, |vessel| vessel.doing.get()) == Doing::Gone {
                return Err(format!("vp {} is owned by an ended activation", vp.index()));
            }
            if seen.contains(&index) {
                return Err(format!("vessel {index} owns two virtual processors"));
            }
            seen.push(index);
        }
        let mut threads = Vec::new();
        for vessel in self.vessels.borrow().iter() {
            let gone = vessel.doing.get() == Doing::Gone;
            let thread = vessel.activation.get().filter(|_| !gone);
            if let Some(thread) = thread.and_then(|activation| activation.thread()) {
                if threads.iter().any(|&other| std::ptr::eq(other, thread)) {
                    return Err("a thread is on two activations".to_owned());
                }
                threads.push(thread);
            }
        }
        Ok(())
    }

    fn watch_rest(&self) -> Result<(), String> {
        let Some(runtime) = self.runtime.get() else {
            return Ok(());
        };
        let blocked = (self.vessels.borrow().iter())
            .filter(|vessel| matches!(vessel.doing.get(), Doing::Blocked { .. }))
            .count() as u64;
        let absent = runtime.stats().absent.get();
        if absent > blocked {
            return Err(format!("{absent} are absent, {blocked} are blocked"));
        }
        if self.spawn_failed.get() {
            return Ok(());
        }
        if let Some(vp) = runtime.vps().iter().find(|vp| vp.has_ready()) {
            return Err(format!(
                "a thread is ready on vp {} and nobody runs",
                vp.index()
            ));
        }
        let faults = (self.vessels.borrow().iter())
            .any(|vessel| matches!(vessel.doing.get(), Doing::Blocked { fault: true, .. }));
        let wanted = self.nr_waiting.get() != 0 || self.alarm.get() != u64::MAX;
        let polling =
            (self.vessels.borrow().iter()).any(|vessel| vessel.doing.get() == Doing::Polling);
        if wanted && !polling && !faults {
            return Err("nobody sits in the poller's seat".to_owned());
        }
        Ok(())
    }

    /// The state, for the report of a failure.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "{:?}\nclock {} alarm {} waiting {} points {}\n",
            self.style,
            self.clock.get(),
            self.alarm.get(),
            self.nr_waiting.get(),
            self.points.get()
        );
        for vp in self
            .runtime
            .get()
            .into_iter()
            .flat_map(|runtime| runtime.vps())
        {
            let word = vp.word();
            let state: State = word.state();
            let owner = Self::vessel_of(word.owner());
            text += &format!("vp {}: {state:?} of {owner:?}", vp.index());
            text += if vp.has_ready() {
                ", threads ready\n"
            } else {
                "\n"
            };
        }
        for (index, vessel) in self.vessels.borrow().iter().enumerate() {
            let activation = vessel.activation.get();
            text += &format!(
                "vessel {index}: {:?}, processor {}, role {:?}, thread {}, in call {}, wake {}\n",
                vessel.doing.get(),
                vessel.processor.get(),
                activation.map(|activation| activation.role()),
                activation.is_some_and(|activation| activation.thread().is_some()),
                activation.is_some_and(|activation| activation.is_in_call()),
                activation.map_or(0, |activation| activation
                    .wake_word()
                    .load(Ordering::Relaxed)),
            );
        }
        text
    }
}
