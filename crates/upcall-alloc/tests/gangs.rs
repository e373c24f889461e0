//! What [`Gangs`] promise, as properties of random histories, each demanded at every moment.

use proptest::prelude::*;
use upcall_alloc::{Bits, GangId, Gangs, Stage};

const SLICE: u64 = 100;

fn bits(word: u64) -> Bits {
    Bits([word, 0, 0, 0])
}

/// A gang computes on other processors, goes, or time passes.
#[derive(Clone, Debug)]
enum Step {
    Busy(GangId, u64),
    Leave(GangId),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u64, 0..16u64).prop_map(|(id, busy)| Step::Busy(id, busy)),
        1 => (0..6u64).prop_map(Step::Leave),
        4 => (1..2 * SLICE).prop_map(Step::Pass),
    ]
}

/// Gangs, what they compute on, and the time.
struct World {
    gangs: Gangs,
    busy: [u64; 6],
    now: u64,
    next: Option<u64>,
}

impl World {
    fn new() -> Self {
        World {
            gangs: Gangs::new(SLICE),
            busy: [0; 6],
            now: 0,
            next: None,
        }
    }

    fn set(&mut self, id: GangId, busy: u64) {
        self.busy[id as usize] = busy;
        self.gangs.set_busy(self.now, id, bits(busy));
        self.next = self.gangs.decide(self.now);
    }

    /// Lets time pass, with a decision at each moment that was asked for. `each` is called after each.
    fn pass(&mut self, time: u64, mut each: impl FnMut(&World, u64)) {
        let end = self.now + time;
        while self.now < end {
            let until = self.next.map_or(end, |next| next.min(end));
            assert!(until > self.now, "a moment that is over was asked for");
            let before = self.now;
            self.now = until;
            each(self, until - before);
            self.next = self.gangs.decide(self.now);
        }
    }

    fn is_on(&self, id: GangId) -> bool {
        matches!(self.gangs.stage(id), Some(Stage::On { .. }))
    }

    fn waits_since(&self, id: GangId) -> Option<u64> {
        match self.gangs.stage(id) {
            Some(Stage::Waiting { since_ns }) => Some(since_ns),
            _ => None,
        }
    }

    fn competes(&self, one: GangId, other: GangId) -> bool {
        let (mine, others) = (self.busy[one as usize], self.busy[other as usize]);
        one != other && bits(mine).competes(bits(others))
    }

    /// What holds after each decision.
    fn check(&self) {
        for id in 0..6 {
            if self.is_on(id) {
                assert_ne!(self.busy[id as usize], 0, "{id} rests, and is on");
                for other in (0..6).filter(|&other| self.competes(id, other)) {
                    assert!(!self.is_on(other), "{id} and {other} are both on");
                }
            }
            if let Some(since) = self.waits_since(id) {
                let hindered = (0..6).any(|other| {
                    self.competes(id, other)
                        && (self.is_on(other)
                            || self
                                .waits_since(other)
                                .is_some_and(|before| before <= since))
                });
                assert!(hindered, "{id} waits, and nobody hinders it");
                assert!(
                    self.next.is_some() || (0..6).all(|other| !self.competes(id, other)),
                    "{id} waits, and no decision is due"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn none_that_compete_are_on_and_none_waits_for_nothing(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Busy(id, busy) => world.set(id, busy),
                Step::Leave(id) => {
                    world.busy[id as usize] = 0;
                    world.gangs.leave(id);
                    world.next = world.gangs.decide(world.now);
                }
                Step::Pass(time) => world.pass(time, |world, _| world.check()),
            }
            world.check();
        }
    }

    /// However small ones come and go beside it, a large gang waits for as many slices as there are gangs, at most.
    #[test]
    fn a_gang_waits_for_as_many_slices_as_there_are_gangs(
        steps in prop::collection::vec((1..6u64, 0..16u64, 1..SLICE), 1..80),
    ) {
        let mut world = World::new();
        world.set(0, 15);
        for (id, busy, time) in steps {
            world.set(id, busy);
            world.pass(time, |world, _| {
                if let Some(since) = world.waits_since(0) {
                    assert!(world.now - since <= 6 * SLICE, "waits for {}", world.now - since);
                }
            });
        }
    }

    #[test]
    fn gangs_that_all_compete_have_the_same_time_to_within_a_slice(
        sizes in prop::collection::vec(1..8u64, 2..6),
        time in 1..40 * SLICE,
    ) {
        let mut world = World::new();
        let count = sizes.len();
        for (id, size) in sizes.into_iter().enumerate() {
            // A common processor, and others.
            world.set(id as GangId, 8 | size);
        }
        let mut had = vec![0u64; count];
        world.pass(time, |world, passed| {
            let on: Vec<usize> = (0..count).filter(|&id| world.is_on(id as GangId)).collect();
            assert_eq!(on.len(), 1);
            had[on[0]] += passed;
        });
        let (most, least) = (had.iter().max().unwrap(), had.iter().min().unwrap());
        prop_assert!(most - least <= SLICE, "{:?}", had);
    }
}

#[test]
fn two_in_the_middle_of_a_chain_take_turns_with_both_ends() {
    let mut world = World::new();
    for (id, busy) in [(0, 0b011), (1, 0b110), (2, 0b1100)] {
        world.set(id, busy);
    }
    let mut had = [0u64; 3];
    world.pass(20 * SLICE, |world, passed| {
        for (id, had) in had.iter_mut().enumerate() {
            *had += if world.is_on(id as GangId) { passed } else { 0 };
        }
    });
    // The first slice is that of the first one alone.
    assert_eq!(
        had,
        [10 * SLICE, 10 * SLICE, 9 * SLICE],
        "the ends are on together"
    );
}

#[test]
fn who_is_given_processors_late_has_the_whole_slice() {
    let mut world = World::new();
    world.set(0, 3);
    world.set(1, 3);
    world.pass(SLICE, |_, _| {});
    assert!(world.is_on(1));
    world.now += 30;
    world.gangs.begins(world.now, 1);
    world.next = world.gangs.decide(world.now);
    assert_eq!(world.next, Some(world.now + SLICE));
}

#[test]
fn gangs_of_one_processor_are_left_to_the_kernel() {
    let mut world = World::new();
    world.set(0, 1);
    world.set(1, 1);
    assert!(world.is_on(0) && world.is_on(1));
    assert_eq!(world.next, None);
    assert!(world.gangs.taken_from(1, bits(1)).is_empty());
    assert!(!world.gangs.is_wanted(0, bits(1)));
}

/// One stands for three spaces: of two that compete it has three quarters of the time, to within a turn.
#[test]
fn time_is_as_the_weights_of_those_that_compete() {
    let mut world = World::new();
    world.set(0, 0b11);
    world.set(1, 0b11);
    world.gangs.weigh(1, 3);
    world.next = world.gangs.decide(world.now);
    let mut on = [0; 2];
    world.pass(400 * SLICE, |world, time| {
        for (id, on) in on.iter_mut().enumerate() {
            *on += if world.is_on(id as GangId) { time } else { 0 };
        }
    });
    let difference = (on[1] as i64 - 3 * on[0] as i64).abs();
    assert!(difference <= 3 * SLICE as i64, "{on:?}");
}
