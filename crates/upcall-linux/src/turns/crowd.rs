//! Sees if programs that take no turns compute on this process's processors, and keeps its truce (`rules::truce`).
//!
//! 1. At each time slice of a member that is on while others wait, an activation adds what it ran and waited (the kernel's
//!    own account of it, `processors::slice`). A slice counts if the process has been on and alone among members in all of it.
//! 2. At the end of the turn the sum is judged. The first loss begins a *watch*: from now on each turn begins with a sample of
//!    the processors' idle time, which is no loss. A turn without a loss ends the watch.
//! 3. A loss at least [`Times::watch`](super::rules::Times::watch) after the first one makes a truce. A truce is a watch, too:
//!    the first turn after it is enough.

use core::sync::atomic::{AtomicU64, Ordering};

use super::rules::Times;
use super::rules::truce::{Account, Judgement, Truce};
use crate::processors::load::{Sample, UNIT_NS};
use crate::processors::slice::Spent;

/// What the activations add without a lock.
pub(super) struct Ledger {
    ran: AtomicU64,
    waited: AtomicU64,
    /// When it was last seen not to be on, or other members on its processors.
    not_alone_ns: AtomicU64,
    /// Idle time of the processors; the one inside of `decisions` takes samples.
    samples: [Sample; 2],
}

/// Belongs to the activation inside of `decisions`.
#[derive(Default)]
pub(super) struct Crowd {
    pub truce: Truce,
    account: Account,
    /// 0, or since when it has lost time in each of its turns.
    watches_since: u64,
    /// The first sample is from the beginning of this turn.
    sampled: bool,
}

impl Ledger {
    /// A virtual processor had this of a processor where so many of this process's are.
    pub(super) fn add(&self, spent: Spent, own: usize) {
        if spent.began > self.not_alone_ns.load(Ordering::Relaxed) {
            let among_us = spent.ran.saturating_mul(own.saturating_sub(1) as u64);
            self.ran.fetch_add(spent.ran, Ordering::Relaxed);
            self.waited
                .fetch_add(spent.waited.saturating_sub(among_us), Ordering::Relaxed);
        }
    }

    /// No slice that began before counts.
    pub(super) fn not_alone(&self, now: u64) {
        self.not_alone_ns.store(now, Ordering::Relaxed);
    }

    fn take(&self) -> Account {
        Account {
            ran: self.ran.swap(0, Ordering::Relaxed),
            waited: self.waited.swap(0, Ordering::Relaxed),
        }
    }
}

impl Crowd {
    /// Takes on a truce. What was counted before says nothing about the time after it.
    pub(super) fn make(&mut self, truce: Truce, ledger: &Ledger, now: u64) {
        self.truce = truce;
        self.account = Account::default();
        ledger.take();
        self.watches_since = now;
        self.sampled = false;
    }

    /// A turn begins, and others wait.
    pub(super) fn turn_begins(&mut self, ledger: &Ledger, now: u64) {
        self.sampled = self.watches_since != 0;
        if self.sampled {
            ledger.samples[0].take(now);
        }
    }

