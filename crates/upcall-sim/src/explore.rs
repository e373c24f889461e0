//! Exploring: anything may happen at any point, and every scenario runs with many seeds.
//!
//! `UPCALL_TEST_SEEDS=N` runs N seeds of each scenario; `UPCALL_TEST_SEED=S` replays one. A failing
//! run prints its seed and the state of the machine.

use std::cell::Cell;
use std::sync::Once;

use crate::bound;
use crate::machine::{Doing, Machine};
use crate::policy::{Call, Next, Policy};
use crate::style::Style;
use crate::threads::{self, Me};

/// Seeds of each scenario in an ordinary run.
const SEEDS: u64 = 50;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `main` with many seeds.
pub fn explore(name: &'static str, main: fn(Me)) {
    announce_panics();
    let seeds = match number("UPCALL_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("UPCALL_TEST_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        RUN.set((name, seed));
        let machine = Box::into_raw(Box::new(Machine::new(
            seed,
            1,
            |pick| Style::draw(pick),
            |style| Box::new(Explore::new(style)),
        )));
        // SAFETY: freed below, when nothing refers to it any more.
        let borrowed: &'static Machine = unsafe { &*machine };
        threads::boot(borrowed, 0, &borrowed.style.processors, main);
        bound::begin(borrowed);
        let result = borrowed.run();
        bound::end();
        if let Err(what) = result {
            let state = borrowed.describe();
            panic!(
                "{name}: {what}\nreplay: UPCALL_TEST_SEED={seed} cargo test --release -p upcall-sim {name}\n{state}"
            );
        }
        // SAFETY: made above; the run is over.
        drop(unsafe { Box::from_raw(machine) });
    }
}

/// A panic inside the runtime cannot unwind: the seed is printed with its message.
fn announce_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |information| {
            let (name, seed) = RUN.get();
            eprintln!("{name} with UPCALL_TEST_SEED={seed}:");
            usual(information);
        }));
    });
}

thread_local! {
    /// What is being run, for the message of a panic that cannot unwind.
    static RUN: Cell<(&'static str, u64)> = const { Cell::new(("", 0)) };
}

/// Any vessel that can run may run next, and time passes by chance.
pub struct Explore {
    /// Which vessel ran last on each processor.
    current: Vec<usize>,
}

impl Explore {
    /// For a machine of this style.
    pub fn new(style: &Style) -> Self {
        Explore {
            current: vec![usize::MAX; style.processors.len()],
        }
    }

    fn pass_time(machine: &Machine) -> u64 {
        let now = machine.clock.get() + 20 + machine.pick(200);
        machine.clock.set(now);
        now
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

impl Explore {
    fn pick_vessel(&mut self, machine: &Machine) -> Option<usize> {
        let runnable: Vec<usize> = (machine.vessels.borrow().iter().enumerate())
            .filter(|(_, vessel)| vessel.doing.get() == Doing::Runnable)
            .map(|(index, _)| index)
            .collect();
        let runnable = if machine.style.sentinel && machine.style.starved {
            Self::without_starved(machine, runnable)
        } else {
            runnable
        };
        if runnable.is_empty() {
            return None;
        }
        let one = runnable[machine.pick(runnable.len() as u64) as usize];
        if !machine.style.bound {
            return Some(one);
        }
        // Mostly the same as before on that processor, unless it gave way.
        let processor = machine.vessel(one, |vessel| vessel.processor.get());
        let before = &mut self.current[processor as usize];
        let stays = runnable.contains(before)
            && machine.vessel(*before, |vessel| {
                vessel.processor.get() == processor && !vessel.yields.get()
            });
        if !stays || machine.chance(6) {
            *before = one;
        }
        Some(*before)
    }

    /// Without the sentinels on whose processor anything else can run.
    fn without_starved(machine: &Machine, runnable: Vec<usize>) -> Vec<usize> {
        let is_sentinel = |index: usize| machine.vessel(index, |vessel| vessel.sentinel.get());
        let processor = |index: usize| machine.vessel(index, |vessel| vessel.processor.get());
        let busy: Vec<u32> = (runnable.iter().filter(|&&index| !is_sentinel(index)))
            .map(|&index| processor(index))
            .collect();
        (runnable.into_iter())
            .filter(|&index| !is_sentinel(index) || !busy.contains(&processor(index)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the bound is for: the run ends, and says so.
    #[test]
    fn an_endless_loop_ends_the_run() {
        let style = |pick: &mut dyn FnMut(u64) -> u64| Style {
            stepped: 0,
            ..Style::draw(pick)
        };
        let policy = |style: &Style| -> Box<dyn Policy> { Box::new(Explore::new(style)) };
        let machine: &'static Machine = Box::leak(Box::new(Machine::new(1, 1, style, policy)));
        threads::boot(machine, 0, &machine.style.processors, |me: Me| {
            me.runtime.enter();
            loop {
                std::hint::spin_loop();
            }
        });
        bound::begin(machine);
        let result = machine.run();
        bound::end();
        assert!(result.is_err_and(|what| what.contains("endless loop")));
    }
}
