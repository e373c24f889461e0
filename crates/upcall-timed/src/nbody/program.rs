//! N-body as a program of threads: in each step the tree is built by the main thread, then every few
//! bodies have a thread that computes their accelerations, then the bodies move.
//!
//! The tree lies in pages that come through a buffer cache of the program's own (Anderson §5.3), under
//! one lock. A thread that misses blocks in the kernel. Work is computed for real when the thread
//! runs and charged by what was counted; the result is that of one thread.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::{Body, Tree, Vector, advance, plummer};
use crate::{Me, Mutex};

/// Pages that a thread keeps at a time: a path down the tree.
const HAND: usize = 6;

/// What the program is, and what its parts cost in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// How many bodies.
    pub bodies: usize,
    /// How many steps in time.
    pub steps: usize,
    /// How many bodies a thread serves, which are neighbours.
    pub grain: usize,
    /// One body attracts another.
    pub interaction: u64,
    /// A body passes a cell while the tree is built, or is moved.
    pub insertion: u64,
    /// A page is looked up in the cache, under its lock.
    pub lookup: u64,
    /// Cells of the tree in a page; a thread keeps the last few that it has looked up.
    pub page: u32,
    /// A page that is not in the cache comes after that time.
    pub miss: u64,
    /// Percent of all pages that the cache holds.
    pub memory: u32,
    /// How long the kernel lets a kernel thread run while others are ready.
    pub quantum: u64,
    /// How long a daemon of the kernel runs each time.
    pub daemon: u64,
    /// Which bodies.
    pub seed: u64,
}

/// What a run has computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Result {
    /// Processor time that the sequential program takes.
    pub sequential: u64,
    /// When it ended.
    pub ended: u64,
    /// Misses of the cache.
    pub misses: u64,
    /// Time for which the lock of the cache was held to look pages up.
    pub locked: u64,
    /// Time for which one thread worked alone: the tree, the moves.
    pub alone: u64,
    /// The bodies at the end.
    pub bodies: Vec<Body>,
}

/// The pages in memory; the one that was not used for longest goes first.
struct Cache {
    capacity: usize,
    clock: u64,
    /// By their last use.
    used: BTreeMap<u64, u32>,
    pages: BTreeMap<u32, u64>,
}

impl Cache {
    /// A cache that is full, of a tree of so many pages.
    fn new(pages: usize, memory: u32) -> Self {
        let capacity = if memory >= 100 {
            // All of it, and room for the tree to grow.
            usize::MAX
        } else {
            (pages * memory as usize / 100).max(1)
        };
        let mut cache = Cache {
            capacity,
            clock: 0,
            used: BTreeMap::new(),
            pages: BTreeMap::new(),
        };
        for page in (0..2 * pages as u32).rev() {
            cache.touch(page);
        }
        cache
    }

    /// Returns true if a page was there; it is now.
    fn touch(&mut self, page: u32) -> bool {
        self.clock += 1;
        let hit = match self.pages.insert(page, self.clock) {
            Some(before) => self.used.remove(&before).is_some(),
            None => false,
        };
        self.used.insert(self.clock, page);
        if self.pages.len() > self.capacity
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.pages.remove(&oldest);
        }
        hit
    }
}

struct Shared {
    problem: Problem,
    bodies: RefCell<Vec<Body>>,
    tree: RefCell<Tree>,
    accelerations: RefCell<Vec<Vector>>,
    lock: Mutex,
    cache: RefCell<Cache>,
    misses: Cell<u64>,
    locked: Cell<u64>,
}

