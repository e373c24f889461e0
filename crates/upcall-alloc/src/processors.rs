//! The processors, each in one state: absent, free, running for a space, or resting with it.
//!
//! A space holds its processors in two vectors, and a processor knows its place there, so that
//! every change of state is O(1), besides the two sorted sets of processors that can be given away.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::space::{ProcessorId, Space, SpaceId};

/// What a processor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is not there.
    Absent,
    /// Nobody has it. Within the call by which a space leaves, that space is still named.
    Free { left: Option<SpaceId> },
    /// At this place among the running ones of its space.
    Running { space: SpaceId, place: u32 },
    /// At this place among the resting ones of its space.
    Resting {
        space: SpaceId,
        place: u32,
        rest: Rest,
    },
}

/// A rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// When it began.
    pub(crate) since_ns: u64,
    /// Least is given away first.
    pub(crate) order: u64,
}

/// All processors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processors {
    all: Vec<State>,
    free: BTreeSet<ProcessorId>,
    /// Those that rest, by [`Rest::order`].
    resting: BTreeSet<(u64, ProcessorId)>,
}

impl Processors {
    fn state(&self, processor: ProcessorId) -> State {
        let state = self.all.get(processor.0 as usize);
        *state.unwrap_or(&State::Absent)
    }

    fn place(&mut self, processor: ProcessorId) -> &mut u32 {
        match &mut self.all[processor.0 as usize] {
            State::Running { place, .. } | State::Resting { place, .. } => place,
            state => unreachable!("{processor:?} in a space's list is {state:?}"),
        }
    }

    pub(crate) fn is_present(&self, processor: ProcessorId) -> bool {
        self.state(processor) != State::Absent
    }

    pub(crate) fn is_running(&self, processor: ProcessorId) -> bool {
        matches!(self.state(processor), State::Running { .. })
    }

    pub(crate) fn owner(&self, processor: ProcessorId) -> Option<SpaceId> {
        match self.state(processor) {
            State::Running { space, .. } | State::Resting { space, .. } => Some(space),
            State::Absent | State::Free { .. } => None,
        }
    }

    /// A new processor, free.
    pub(crate) fn add(&mut self, processor: ProcessorId) {
        let index = processor.0 as usize;
        if index >= self.all.len() {
            self.all.resize(index + 1, State::Absent);
        }
        self.free(processor, None);
    }

    /// A processor that no space has goes.
    pub(crate) fn forget(&mut self, processor: ProcessorId) {
        self.free.remove(&processor);
        self.all[processor.0 as usize] = State::Absent;
    }

    /// Nobody has it, `left` had it when this call began.
    pub(crate) fn free(&mut self, processor: ProcessorId, left: Option<SpaceId>) {
        self.all[processor.0 as usize] = State::Free { left };
        self.free.insert(processor);
    }

    /// The space that had a free processor when this call began; asked once.
    pub(crate) fn left(&mut self, processor: ProcessorId) -> Option<SpaceId> {
        match &mut self.all[processor.0 as usize] {
            State::Free { left } => left.take(),
            _ => None,
        }
    }

    /// The free processor next to `anchor` in number.
    pub(crate) fn nearest_free(&self, anchor: Option<&ProcessorId>) -> Option<ProcessorId> {
        let Some(&anchor) = anchor else {
            return self.free.first().copied();
        };
        let above = self.free.range(anchor..).next().copied();
        let below = self.free.range(..anchor).next_back().copied();
        match (above, below) {
            (Some(above), Some(below)) if anchor.0 - below.0 < above.0 - anchor.0 => Some(below),
            (above, below) => above.or(below),
        }
    }

    /// The resting processor that is given away first, and since when it rests.
    pub(crate) fn first_resting(&self) -> Option<(ProcessorId, u64)> {
        let &(_, processor) = self.resting.first()?;
        match self.state(processor) {
            State::Resting { rest, .. } => Some((processor, rest.since_ns)),
            _ => None,
        }
    }

    /// Whether and how the processors of `space` are used follows from what it wants: the one that
    /// it has used for the shortest time rests first, the one that has rested for the shortest time
    /// is used first.
    pub(crate) fn balance(&mut self, id: SpaceId, space: &mut Space, rest: Rest) {
        let want = space.want as usize;
        while space.running.len() > want
            && let Some(&newest) = space.running.last()
        {
            self.rest(newest, (id, &mut *space), rest);
        }
        while space.running.len() < want
            && let Some(&newest) = space.resting.last()
        {
            self.detach(newest, space);
            self.run(newest, id, space);
        }
    }

    /// A processor that no space has runs for `space`.
    pub(crate) fn run(&mut self, processor: ProcessorId, id: SpaceId, space: &mut Space) {
        self.free.remove(&processor);
        let place = space.running.len() as u32;
        space.running.push(processor);
        self.all[processor.0 as usize] = State::Running { space: id, place };
    }

    /// A running processor of `space` rests.
    pub(crate) fn rest(
        &mut self,
        processor: ProcessorId,
        (id, space): (SpaceId, &mut Space),
        rest: Rest,
    ) {
        self.detach(processor, space);
        let place = space.resting.len() as u32;
        space.resting.push(processor);
        let index = processor.0 as usize;
        self.all[index] = State::Resting {
            space: id,
            place,
            rest,
        };
        self.resting.insert((rest.order, processor));
    }

    /// Takes a processor out of its space's lists; the caller says at once what becomes of it.
    pub(crate) fn detach(&mut self, processor: ProcessorId, space: &mut Space) {
        let (list, place) = match self.state(processor) {
            State::Running { place, .. } => (&mut space.running, place),
            State::Resting { place, rest, .. } => {
                self.resting.remove(&(rest.order, processor));
                (&mut space.resting, place)
            }
            State::Absent | State::Free { .. } => return,
        };
        list.swap_remove(place as usize);
        if let Some(&moved) = list.get(place as usize) {
            *self.place(moved) = place;
        }
    }
}
