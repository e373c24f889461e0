//! The scheduler of sched_ext: when it has all kernel threads, and what it is told.
//!
//! 1. It is loaded if the configuration wants it, and taken away when that changes.
//! 2. It may end while the daemon runs. Then the kernel's own scheduler has all kernel threads at once, and programs go on as they are:
//!    no state of theirs is in it. The daemon is woken, says why, and does what the kernel's account of the end suggests
//!    ([`Then`]): loads it again at once, or after a pause that doubles each time, or not before SIGHUP.
//! 3. It is told which processes are spaces, and what they weigh. What it was told is remembered, so that only changes are said.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use upcall_bpf::{Counts, Scheduler, Then, Trouble};

/// The first pause after a fault, and the longest.
const PAUSE_NS: u64 = 10_000_000_000;
const LONGEST_PAUSE_NS: u64 = 600_000_000_000;

/// Looks after the scheduler.
#[derive(Default)]
pub struct Keeper {
    loaded: Option<Scheduler>,
    /// Of each space: what it weighs.
    told: BTreeMap<i32, u32>,
    faults: u32,
    /// When it is loaded again.
    again_at: Option<u64>,
    /// What those have done that have ended.
    done: Counts,
    /// How often one has ended by itself.
    pub ends: u64,
}

/// How long after so many faults, the last one included, it is loaded again.
fn pause(faults: u32) -> u64 {
    PAUSE_NS
        .saturating_mul(1 << faults.saturating_sub(1).min(16))
        .min(LONGEST_PAUSE_NS)
}

impl Keeper {
    /// Returns true if the scheduler has all kernel threads.
    pub fn is_on(&self) -> bool {
        self.loaded.is_some()
    }

    /// When to call [`Keeper::look`].
    pub fn next(&self) -> Option<u64> {
        self.again_at
    }

    /// What schedulers of this daemon have done.
    pub fn counts(&self) -> Counts {
        let now = self.loaded.as_ref().map(Scheduler::counts);
        sum(self.done, now.unwrap_or_default())
    }

    /// The configuration says this, at the start or again. What was given up is tried again.
    pub fn configure(&mut self, is_wanted: bool, wakes: (&OwnedFd, u64)) {
        self.faults = 0;
        self.again_at = None;
        if is_wanted {
            self.load(wakes);
        } else {
            self.unload();
        }
    }

    /// Loads the scheduler again if it is time.
    pub fn look(&mut self, now: u64, wakes: (&OwnedFd, u64)) {
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            self.load(wakes);
        }
    }

    /// The scheduler has said something: perhaps that it has ended.
    pub fn hear(&mut self, now: u64, wakes: (&OwnedFd, u64)) {
        let Some(ended) = self.loaded.as_ref().and_then(Scheduler::ended) else {
            return;
        };
        self.unload();
        self.ends += 1;
        match ended.then() {
            Then::Again => {
                tracing::info!(%ended, "the scheduler is loaded again");
                self.load(wakes);
            }
            Then::Later => {
                self.faults += 1;
                let pause = pause(self.faults);
                self.again_at = Some(now.saturating_add(pause));
                let seconds = pause / 1_000_000_000;
                tracing::error!(
                    %ended,
                    "the kernel has ended the scheduler; it is loaded again after {seconds} s"
                );
            }
            Then::Never => tracing::warn!(
                %ended,
                "somebody has ended the scheduler; it stays off until SIGHUP"
            ),
        }
    }

    /// These are the spaces, with their weights.
    pub fn tell(&mut self, spaces: BTreeMap<i32, u32>) {
        let Some(scheduler) = &self.loaded else {
            return;
        };
        for (&pid, &weight) in &spaces {
            if self.told.get(&pid) != Some(&weight) {
                // If it has ended, that is heard soon.
                let _ = scheduler.set_process(pid, weight, true);
            }
        }
        for &pid in self.told.keys().filter(|pid| !spaces.contains_key(pid)) {
            // It may have executed another program.
            let _ = scheduler.set_process(pid, crate::lending::ONE, false);
        }
        self.told = spaces;
    }

    fn load(&mut self, (epoll, about): (&OwnedFd, u64)) {
        if self.loaded.is_some() {
            return;
        }
        match Scheduler::start() {
            Ok(scheduler) => {
                let (about, flags) = (EventData::new_u64(about), EventFlags::IN);
                if let Err(error) = epoll::add(epoll, scheduler.descriptor(), about, flags) {
                    tracing::warn!(%error, "the scheduler stays off: its end would not be heard");
                    return;
                }
                tracing::info!("the scheduler has all kernel threads");
                self.loaded = Some(scheduler);
            }
            Err(trouble) => {
                let Trouble {
                    what,
                    evidence,
                    remedy,
                } = trouble;
                tracing::warn!(evidence, remedy, "the scheduler stays off: {what}");
            }
        }
    }

    /// From here on the kernel's own scheduler has all kernel threads.
    pub fn unload(&mut self) {
        let Some(scheduler) = self.loaded.take() else {
            return;
        };
        let done = scheduler.counts();
        self.done = sum(self.done, done);
        self.told.clear();
        tracing::info!(
            upcalls = done.upcalls,
            at_once = done.at_once,
            overdue = done.overdue,
            "the kernel's own scheduler has all kernel threads again"
        );
    }
}

fn sum(one: Counts, other: Counts) -> Counts {
    Counts {
        upcalls: one.upcalls + other.upcalls,
        at_once: one.at_once + other.at_once,
        overdue: one.overdue + other.overdue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let seconds = [1, 2, 3, 6, 7, 60].map(|faults| pause(faults) / 1_000_000_000);
        assert_eq!(seconds, [10, 20, 40, 320, 600, 600]);
    }

    #[test]
    fn one_that_is_off_has_nothing_to_do() {
        let mut keeper = Keeper::default();
        keeper.tell(BTreeMap::from([(1, 1024)]));
        assert!(!keeper.is_on() && keeper.next().is_none());
        assert_eq!(keeper.counts(), Counts::default());
    }
}
