//! The world [`Sim`]: the simulated machine of `upcall-sim`, driven by seeds.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

use upcall_core::Rank;
use upcall_sim::drive::{self, Asked, Failure};
use upcall_sim::{Gate, Handle, Machine, Me, Plan, Style};

use crate::scenarios::{Facts, Scenario};
use crate::world::{Counters, Kind, Slices, World};

/// How often a scenario repeats what it does, with one seed.
const ROUNDS: u32 = 3;
/// Seeds of each scenario, unless a variable asks for another number.
const SEEDS: u64 = 40;
/// The first word of a failure if this world cannot do what the scenario asks.
const LACKS: &str = "lacks: ";
/// The most nanoseconds that pass between two points without a jump of the clock.
const POINT_NS: u64 = 220;
/// How long a rival has the processors.
const VISIT_NS: u64 = 500_000;
/// After this time another process opens a gate.
const LATER_NS: u64 = 20_000;
/// One of so many seeds is stepped, that is, preempted at any instruction of the runtime. Scenarios about this
/// are stepped with every seed.
const STEPPED: u64 = 4;

/// A thread of a simulated machine.
#[derive(Clone, Copy)]
pub struct Sim(Me);

impl World for Sim {
    const CALL_NS: u64 = 300_000;

    type Handle = Handle;
    type Gate = &'static Gate;

    fn processors(self) -> usize {
        self.0.runtime.vps().len()
    }

    fn rounds(self) -> u32 {
        ROUNDS
    }

    fn spawn(self, body: impl FnOnce(Self) + Send + 'static) -> Handle {
        self.0.spawn(|me| body(Sim(me)))
    }

    fn join(self, handle: Handle) {
        self.0.join(handle);
    }

    fn step(self) {
        self.0.step();
    }

    fn yield_now(self) {
        self.0.yield_now();
    }

    fn wait(self, word: &'static AtomicU32, value: u32) {
        self.0.wait(word, value, None);
    }

    fn wake(self, word: &'static AtomicU32, count: u32) {
        self.0.wake(word, count as usize);
    }

    fn sleep(self, ns: u64) {
        self.0.sleep(ns);
    }

    fn gate(self, kind: Kind) -> Result<&'static Gate, String> {
        Ok(Gate::closed(kind == Kind::Fault))
    }

    fn pass(self, gate: &'static Gate) {
        self.0.pass(gate);
    }

    fn nr_waiting(self, gate: &'static Gate) -> usize {
        gate.nr_waiting()
    }

    fn open(self, gate: &'static Gate, count: usize) {
        self.0.open(gate, count);
    }

    fn open_later(self, gate: &'static Gate, count: usize) {
        let until = self.0.machine.clock.get() + LATER_NS;
        self.0.open_at(gate, count, until);
    }

    fn call_for(self, ns: u64) {
        self.0.call(ns);
    }

    fn busy_ns(self) -> u64 {
        self.0.machine.points.get() * POINT_NS
    }

    fn invite_rival(self) {
        let until = self.0.machine.clock.get() + VISIT_NS;
        self.0.lose_processors(0..self.processors(), until);
    }

    fn has_company(self) -> bool {
        self.0.lacks_processors()
    }

    fn forbid_all_but_one(self) {
        self.0.lose_processors(1..self.processors(), u64::MAX);
    }

    fn allow_all(self) {
        self.0.lose_processors(0..0, self.0.machine.clock.get());
    }

    fn exhaust(self) -> Result<(), String> {
        self.0.exhaust();
        Ok(())
    }

    fn set_priority(self, priority: u32) -> Result<(), String> {
        self.0
            .set_rank(self.0.thread, Rank::COMMON.0 - u64::from(priority));
        Ok(())
    }
}

