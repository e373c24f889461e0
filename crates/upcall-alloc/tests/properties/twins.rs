//! The same story told twice: in one world a space says what it needs, in the other something else.

use proptest::collection::vec;
use proptest::prelude::*;
use upcall_alloc::{Priority, Rules, SpaceId};

use crate::history::{History, SLICE};
use crate::world::World;

/// What one space truly needs for some time.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// How long.
    pub ns: u64,
    /// How many processors it can use.
    pub need: u32,
    /// What it may say instead.
    pub lie: u32,
    /// Another space that changes its need in the beginning, by its place among the others.
    pub other: Option<(usize, u32)>,
}

/// A machine, a space whose honesty is in question, and others.
#[derive(Clone, Debug)]
pub struct Story {
    /// How many processors there are.
    pub processors: u32,
    /// What the others need in the beginning.
    pub others: Vec<u32>,
    /// The needs of the one.
    pub phases: Vec<Phase>,
}

pub fn stories() -> impl Strategy<Value = Story> {
    let ns = prop_oneof![1 => 1..SLICE, 2 => 1..SLICE * 8, 1 => 1..SLICE * 50];
    let other = prop_oneof![4 => Just(None), 1 => (0..64_usize, 0..12_u32).prop_map(Some)];
    let phase = (ns, 0..8_u32, 0..16_u32, other).prop_map(|(ns, need, lie, other)| Phase {
        ns,
        need,
        lie,
        other,
    });
    (1..9_u32, vec(1..12_u32, 1..7), vec(phase, 1..60)).prop_map(|(processors, others, phases)| {
        Story {
            processors,
            others,
            phases,
        }
    })
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Processor time that the honest one could use.
    pub honest_ns: i128,
    /// Processor time that the other one could use.
    pub other_ns: i128,
    /// How many more processors the other one could use, at some moment.
    pub most: i64,
    /// How often a true need changed, that of the one or of another.
    pub changes: i128,
    /// How often a true need or what the other one said changed.
    pub statements: i128,
}

struct Twin<R: Rules> {
    world: World<R>,
    one: SpaceId,
    others: Vec<SpaceId>,
}

impl<R: Rules> Twin<R> {
    fn new(story: &Story) -> Self {
        let history = History {
            processors: story.processors,
            spell_ns: 0,
            events: Vec::new(),
        };
        let mut allocator = World::<R>::new(&history);
        let mut join = |want| {
            let space = allocator.allocator.join(0, Priority(0));
            allocator
                .allocator
                .need(0, space, want)
                .expect("it has joined");
            space
        };
        let one = join(0);
        let others = story.others.iter().map(|&want| join(want)).collect();
        Twin {
            world: allocator,
            one,
            others,
        }
    }

    fn useful(&self, need: u32) -> i64 {
        let space = self.world.allocator.space(self.one);
        let running = space.map_or(0, |space| space.running().len() as u32);
        i64::from(running.min(need))
    }

    fn begin(&mut self, now_ns: u64, phase: &Phase, want: u32) {
        let other = phase.other.map(|(place, want)| {
            let id = self.others[place % self.others.len()];
            (id, want)
        });
        for (id, want) in other.into_iter().chain([(self.one, want)]) {
            let answer = self.world.allocator.need(now_ns, id, want);
            answer.expect("it has joined");
        }
    }
}

/// Tells a story in both worlds at once; `says` is what the other one says in each phase.
pub fn tell<R: Rules>(story: &Story, mut says: impl FnMut(&Phase) -> u32) -> Outcome {
    let mut twins = [Twin::<R>::new(story), Twin::new(story)];
    let mut outcome = Outcome::default();
    let (mut now_ns, mut needed, mut said) = (0, 0, 0);
    for phase in &story.phases {
        let saying = says(phase);
        let changes = phase.need != needed || phase.other.is_some();
        outcome.changes += i128::from(changes);
        outcome.statements += i128::from(changes || saying != said);
        (needed, said) = (phase.need, saying);
        twins[0].begin(now_ns, phase, phase.need);
        twins[1].begin(now_ns, phase, saying);
        let end_ns = now_ns + phase.ns;
        while now_ns < end_ns {
            let due = twins
                .iter()
                .filter_map(|twin| twin.world.allocator.next_ns())
                .min();
            let until_ns = due.map_or(end_ns, |due| due.min(end_ns));
            let [honest, other] = [0, 1].map(|index| twins[index].useful(phase.need));
            outcome.most = outcome.most.max(other - honest);
            outcome.honest_ns += i128::from(honest) * i128::from(until_ns - now_ns);
            outcome.other_ns += i128::from(other) * i128::from(until_ns - now_ns);
            now_ns = until_ns;
            for twin in &mut twins {
                twin.world.allocator.tick(now_ns);
            }
        }
    }
    outcome
}
