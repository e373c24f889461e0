//! Plays a history on an allocator and shows each call's effect to an observer.

use std::collections::BTreeMap;

use upcall_alloc::{Allocator, Change, Priority, ProcessorId, Rules, SpaceId, Standing};

use crate::Verdict;
use crate::history::{Event, History};

/// All spaces at some moment: what decides about each.
pub type Standings = BTreeMap<SpaceId, Standing>;

/// One call.
#[derive(Debug)]
pub struct Step {
    /// What happened; for a tick, that time passes.
    pub event: Event,
    /// When.
    pub now_ns: u64,
    pub before: Standings,
    pub after: Standings,
    /// The answer.
    pub changes: Vec<Change>,
    /// Since when each resting processor rested, before the call.
    pub rested: BTreeMap<ProcessorId, u64>,
}

/// The machine under test.
pub struct World<R: Rules> {
    pub allocator: Allocator<R>,
    /// The time.
    pub now_ns: u64,
    /// The spaces, in the order of their joining.
    pub spaces: Vec<SpaceId>,
    pub processors: Vec<ProcessorId>,
    rested: BTreeMap<ProcessorId, u64>,
}

impl<R: Rules> World<R> {
    /// A machine with the processors of `history`, before anything happens.
    pub fn new(history: &History) -> Self {
        let mut allocator = Allocator::with_rules(history.terms());
        let processors: Vec<_> = (0..history.processors).map(ProcessorId).collect();
        for &processor in &processors {
            allocator.add(0, processor).expect("it is new");
        }
        World {
            allocator,
            now_ns: 0,
            spaces: Vec::new(),
            processors,
            rested: BTreeMap::new(),
        }
    }

    /// All spaces now.
    pub fn standings(&self) -> Standings {
        let spaces = self.allocator.spaces();
        spaces.map(|(id, space)| (id, space.standing())).collect()
    }

    /// How many processors no space has.
    pub fn free(&self) -> usize {
        let free = |&&processor: &&ProcessorId| self.allocator.owner(processor).is_none();
        self.processors.iter().filter(free).count()
    }

    /// Since when each resting processor rests.
    pub fn rested(&self) -> &BTreeMap<ProcessorId, u64> {
        &self.rested
    }

    pub fn play(
        &mut self,
        event: Event,
        observe: &mut impl FnMut(&Self, &Step) -> Verdict,
    ) -> Verdict {
        let Event::Pass { ns } = event else {
            return self.step(event, observe);
        };
        let end_ns = self.now_ns + ns;
        while let Some(next_ns) = self.allocator.next_ns().filter(|&next| next < end_ns) {
            if next_ns <= self.now_ns {
                return Err(format!("a tick is due at {next_ns}, which has passed"));
            }
            self.now_ns = next_ns;
            self.step(event, observe)?;
        }
        self.now_ns = end_ns;
        self.step(event, observe)
    }

    fn step(&mut self, event: Event, observe: &mut impl FnMut(&Self, &Step) -> Verdict) -> Verdict {
        let before = self.standings();
        let Some(changes) = self.call(event) else {
            return Ok(());
        };
        let rested = self.rested.clone();
        let now_ns = self.now_ns;
        let resting: Vec<_> = self
            .allocator
            .spaces()
            .flat_map(|(_, space)| space.resting())
            .collect();
        self.rested
            .retain(|processor, _| resting.contains(&processor));
        for &&processor in &resting {
            self.rested.entry(processor).or_insert(now_ns);
        }
        let step = Step {
            event,
            now_ns,
            before,
            after: self.standings(),
            changes,
            rested,
        };
        observe(self, &step)
    }

    /// Tells the allocator, unless the event names what is not there.
    fn call(&mut self, event: Event) -> Option<Vec<Change>> {
        let now_ns = self.now_ns;
        let named =
            |spaces: &[SpaceId], index: usize| spaces.get(index % spaces.len().max(1)).copied();
        let answer = match event {
            Event::Join { priority, want } => {
                let space = self.allocator.join(now_ns, Priority(priority));
                self.spaces.push(space);
                self.allocator.need(now_ns, space, want)
            }
            Event::Leave { space } => {
                let id = named(&self.spaces, space)?;
                self.spaces.retain(|&other| other != id);
                self.allocator.leave(now_ns, id)
            }
            Event::Need { space, want } => {
                self.allocator
                    .need(now_ns, named(&self.spaces, space)?, want)
            }
            Event::Idle { space, which } => {
                let id = named(&self.spaces, space)?;
                let running = self.allocator.space(id)?.running();
                let processor = *running.get(which % running.len().max(1))?;
                self.allocator.idle(now_ns, id, processor)
            }
            Event::Busy { space, which } => {
                let id = named(&self.spaces, space)?;
                let resting = self.allocator.space(id)?.resting();
                let processor = *resting.get(which % resting.len().max(1))?;
                self.allocator.busy(now_ns, id, processor)
            }
            Event::Add { number } => {
                let processor = ProcessorId(number);
                if self.processors.contains(&processor) {
                    return None;
                }
                self.processors.push(processor);
                self.allocator.add(now_ns, processor)
            }
            Event::Remove { which } => {
                if self.processors.is_empty() {
                    return None;
                }
                let processor = self.processors.swap_remove(which % self.processors.len());
                self.allocator.remove(now_ns, processor)
            }
            Event::Priority { space, priority } => {
                let id = named(&self.spaces, space)?;
                self.allocator.set_priority(now_ns, id, Priority(priority))
            }
            Event::Pass { .. } => Ok(self.allocator.tick(now_ns)),
        };
        Some(answer.expect("what is named is there").to_vec())
    }
}

/// Plays a history to its end.
pub fn play<R: Rules>(
    history: &History,
    mut observe: impl FnMut(&World<R>, &Step) -> Verdict,
) -> Result<World<R>, String> {
    let mut world = World::new(history);
    for &event in &history.events {
        world.play(event, &mut observe)?;
    }
    Ok(world)
}

/// Plays a history to its end, to see what `observe` says.
pub fn watch<R: Rules>(
    history: &History,
    observe: impl FnMut(&World<R>, &Step) -> Verdict,
) -> Verdict {
    play(history, observe).map(drop)
}