/// Runs a scenario with many seeds, on machines with this number of virtual processors. A run that fails is not
/// shrunk, because shrinking could take away what the scenario needs, for example time slices.
///
/// # Panics
///
/// When a run fails.
pub fn run(scenario: &Scenario<Sim>, processors: usize) {
    let Scenario { name, .. } = *scenario;
    let title = format!("{name}::with_{processors}");
    if processors < scenario.least {
        return skip(&title, "it takes more processors");
    }
    let attempt = |plan: &Plan| play(scenario, processors, plan);
    let result = match drive::asked(SEEDS) {
        // A single run must hold; it need not come to what the scenario is about.
        Asked::Replay(plan) => attempt(&plan).map(|_| 1),
        Asked::Seeds(seeds) => drive::hunt(seeds.map(Plan::from), attempt),
    };
    match result {
        Ok(happened) => assert_ne!(happened, 0, "{title}: it never came to what it is about"),
        Err(failure) => match failure.what.strip_prefix(LACKS) {
            Some(why) => skip(&title, why.lines().next().unwrap_or("")),
            None => {
                let replay = drive::replay("upcall-conformance", &title, &failure.plan);
                panic!("{title}: {failure}\nreplay: {replay}");
            }
        },
    }
}

/// Makes one run. Returns 1 if it came to what the scenario is about, 0 if not.
fn play(scenario: &Scenario<Sim>, processors: usize, plan: &Plan) -> Result<u64, Failure> {
    let answer = Rc::new(RefCell::new(None));
    let slices = (scenario.slices)(processors);
    let draw = |pick: &mut dyn FnMut(u64) -> u64| style(pick, processors as u64, slices);
    let boot = |machine: &'static Machine| {
        let (body, answer) = (scenario.body, answer.clone());
        upcall_sim::boot(machine, 0, &machine.style.processors, move |me| {
            answer.replace(Some(body(Sim(me)).map(|()| counters(me))));
        });
    };
    drive::play(plan, draw, boot, || {
        let answer = answer.take().ok_or("main did not come to its end")?;
        let facts = Facts {
            processors: processors as u64,
            rounds: u64::from(ROUNDS),
            is_told: true,
            counters: answer.map_err(|why| format!("{LACKS}{why}"))?,
        };
        if !(scenario.holds)(&facts) {
            return Err(format!("does not hold: {:?}", facts.counters));
        }
        Ok(u64::from((scenario.happens)(&facts)))
    })
}

fn skip(title: &str, why: &str) {
    eprintln!("skipped: {title} on sim: {why}");
}

/// Draws a machine. It may be as bad as any, except in what the scenario is about.
fn style(pick: &mut dyn FnMut(u64) -> u64, vps: u64, slices: Slices) -> Style {
    let processors = 1 + pick(vps);
    // Stepping costs a signal for each instruction.
    let stepped = slices == Slices::Shortest || pick(STEPPED) == 0;
    let drawn = Style::draw(pick);
    Style {
        processors: (0..vps).map(|index| (index % processors) as u32).collect(),
        // Another virtual processor's thread that never stops would keep the sentinel from running.
        starved: drawn.starved && processors == vps,
        most_vessels: usize::MAX,
        refusals: 0,
        // A page fault of an idle owner in the poller's seat delays all, by design.
        seat_faults: 0,
        slice: match slices {
            // A thread comes back, looks whether the owner must choose again, and is preempted before it asks
            // for that: it waits for a slice. See `who_comes_back_runs` in the scenarios of `upcall-sim`.
            Slices::Endless if !stepped => u64::MAX,
            Slices::Endless | Slices::Short => 200,
            Slices::Shortest => 20,
        },
        stepped: if stepped { 400 } else { 0 },
        ..drawn
    }
}

fn counters(me: Me) -> Counters {
    let stats = me.runtime.stats();
    Counters {
        blocked: stats.blocked.get(),
        unblocked: stats.unblocked(),
        displaced: stats.displaced.get(),
        added: stats.rung.get(),
        taken: stats.taken.get(),
        preempted: stats.preempted.get(),
        recycled: stats.recycled.get(),
        refused: stats.refused.get(),
        peak: stats.activations.peak(),
    }
}
