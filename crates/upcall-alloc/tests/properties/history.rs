//! Random histories.

use proptest::collection::vec;
use proptest::prelude::*;
use upcall_alloc::Terms;

/// The slice of all histories.
pub const SLICE: u64 = 1000;

/// Something that happens. Spaces and processors are named by an index into those that there are.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A space joins.
    Join { priority: u8, want: u32 },
    /// A space leaves.
    Leave { space: usize },
    /// A space says what it needs.
    Need { space: usize, want: u32 },
    /// A space says that one of the processors that it uses is idle.
    Idle { space: usize, which: usize },
    /// A space uses a resting processor again.
    Busy { space: usize, which: usize },
    /// A processor comes.
    Add { number: u32 },
    /// A processor goes.
    Remove { which: usize },
    /// A space changes its priority.
    Priority { space: usize, priority: u8 },
    /// Time passes, with ticks whenever they are due.
    Pass { ns: u64 },
}

/// A machine and what happens on it.
#[derive(Clone, Debug)]
pub struct History {
    /// Processors in the beginning.
    pub processors: u32,
    /// How long an idle processor is kept.
    pub spell_ns: u64,
    /// What happens.
    pub events: Vec<Event>,
}

impl History {
    /// What the allocator is told.
    pub fn terms(&self) -> Terms {
        Terms {
            slice_ns: SLICE,
            spell_ns: self.spell_ns,
        }
    }
}

fn event(priorities: u8) -> impl Strategy<Value = Event> {
    let (space, which) = (0..64_usize, 0..64_usize);
    let want = prop_oneof![4 => 0..6_u32, 2 => 0..20_u32, 1 => Just(u32::MAX)];
    let ns = prop_oneof![3 => 0..SLICE, 2 => 0..SLICE * 10, 1 => 0..SLICE * 1000];
    let priority = 0..priorities;
    prop_oneof![
        4 => (priority.clone(), want.clone()).prop_map(|(priority, want)| Event::Join { priority, want }),
        1 => space.clone().prop_map(|space| Event::Leave { space }),
        6 => (space.clone(), want).prop_map(|(space, want)| Event::Need { space, want }),
        5 => (space.clone(), which.clone()).prop_map(|(space, which)| Event::Idle { space, which }),
        2 => (space.clone(), which.clone()).prop_map(|(space, which)| Event::Busy { space, which }),
        1 => (0..24_u32).prop_map(|number| Event::Add { number }),
        1 => which.prop_map(|which| Event::Remove { which }),
        1 => (space, priority).prop_map(|(space, priority)| Event::Priority { space, priority }),
        6 => ns.prop_map(|ns| Event::Pass { ns }),
    ]
}

fn drawn(priorities: u8, spell: impl Strategy<Value = u64>) -> impl Strategy<Value = History> {
    (1..13_u32, spell, vec(event(priorities), 1..60)).prop_map(|(processors, spell_ns, events)| {
        History {
            processors,
            spell_ns,
            events,
        }
    })
}

/// All sorts.
pub fn histories() -> impl Strategy<Value = History> {
    drawn(3, prop_oneof![1 => Just(0), 3 => 1..SLICE])
}

/// Those in which idle processors are given away at once.
pub fn without_spells() -> impl Strategy<Value = History> {
    drawn(3, Just(0))
}

/// Those in which all spaces are equals.
pub fn of_equals() -> impl Strategy<Value = History> {
    drawn(1, prop_oneof![1 => Just(0), 1 => 1..SLICE])
}
