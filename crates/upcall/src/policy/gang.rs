//! Gang scheduling (Ousterhout 1982; Feitelson and Rudolph 1992).

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Id, Policy, Rank, Threads, Why};

/// The threads of a group run together or not at all. Groups take turns of this length. A thread's group is its
/// [tag](crate::thread::Builder::tag). Threads without a tag (tag 0) are a group too. They also run in the turns of
/// other groups that leave a processor free.
///
/// It pays if the threads of a group wait for one another at short intervals, in loops that look rather than in locks:
/// a thread that runs without the others looks in vain. A group with more threads than there are virtual processors
/// takes turns within itself. Turns end early when all threads of the group wait.
#[derive(Debug)]
pub struct Gang {
    turn: Duration,
    /// The living threads of each group that are ready or run.
    groups: BTreeMap<u64, Vec<Id>>,
    current: Option<u64>,
}

const RUNS: Rank = Rank(Rank::COMMON.0 - 1);

impl Gang {
    /// Groups with turns of this length.
    pub fn new(turn: Duration) -> Self {
        Gang {
            turn,
            groups: BTreeMap::new(),
            current: None,
        }
    }

    fn rank_of(&self, group: u64) -> Rank {
        match group {
            group if Some(group) == self.current => RUNS,
            0 => Rank::COMMON,
            _ => Rank::HELD,
        }
    }

    fn leave(&mut self, threads: &mut Threads, thread: Id) {
        let group = threads.tag(thread).unwrap_or(0);
        if let Some(members) = self.groups.get_mut(&group) {
            members.retain(|&member| member != thread);
            if members.is_empty() {
                self.groups.remove(&group);
                if Some(group) == self.current {
                    self.pass(threads);
                }
            }
        }
    }

    /// The next group has its turn.
    fn pass(&mut self, threads: &mut Threads) {
        let last = self.current.unwrap_or(0);
        let mut after = self.groups.range(last.saturating_add(1)..);
        let next = after.next().or_else(|| self.groups.iter().next());
        let next = next.map(|(&group, _)| group);
        let before = std::mem::replace(&mut self.current, next);
        if before == next {
            return;
        }
        // First those that stop: the processors are for the others.
        for group in [before, next].into_iter().flatten() {
            let rank = self.rank_of(group);
            for &member in self.groups.get(&group).into_iter().flatten() {
                threads.set_rank(member, rank);
            }
        }
    }
}

impl Policy for Gang {
    fn ready(&mut self, threads: &mut Threads, thread: Id, _: Why) -> Rank {
        let group = threads.tag(thread).unwrap_or(0);
        let members = self.groups.entry(group).or_default();
        if !members.contains(&thread) {
            members.push(thread);
        }
        self.current.get_or_insert(group);
        self.rank_of(group)
    }

    fn blocked(&mut self, threads: &mut Threads, thread: Id) {
        self.leave(threads, thread);
    }

    fn ended(&mut self, threads: &mut Threads, thread: Id) {
        self.leave(threads, thread);
    }

    fn tick(&mut self, threads: &mut Threads) {
        self.pass(threads);
    }

    fn period(&self) -> Option<Duration> {
        Some(self.turn)
    }
}
