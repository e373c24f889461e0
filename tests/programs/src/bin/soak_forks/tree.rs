//! Trees of pieces. A tree's value is the same however it is walked.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use upcall::{ScopedFork, thread};

use crate::leaves::{self, KINDS};
use crate::random::Random;

#[derive(Clone, Copy, PartialEq)]
pub enum Shape {
    /// Splits and leaves of all kinds.
    Mixed,
    /// As `Mixed`, but one half of each split is a leaf.
    Deep,
    /// Halves and leaves that compute.
    Quiet,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Everything is called, and nothing waits.
    Plain,
    Pieces,
    /// As `Pieces`, in the child of a fork(2): nothing that the parent's threads may hold is used.
    InChild,
}

/// How trees are walked, and what was done in them.
pub struct World {
    way: Way,
    counts: [AtomicU64; KINDS],
    /// Closures that were dropped beside a panic, begun or not.
    dropped: AtomicU64,
}

impl World {
    fn new(way: Way) -> Self {
        World {
            way,
            counts: [const { AtomicU64::new(0) }; KINDS],
            dropped: AtomicU64::new(0),
        }
    }

    pub fn plain() -> Self {
        World::new(Way::Plain)
    }

    pub fn of_pieces() -> Self {
        World::new(Way::Pieces)
    }

    pub fn in_child() -> Self {
        World::new(Way::InChild)
    }

    pub fn is_plain(&self) -> bool {
        self.way == Way::Plain
    }

    pub fn is_in_child(&self) -> bool {
        self.way == Way::InChild
    }

    pub fn count(&self, kind: usize) {
        self.counts[kind].fetch_add(1, Ordering::Relaxed);
    }

    pub fn counts(&self) -> [u64; KINDS] {
        std::array::from_fn(|kind| self.counts[kind].load(Ordering::Relaxed))
    }

    pub fn locks(&self) -> u64 {
        leaves::LOCKS.iter().map(|kind| self.counts()[*kind]).sum()
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Counts when it is dropped.
struct Dropped<'a>(&'a World);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
pub struct Tree {
    random: Random,
    shape: Shape,
    /// How many leaves it has.
    size: usize,
}

impl Tree {
    pub fn new(seed: u64, shape: Shape, size: usize) -> Self {
        let random = Random::new(seed);
        Tree {
            random,
            shape,
            size,
        }
    }

    /// A part of the tree.
    fn part(&mut self, size: usize) -> Tree {
        self.size -= size;
        Tree::new(self.random.next(), self.shape, size)
    }

    pub fn walk(&self, world: &World) -> u64 {
        let mut tree = self.clone();
        if tree.size == 1 {
            return match tree.shape {
                Shape::Quiet => tree.random.next(),
                _ => leaves::leaf(&mut tree.random, world),
            };
        }
        let size = match tree.shape {
            Shape::Mixed => 1 + tree.random.below(tree.size - 1),
            Shape::Deep => 1,
            Shape::Quiet => tree.size / 2,
        };
        let other = tree.part(size);
        let kind = match tree.shape {
            Shape::Quiet => 0,
            _ => tree.random.below(16),
        };
        match kind {
            0..10 => two(&tree.rest(), &other, world),
            // The leaf is what is forked first.
            10..12 => two(&other, &tree.rest(), world),
            12 | 13 => many(tree, &other, world),
            14 => second_panics(&tree.rest(), &other, world),
            _ => first_panics(&tree.rest(), &other, world),
        }
    }

    fn rest(&mut self) -> Tree {
        self.part(self.size)
    }
}

fn mix(one: u64, other: u64) -> u64 {
    Random::new(one.rotate_left(1) ^ other.wrapping_mul(3)).next()
}

fn two(one: &Tree, other: &Tree, world: &World) -> u64 {
    let (one, other) = match world.is_plain() {
        true => (one.walk(world), other.walk(world)),
        false => upcall::join(|| one.walk(world), || other.walk(world)),
    };
    mix(one, other)
}

/// Forks up to seven parts, and joins or drops them in some order, after the first part.
fn many(mut tree: Tree, first: &Tree, world: &World) -> u64 {
    let mut order = tree.random.clone();
    let mut parts = Vec::new();
    while tree.size > 0 {
        let size = if parts.len() == 6 {
            tree.size
        } else {
            1 + tree.random.below(tree.size)
        };
        parts.push(tree.part(size));
    }
    // In no order, since a handle that is dropped gives no result.
    let sum = AtomicU64::new(0);
    let add = |part: &Tree| {
        let value = part.walk(world);
        sum.fetch_add(value, Ordering::Relaxed);
        value
    };
    let one = if world.is_plain() {
        parts.iter().for_each(|part| _ = add(part));
        first.walk(world)
    } else {
        thread::scope(|scope| {
            let mut joined = 0u64;
            let mut forks: Vec<ScopedFork<'_, u64>> = Vec::new();
            for part in &parts {
                forks.push(scope.fork(|| add(part)));
                // Some are joined while others are yet to be forked.
                if order.below(8) == 0 {
                    joined = joined.wrapping_add(take(&mut order, &mut forks));
                }
            }
            let one = first.walk(world);
            while !forks.is_empty() {
                joined = joined.wrapping_add(take(&mut order, &mut forks));
            }
            std::hint::black_box(joined);
            one
        })
    };
    mix(one, sum.into_inner())
}

/// Joins one of them, or drops it.
fn take(order: &mut Random, forks: &mut Vec<ScopedFork<'_, u64>>) -> u64 {
    let fork = forks.swap_remove(order.below(forks.len()));
    match order.below(4) {
        0 => {
            drop(fork);
            0
        }
        _ => fork.join().expect("it does not panic"),
    }
}

fn caught(run: impl FnOnce()) -> u64 {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
    let value = (panic as Box<dyn Any>).downcast::<u64>();
    *value.expect("it is what was thrown")
}

fn second_panics(one: &Tree, other: &Tree, world: &World) -> u64 {
    let first = AtomicU64::new(0);
    let panics = |tree: &Tree| resume_unwind(Box::new(tree.walk(world)));
    let walk = || first.store(one.walk(world), Ordering::Relaxed);
    let value = caught(|| match world.is_plain() {
        true => {
            walk();
            panics(other)
        }
        false => {
            upcall::join(walk, || panics(other));
        }
    });
    mix(first.into_inner(), value)
}

/// What has not begun is dropped, and what has begun is waited for.
fn first_panics(one: &Tree, other: &Tree, world: &World) -> u64 {
    let kept = Dropped(world);
    let beside = AtomicU64::new(0);
    let piece = || {
        beside.store(1, Ordering::Relaxed);
        thread::yield_now();
        beside.store(0, Ordering::Relaxed);
        drop(kept);
    };
    let panics = || {
        let value = one.walk(world);
        resume_unwind(Box::new(value))
    };
    let value = caught(|| match world.is_plain() {
        true => {
            drop(piece);
            panics()
        }
        false => {
            upcall::join(panics, piece);
        }
    });
    assert_eq!(beside.into_inner(), 0, "a piece runs after its join");
    mix(value, other.walk(world))
}
