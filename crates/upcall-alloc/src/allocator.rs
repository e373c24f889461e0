//! The allocator: events in, changes of ownership out.
//!
//! Each call, in this order:
//!
//! 1. notes what happened: a need, an idle processor, one that is gone;
//! 2. moves one processor at a time to the space that is served next, from where [`Rules::source`] says, until it says
//!    nowhere. Each move serves the space that has least, and takes only from a space that has at least two more. So
//!    the moves end, and no processor moves twice;
//! 3. remembers when to be asked again ([`Allocator::next_ns`]).

use alloc::vec::Vec;
use core::fmt;

use slotmap::SlotMap;

use crate::order::Order;
use crate::processors::{Processors, Rest};
use crate::rules::{Moment, Priority, Rules, Source, SpaceSharing, Terms, Verdict};
use crate::space::ProcessorId;
use crate::space::{Space, SpaceId};

/// One processor changes hands: it is taken from one space, granted to the other, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The processor.
    pub processor: ProcessorId,
    /// The space that had it; none, if it was free or is new.
    pub from: Option<SpaceId>,
    /// The space that has it; none, if it is free or gone.
    pub to: Option<SpaceId>,
}

/// Why a call changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no such space, or not any more.
    UnknownSpace(SpaceId),
    /// There is no such processor, or not any more.
    UnknownProcessor(ProcessorId),
    /// There is such a processor already.
    KnownProcessor(ProcessorId),
    /// The processor is not, or not any more, this space's.
    NotItsOwn(SpaceId, ProcessorId),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::UnknownSpace(space) => write!(f, "there is no address space {space:?}"),
            Error::UnknownProcessor(cpu) => write!(f, "there is no processor {}", cpu.0),
            Error::KnownProcessor(cpu) => write!(f, "there is a processor {} already", cpu.0),
            Error::NotItsOwn(space, cpu) => {
                write!(f, "processor {} is not that of space {space:?}", cpu.0)
            }
        }
    }
}

impl core::error::Error for Error {}

/// What a call has changed; the slice is the allocator's until the next call.
pub type Changes<'a> = Result<&'a [Change], Error>;

/// Which space has which processor.
///
/// All times are nanoseconds since any moment, the same for all calls; one that is less than an earlier one counts as
/// that.
#[derive(Clone, Debug)]
pub struct Allocator<R: Rules = SpaceSharing> {
    terms: Terms,
    now_ns: u64,
    next_ns: Option<u64>,
    /// How many moments there have been.
    moments: u64,
    spaces: SlotMap<SpaceId, Space>,
    processors: Processors,
    order: Order<R>,
    changes: Vec<Change>,
}

impl Allocator {
    /// No processors and no spaces, under the policy of this crate.
    pub fn new(terms: Terms) -> Self {
        Self::with_rules(terms)
    }
}

impl<R: Rules> Allocator<R> {
    /// No processors and no spaces.
    pub fn with_rules(terms: Terms) -> Self {
        Allocator {
            terms,
            now_ns: 0,
            next_ns: None,
            moments: 0,
            spaces: SlotMap::with_key(),
            processors: Processors::default(),
            order: Order::new(),
            changes: Vec::new(),
        }
    }