impl Shared {
    /// The pages that one body's traversal comes through, with the time to compute in each. Its
    /// acceleration is noted.
    fn traverse(&self, index: usize) -> Vec<(u32, u64)> {
        let problem = &self.problem;
        let mut runs: Vec<(u32, u64)> = Vec::new();
        let mut hand = VecDeque::from([u32::MAX; HAND]);
        let acceleration =
            self.tree
                .borrow()
                .acceleration(&self.bodies.borrow(), index, |place, interactions| {
                    let page = place / problem.page;
                    let time = u64::from(interactions) * problem.interaction;
                    match runs.last_mut() {
                        Some(last) if hand.contains(&page) => last.1 += time,
                        _ => {
                            runs.push((page, time));
                            hand.pop_front();
                            hand.push_back(page);
                        }
                    }
                });
        self.accelerations.borrow_mut()[index] = acceleration;
        runs
    }

    fn compute(&self, me: Me, index: usize) {
        for (page, time) in self.traverse(index) {
            let hit = me.locked(&self.lock, || {
                let began = me.now();
                me.work(self.problem.lookup);
                self.locked.set(self.locked.get() + me.now() - began);
                self.cache.borrow_mut().touch(page)
            });
            if !hit {
                self.misses.set(self.misses.get() + 1);
                me.block(self.problem.miss);
            }
            me.work(time);
        }
    }
}

/// Runs the problem with a thread for every few bodies. The result is in `result` when the thread ends.
pub fn parallel(me: Me, problem: Problem, result: &RefCell<Result>) {
    let bodies = plummer(problem.bodies, problem.seed);
    let tree = Tree::new(&bodies);
    let pages = tree.len().div_ceil(problem.page as usize);
    let shared = Rc::new(Shared {
        problem,
        accelerations: RefCell::new(vec![[0.0; 3]; bodies.len()]),
        cache: RefCell::new(Cache::new(pages, problem.memory)),
        bodies: RefCell::new(bodies),
        tree: RefCell::new(tree),
        lock: Mutex::default(),
        misses: Cell::new(0),
        locked: Cell::new(0),
    });
    let mut alone = 0;
    let mut by_one = |work: u64| {
        let began = me.now();
        me.work(work * problem.insertion);
        alone += me.now() - began;
    };
    for _ in 0..problem.steps {
        let tree = Tree::new(&shared.bodies.borrow());
        by_one(tree.steps);
        let order: Rc<[u32]> = tree.order().into();
        shared.tree.replace(tree);
        let threads = (0..problem.bodies).step_by(problem.grain).map(|first| {
            let (shared, order) = (shared.clone(), order.clone());
            me.fork(move |me| {
                for &index in order.iter().skip(first).take(problem.grain) {
                    shared.compute(me, index as usize);
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            me.join(thread);
        }
        advance(
            &mut shared.bodies.borrow_mut(),
            &shared.accelerations.borrow(),
            0.01,
        );
        by_one(problem.bodies as u64);
    }
    let mut result = result.borrow_mut();
    result.ended = me.now();
    result.misses = shared.misses.get();
    result.locked = shared.locked.get();
    result.alone = alone;
    result.bodies = shared.bodies.borrow().clone();
}

/// The same without threads, locks and misses; the time is that of its computing.
pub fn sequential(problem: Problem) -> Result {
    let mut bodies = plummer(problem.bodies, problem.seed);
    let (mut time, mut locked, mut alone) = (0, 0, 0);
    for _ in 0..problem.steps {
        let tree = Tree::new(&bodies);
        alone += (tree.steps + bodies.len() as u64) * problem.insertion;
        let accelerations: Vec<_> = (0..bodies.len())
            .map(|index| {
                let mut hand = VecDeque::from([u32::MAX; HAND]);
                tree.acceleration(&bodies, index, |place, interactions| {
                    let page = place / problem.page;
                    if !hand.contains(&page) {
                        locked += problem.lookup;
                        hand.pop_front();
                        hand.push_back(page);
                    }
                    time += u64::from(interactions) * problem.interaction;
                })
            })
            .collect();
        advance(&mut bodies, &accelerations, 0.01);
    }
    let time = time + locked + alone;
    Result {
        sequential: time,
        ended: time,
        misses: 0,
        locked,
        alone,
        bodies,
    }
}
