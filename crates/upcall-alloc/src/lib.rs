//! Which address space has which processor: the allocation policy of Anderson, Bershad, Lazowska and Levy (TOCS 1992,
//! §3.2 and §4.1, after Zahorjan and McCann), as a pure library: `no_std`, without clock, randomness or system calls.
//! Time comes in as an argument, so that the same code runs in a daemon and in a simulator, and a history of calls
//! always has the same outcome.
//!
//! An [`Allocator`] is told what happens (spaces [join](Allocator::join) and [leave](Allocator::leave), say what they
//! [need](Allocator::need) and what is [idle](Allocator::idle), processors are [added](Allocator::add) and
//! [removed](Allocator::remove), [time](Allocator::tick) passes) and answers each call with the [changes](Change) of
//! ownership that follow from it. The user of this crate decides how to take a processor from a program, and how long
//! that may last. What is decided here is authoritative at once.
//!
//! ```
//! use upcall_alloc::{Allocator, Change, Priority, ProcessorId, Terms};
//!
//! let mut allocator = Allocator::new(Terms::default());
//! for number in 0..2 {
//!     allocator.add(0, ProcessorId(number))?;
//! }
//! let one = allocator.join(0, Priority(0));
//! assert_eq!(allocator.need(0, one, 8)?.len(), 2);
//! let other = allocator.join(0, Priority(0));
//! let moved = [Change { processor: ProcessorId(1), from: Some(one), to: Some(other) }];
//! assert_eq!(allocator.need(0, other, 8)?, moved);
//! assert_eq!(allocator.next_ns(), None, "an even division is not time-sliced");
//! # Ok::<(), upcall_alloc::Error>(())
//! ```
//!
//! [`Gangs`] is another policy, for spaces that cannot use fewer processors than they compute on: they have all of them at
//! once, in turns.
//!
//! # The policy
//!
//! 1. *Space-sharing.* Processors are divided evenly among the spaces of the highest priority. What one does not need
//!    is divided among the others, then goes to the next priority.
//! 2. *Remainders take turns.* If the division leaves fewer processors than there are spaces that want one more, those
//!    processors rotate, and no others.
//! 3. *Idle processors are lent.* No space waits while a processor idles, beyond a short spell. During the spell the
//!    processor counts as its owner's, which may soon have work again. A space that could take it if it were in use
//!    takes it at once. No space loses a processor in use while any rests.
//! 4. *Honesty pays.* The space that has been without a remainder for longest is first in line for one, even if it had
//!    no use for one in the meantime. What a space states beyond its even share counts for nothing else.
//! 5. *Little moves.* The changes are the fewest that lead from the division before to a valid one; a space keeps the
//!    processors that it has had longest, and is given neighbours of those.
//!
//! The decisions themselves are a few pure functions, [`Rules`]. What follows from them, with the bounds, is stated by
//! the property tests, one function for each sentence of the paper, and each of those is tested against rules that
//! break it.
//!
//! # Bounds
//!
//! *k* contestants, spaces of one priority that want more than their share, have a remainder of *r*.
//!
//! | what | bound |
//! |---|---|
//! | difference between spaces of one priority that want more | one processor, at any moment |
//! | a wanted processor rests | one spell |
//! | having, and being without, a remainder, while needs stay as they are | at least one slice |
//! | processor time of contestants, over any time with constant needs | one slice apart |
//! | waiting for a remainder, with constant needs | max(1, ⌈*k*/*r*⌉ − 1) slices |
//! | waiting for the first processor, one of *n* equals on *P* processors, whatever the others do | 1 + ⌈*n*/*P*⌉ slices |
//! | gain by a false statement, without spells, while others state the same | one processor at any moment; two slices for each time that a need changes, its own or another's, or its understatement |
//! | changes by one call | as many as processors became wanted, unwanted or unavailable by it; one each for remainders that are due: min(*r*, *k* − *r*) in a slice |
//! | cost of a call | O(log n), and that again for each processor that changes hands, begins to rest or ceases to |
//!
//! The bounds on time are proven where the rule is (`rules.rs`, [`Rules`]), and hold if the allocator is called when
//! it asks to be. The tests demand these figures and no larger ones.
//!
//! A space of lower priority has no bound on its waiting: that is what priorities are. *P* is what higher ones leave.
//!
//! # Rejected
//!
//! - *Equal partition, fixed*: idles processors, and overstating is free where needs differ.
//! - *Lottery* (random tickets): fair only on average; every draw moves processors; no randomness here.
//! - *Stride, and weights as in CFS or EEVDF*: they time-slice everything in proportion, where space-sharing wants
//!   nearly nothing to move; a weight that follows the stated need rewards overstating.
//! - *Levels of feedback*, or an account of the time used: levels are gamed by giving up just before the level would
//!   sink, and need a periodic amnesty against starvation; accounts drift apart while there is no contest. A place
//!   in line does what they are for.
//! - *Recomputing the division at each call*: O(n), and ties must then be broken so that little moves. Moving one
//!   processor at a time, from the space that has most to the space that has least, reaches the same division, and
//!   stops where nothing is gained.

#![no_std]

extern crate alloc;

mod allocator;
mod gangs;
mod order;
mod processors;
mod rules;
mod space;

pub use allocator::{Allocator, Change, Changes, Error};
pub use gangs::{Bits, GangId, Gangs, Stage};
pub use rules::{Moment, Priority, Rank, Rules, Source, SpaceSharing, Standing, Terms, Verdict};
pub use space::{ProcessorId, Space, SpaceId};