    /// A processor comes: hot-plug, or the machine at the beginning.
    pub fn add(&mut self, now_ns: u64, processor: ProcessorId) -> Changes<'_> {
        if self.processors.is_present(processor) {
            return Err(Error::KnownProcessor(processor));
        }
        self.begin(now_ns);
        self.processors.add(processor);
        Ok(self.divide())
    }

    /// A processor goes. Its owner, if it used it, wants one in its place.
    pub fn remove(&mut self, now_ns: u64, processor: ProcessorId) -> Changes<'_> {
        if !self.processors.is_present(processor) {
            return Err(Error::UnknownProcessor(processor));
        }
        self.begin(now_ns);
        if let Some(owner) = self.processors.owner(processor) {
            let used = self.processors.is_running(processor);
            self.release(processor, owner, used);
            self.note(processor, Some(owner), None);
        }
        self.processors.forget(processor);
        Ok(self.divide())
    }

    /// A space comes. It wants nothing yet.
    pub fn join(&mut self, now_ns: u64, priority: Priority) -> SpaceId {
        self.begin(now_ns);
        let place = R::welcome(self.moment());
        self.spaces.insert(Space::new(priority, place))
    }

    /// A space goes; its processors are given to others, or are free.
    pub fn leave(&mut self, now_ns: u64, id: SpaceId) -> Changes<'_> {
        self.begin(now_ns);
        let space = self.spaces.remove(id).ok_or(Error::UnknownSpace(id))?;
        self.order.remove(&space.standing(), id);
        let mut gone = space.clone();
        let had = || space.running.iter().chain(&space.resting).copied();
        for processor in had() {
            self.processors.detach(processor, &mut gone);
            self.processors.free(processor, Some(id));
        }
        self.divide();
        for processor in had() {
            if let Some(left) = self.processors.left(processor) {
                self.note(processor, Some(left), None);
            }
        }
        Ok(&self.changes)
    }

    /// A space has another priority from now on.
    pub fn set_priority(&mut self, now_ns: u64, id: SpaceId, priority: Priority) -> Changes<'_> {
        self.begin_for(now_ns, id)?;
        let space = &mut self.spaces[id];
        if space.priority == priority {
            return Ok(self.divide());
        }
        self.order.remove(&space.standing(), id);
        space.priority = priority;
        // It is a newcomer among others.
        let place = R::welcome(self.moment());
        let space = &mut self.spaces[id];
        space.lost = place;
        let standing = space.standing();
        self.order.insert(&standing, id);
        Ok(self.divide())
    }

    /// A space can use `want` processors in all. (The paper's call names the additional ones; the
    /// sum means the same when a grant is already on its way.) If it wants less than it uses, the
    /// ones that it has had for the shortest time rest; if it wants more, those that have rested for
    /// the shortest time come first, without a change of owner.
    pub fn need(&mut self, now_ns: u64, id: SpaceId, want: u32) -> Changes<'_> {
        self.begin_for(now_ns, id)?;
        let rest = self.rest();
        self.update(id, |space, processors| {
            space.want = want;
            processors.balance(id, space, rest);
        });
        Ok(self.divide())
    }

    /// A space has nothing to run on this processor of its own, so it wants one fewer than it uses,
    /// and no further ones.
    pub fn idle(&mut self, now_ns: u64, id: SpaceId, processor: ProcessorId) -> Changes<'_> {
        self.begin_own(now_ns, id, processor)?;
        if self.processors.is_running(processor) {
            let rest = self.rest();
            self.update(id, |space, processors| {
                processors.rest(processor, (id, &mut *space), rest);
                space.want = space.running.len() as u32;
            });
        }
        Ok(self.divide())
    }

    /// A space uses a resting processor of its own again.
    pub fn busy(&mut self, now_ns: u64, id: SpaceId, processor: ProcessorId) -> Changes<'_> {
        self.begin_own(now_ns, id, processor)?;
        if !self.processors.is_running(processor) {
            self.update(id, |space, processors| {
                processors.detach(processor, space);
                processors.run(processor, id, space);
                space.want = space.running.len() as u32;
            });
        }
        Ok(self.divide())
    }

    /// Time has passed: turns and spells may have ended.
    pub fn tick(&mut self, now_ns: u64) -> &[Change] {
        self.begin(now_ns);
        self.divide()
    }

    /// When [`Allocator::tick`] is due, if nothing is called before; never, if nothing can change.
    pub fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Returns the space that has this processor.
    pub fn owner(&self, processor: ProcessorId) -> Option<SpaceId> {
        self.processors.owner(processor)
    }

    /// What a space wants and has.
    pub fn space(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(id)
    }

    /// All spaces.
    pub fn spaces(&self) -> impl Iterator<Item = (SpaceId, &Space)> {
        self.spaces.iter()
    }

    fn begin(&mut self, now_ns: u64) {
        self.changes.clear();
        self.now_ns = self.now_ns.max(now_ns);
    }

    fn begin_for(&mut self, now_ns: u64, id: SpaceId) -> Result<(), Error> {
        self.begin(now_ns);
        let known = self.spaces.contains_key(id);
        known.then_some(()).ok_or(Error::UnknownSpace(id))
    }

    fn begin_own(&mut self, now_ns: u64, id: SpaceId, cpu: ProcessorId) -> Result<(), Error> {
        self.begin_for(now_ns, id)?;
        let own = self.processors.owner(cpu) == Some(id);
        own.then_some(()).ok_or(Error::NotItsOwn(id, cpu))
    }

    /// A rest that begins now.
    fn rest(&self) -> Rest {
        Rest {
            since_ns: self.now_ns,
            order: R::rest_order(self.now_ns),
        }
    }

    /// Now, later than all before.
    fn moment(&mut self) -> Moment {
        self.moments += 1;
        Moment {
            ns: self.now_ns,
            number: self.moments,
        }
    }

    fn note(&mut self, processor: ProcessorId, from: Option<SpaceId>, to: Option<SpaceId>) {
        self.changes.push(Change {
            processor,
            from,
            to,
        });
    }

    /// Changes a space, and its places in the orders with it.
    fn update(&mut self, id: SpaceId, change: impl FnOnce(&mut Space, &mut Processors)) {
        let now = self.moment();
        let space = &mut self.spaces[id];
        let before = space.standing();
        change(space, &mut self.processors);
        let after = space.standing();
        if after.held > before.held {
            space.given = now;
        }
        if after.hungry() && !before.hungry() {
            space.lost = R::place(space.lost, now);
        }
        let after = space.standing();
        self.order.change(id, &before, &after);
    }

    /// Takes a processor from its owner. The owner goes to the end of the line if that counts as a loss.
    fn release(&mut self, processor: ProcessorId, owner: SpaceId, loses: bool) {
        let rest = self.rest();
        let now = self.moment();
        self.update(owner, |space, processors| {
            processors.detach(processor, space);
            processors.balance(owner, space, rest);
            if loses {
                space.lost = now;
            }
        });
        self.processors.free(processor, None);
    }

    /// Takes a processor from its owner, if it has one, and gives it to `to`.
    fn hand_over(&mut self, processor: ProcessorId, to: SpaceId) {
        let owner = self.processors.owner(processor);
        if let Some(owner) = owner {
            let [has, gets] = [owner, to].map(|id| self.spaces[id].standing());
            self.release(processor, owner, R::loses(&has, &gets));
        }
        let from = owner.or_else(|| self.processors.left(processor));
        self.update(to, |space, processors| processors.run(processor, to, space));
        self.note(processor, from, Some(to));
    }

    /// Moves processors until no space may take one.
    fn divide(&mut self) -> &[Change] {
        self.next_ns = None;
        while let Some(claimant) = self.order.neediest() {
            let anchor = self.spaces[claimant].running.first();
            if let Some(free) = self.processors.nearest_free(anchor) {
                self.hand_over(free, claimant);
                continue;
            }
            let rested = self.processors.first_resting();
            let offered = rested.map(|(_, since)| since.saturating_add(self.terms.spell_ns));
            let (verdict, holder) = self.verdict(claimant);
            match (R::source(self.now_ns, offered, verdict), rested, holder) {
                (Source::Resting, Some((processor, _)), _) => self.hand_over(processor, claimant),
                (Source::Holder, _, Some(processor)) => self.hand_over(processor, claimant),
                (Source::Nowhere(next_ns), ..) => {
                    self.next_ns = next_ns;
                    break;
                }
                // A source that is not there is none.
                _ => break,
            }
        }
        &self.changes
    }

    /// Returns the verdict on whether `claimant` may take from the space that loses first, and the processor that this
    /// would be: the one that the holder has used for the shortest time.
    fn verdict(&self, claimant: SpaceId) -> (Verdict, Option<ProcessorId>) {
        let Some(holder) = self.order.richest() else {
            return (Verdict::Never, None);
        };
        let [wants, has] = [claimant, holder].map(|id| self.spaces[id].standing());
        let verdict = R::verdict(&self.terms, self.now_ns, &wants, &has);
        (verdict, self.spaces[holder].running.last().copied())
    }
}
