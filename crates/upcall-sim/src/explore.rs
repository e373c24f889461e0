//! The policy that looks for bugs: at each point any vessel that can run may run next, and time
//! passes by chance.

use crate::machine::Machine;
use crate::policy::{Call, Next, Policy};
use crate::style::Style;

/// Any vessel that can run may run next. Once nothing is drawn any more they take turns.
pub struct Explore {
    /// Which vessel ran last on each processor.
    current: Vec<usize>,
    /// Which ran last.
    last: usize,
    /// Room for a choice.
    some: Vec<usize>,
}

impl Explore {
    /// For a machine of this style.
    pub fn new(style: &Style) -> Self {
        Explore {
            current: vec![usize::MAX; style.processors.len()],
            last: 0,
            some: Vec::new(),
        }
    }

    fn pass_time(machine: &Machine) -> u64 {
        let now = machine.clock.get() + 20 + machine.pick(200);
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
            Call::Yield => Next::GiveWay,
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
