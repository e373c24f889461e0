//! The policy that looks for bugs. At each point any vessel that can run may run next, and time passes by chance.

use crate::machine::Machine;
use crate::machine::policy::{Call, Next, Policy};
use crate::setup::style::Style;

/// Any vessel that can run may run next. Once nothing is drawn any more they take turns.
pub struct Explore {
    /// Which vessel ran last on each processor.
    current: Vec<usize>,
    last: usize,
    /// Vessels whose processors others have, and for how many more choices.
    stalled: Vec<(usize, u64)>,
    /// Room for a choice.
    some: Vec<usize>,
}

/// Choices for which a vessel is kept from running, at most: long enough for another activation to become
/// an owner, to run a thread, and to block.
const STALL: u64 = 200;

/// It is so many times as likely where a vessel gives way as at any other point.
const YIELDS: u64 = 10;

impl Explore {
    /// For a machine of this style.
    pub fn new(style: &Style) -> Self {
        Explore {
            current: vec![usize::MAX; style.processors.len()],
            last: 0,
            stalled: Vec::new(),
            some: Vec::new(),
        }
    }

    fn pass_time(machine: &Machine) -> u64 {
        let now = machine.clock.get() + 20 + machine.pick(machine.style.pace);
        machine.clock.set(now);
        now
    }

    fn pick_vessel(&mut self, machine: &Machine) -> Option<usize> {
        self.find_runnable(machine);
        if self.some.is_empty() {
            return None;
        }
        if machine.is_calm() {
            let after = self.some.iter().filter(|&&index| index > self.last).min();
            return after.or(self.some.iter().min()).copied();
        }
        self.keep_back(machine);
        let one = self.some[machine.pick(self.some.len() as u64) as usize];
        if !machine.style.bound {
            return Some(one);
        }
        // Mostly the same as before on that processor, unless it gave way.
        let processor = machine.vessel(one, |vessel| vessel.processor.get());
        let before = &mut self.current[processor as usize];
        let stays = *before != usize::MAX
            && self.some.contains(before)
            && machine.vessel(*before, |vessel| {
                vessel.processor.get() == processor && !vessel.yields.get()
            });
        if !stays || machine.chance(6) {
            *before = one;
        }
        Some(*before)
    }

    /// Keeps vessels from running for a while, if others can run: how far those get meanwhile is not
    /// bounded by what they do. No round ends before they have run; so they are none for which rounds do not wait.
    fn keep_back(&mut self, machine: &Machine) {
        if machine.chance(machine.style.stalls) {
            let one = self.some[machine.pick(self.some.len() as u64) as usize];
            self.stall(machine, one);
        }
        self.stalled.retain_mut(|(_, choices)| {
            *choices -= 1;
            *choices != 0
        });
        let stalled = &self.stalled;
        let is_kept = |index: usize| stalled.iter().any(|&(one, _)| one == index);
        if !self.some.iter().all(|&index| is_kept(index)) {
            self.some.retain(|&index| !is_kept(index));
        }
    }

    fn stall(&mut self, machine: &Machine, one: usize) {
        if !machine.is_starved(one) {
            self.stalled.push((one, 2 + machine.pick(STALL)));
        }
    }

    /// Those that can run, without the sentinels on whose processor anything else can.
    fn find_runnable(&mut self, machine: &Machine) {
        self.some.clear();
        self.some.extend_from_slice(&machine.runnable.borrow());
        if !(machine.style.sentinel && machine.style.starved) {
            return;
        }
        let is_sentinel = |index: usize| machine.vessel(index, |vessel| vessel.sentinel.get());
        let processor = |index: usize| machine.vessel(index, |vessel| vessel.processor.get());
        let mut busy = [false; 128];
        for &index in self.some.iter().filter(|&&index| !is_sentinel(index)) {
            busy[processor(index) as usize] = true;
        }
        self.some
            .retain(|&index| !is_sentinel(index) || !busy[processor(index) as usize]);
    }
}

impl Policy for Explore {
    fn at_point(&mut self, machine: &Machine, call: Call) -> Next {
        match call {
            Call::Yield => {
                if machine.chance(machine.style.stalls / YIELDS) {
                    self.stall(machine, machine.running.get());
                }
                Next::GiveWay
            }
            Call::Preempted if machine.chance(2) => Next::GiveWay,
            Call::Preempted => Next::Stop,
            _ if machine.chance(3) => Next::Stop,
            _ => Next::GoOn,
        }
    }

    fn now(&mut self, machine: &Machine) -> u64 {
        Self::pass_time(machine)
    }

    fn choose(&mut self, machine: &Machine) -> Option<usize> {
        let chosen = self.pick_vessel(machine)?;
        self.last = chosen;
        Self::pass_time(machine);
        if machine.chance(machine.style.slice) {
            machine.vessel(chosen, |vessel| vessel.slice_over.set(true));
        }
        Some(chosen)
    }

    fn jump(&mut self, machine: &Machine, to: u64) {
        machine.clock.set(to.max(machine.clock.get()));
    }
}