    /// A turn on these processors is over: the truce that has to begin now, if there is one.
    pub(super) fn judge(
        &mut self,
        ledger: &Ledger,
        processors: impl Iterator<Item = u32> + Clone,
        now: u64,
        times: &Times,
    ) -> Option<Truce> {
        self.account.add(ledger.take());
        let account = core::mem::take(&mut self.account);
        let nr_processors = processors.clone().count() as u64;
        let sampled = core::mem::take(&mut self.sampled);
        match account.judge(nr_processors, times) {
            Judgement::Open => {
                self.account = account;
                return None;
            }
            Judgement::Alone => {
                self.watches_since = 0;
                return None;
            }
            Judgement::Lost(_) if self.watches_since == 0 => {
                self.watches_since = now;
                return None;
            }
            Judgement::Lost(_) if !sampled => return None,
            Judgement::Lost(_) => {}
        }
        let [first, last] = &ledger.samples;
        last.take(now);
        let idle = processors
            .map(|processor| last.idle_since(first, processor))
            // The kernel counts whole units.
            .map(|idle| if idle == 0 { 0 } else { idle + UNIT_NS })
            .sum();
        match account.without(idle).judge(nr_processors, times) {
            Judgement::Lost(_) => {
                let is_over = now.saturating_sub(self.watches_since) >= times.watch;
                is_over.then(|| self.truce.next(now, times))
            }
            _ => {
                self.watches_since = 0;
                None
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::rules::TIMES;
    use super::*;

    const MS: u64 = 1_000_000;

    fn ledger() -> Ledger {
        Ledger {
            ran: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            not_alone_ns: AtomicU64::new(0),
            samples: [const { Sample::new() }; 2],
        }
    }

    fn spent(ran: u64, waited: u64) -> Spent {
        Spent {
            began: 100 * MS,
            ran: ran * MS,
            waited: waited * MS,
        }
    }

    /// No processor is idle in what this sees, since there is none of this number.
    fn turn_ends(crowd: &mut Crowd, ledger: &Ledger, now: u64) -> Option<Truce> {
        let truce = crowd.judge(ledger, [1000].into_iter(), now, &TIMES);
        crowd.turn_begins(ledger, now);
        truce
    }

    #[test]
    fn a_loss_counts_when_it_is_seen_again_after_the_watch() {
        let (ledger, mut crowd) = (ledger(), Crowd::default());
        let start = 100_000 * MS;
        for step in 0..5 {
            ledger.add(spent(10, 10), 1);
            assert_eq!(turn_ends(&mut crowd, &ledger, start + step * 20 * MS), None);
        }
        ledger.add(spent(10, 10), 1);
        let now = start + TIMES.watch;
        let truce = turn_ends(&mut crowd, &ledger, now).expect("a truce");
        assert_eq!(truce.until, now + TIMES.first_truce);
        crowd.make(truce, &ledger, now);
        // The first turn after the truce is enough.
        crowd.turn_begins(&ledger, truce.until);
        let now = truce.until + 20 * MS;
        ledger.add(spent(10, 10), 1);
        assert!(turn_ends(&mut crowd, &ledger, now).is_some());
    }

    #[test]
    fn a_turn_without_a_loss_begins_the_watch_anew() {
        let (ledger, mut crowd) = (ledger(), Crowd::default());
        for step in 0..50 {
            let waited = if step % 5 == 4 { 0 } else { 10 };
            ledger.add(spent(10, waited), 1);
            let now = (100_000 + step * 20) * MS;
            assert_eq!(turn_ends(&mut crowd, &ledger, now), None);
        }
    }

    #[test]
    fn a_processor_to_itself_is_no_loss() {
        let (ledger, mut crowd) = (ledger(), Crowd::default());
        for step in 0..50 {
            ledger.add(spent(20, 0), 1);
            let now = (100_000 + step * 20) * MS;
            assert_eq!(turn_ends(&mut crowd, &ledger, now), None);
        }
    }

    #[test]
    fn waiting_for_each_other_is_no_loss() {
        let (ledger, mut crowd) = (ledger(), Crowd::default());
        for step in 0..50 {
            // Two virtual processors of ours on one processor.
            ledger.add(spent(10, 10), 2);
            let now = (100_000 + step * 20) * MS;
            assert_eq!(turn_ends(&mut crowd, &ledger, now), None);
        }
    }

    #[test]
    fn a_slice_that_began_before_the_turn_says_nothing() {
        let (ledger, mut crowd) = (ledger(), Crowd::default());
        for step in 0..50 {
            ledger.not_alone(101 * MS);
            ledger.add(spent(1, 100), 1);
            let now = (100_000 + step * 20) * MS;
            assert_eq!(turn_ends(&mut crowd, &ledger, now), None);
        }
    }
}
