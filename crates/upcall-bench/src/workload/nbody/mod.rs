//! `nbody`: the application of Anderson et al. 1991 §5.3, the N-body problem after Barnes and Hut.
//!
//! | part | what |
//! |---|---|
//! | [`body`] | bodies: a Plummer model, the leapfrog, their energy |
//! | [`tree`] | the tree, and the force on a body: physics, and nothing that knows of threads |
//! | [`cache`] | the buffer cache, of which a miss blocks in the kernel |
//! | [`format`](mod@format) | bodies as a text |
//! | here | a step: the tree is built, then every few bodies have a thread that computes their forces, then they move |
//!
//! It is the same program for any package of threads. How it came out in 1991, on six processors: where all memory is
//! there and no other program runs, user-level threads beat kernel threads, whose curve flattens, since each thread
//! and each contended lock enters the kernel (Figure 2). With less memory, threads on activations and kernel threads
//! go parallel, while user-level threads without kernel support lose a processor for the whole of each miss (Figure
//! 3). Two copies at a time are nearly as good as one on half of the processors with activations, and half as good
//! with the others (Table 5). The same on a simulated machine with the costs of 1991 is in the crate upcall-timed.
//!
//! # Parameters
//!
//! `bodies`, `seed`, `steps` and `theta` are the problem; `grain` is how many bodies a thread serves: with few of them
//! the management of threads matters. `memory` is what part of the tree's pages the cache keeps, in percent; a miss
//! takes `miss_us`, or is read from the file `disk`. `sequential=1`: the program without threads, locks and cache is
//! run afterwards, and must come to the same result in every bit. `gate=1`: begin at a byte on standard input.
//!
//! What is to be expected here: `may` stands for user-level threads without kernel support, which nothing tells of a
//! block; a miss takes one of its processors away. Kernel threads pay for each thread and each lock that they wait
//! for. The one lock of the cache and the tree, which one thread builds, limit everybody.
//!
//! Figures: `ns`, the time of all steps; `sequential`, the time of the same without threads; `misses`; `lookups`;
//! `threads`; `begin` and `end` on the monotonic clock.

pub mod body;
pub mod cache;
pub mod format;
pub mod tree;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::posix::{now_ns, pass_gate};
use super::threads::Threads;
use super::{Failure, Figures, Params};
use body::{Body, Vector};
use cache::{Cache, Disk, Hand};
use tree::{TOGETHER, Tree};

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    /// Under which angle a group is one body.
    pub theta: f64,
    /// The length of a step.
    pub dt: f64,
    /// How many steps.
    pub steps: usize,
}

/// How it is computed by threads.
#[derive(Debug)]
pub struct Means {
    /// How many bodies a thread serves, which are neighbours.
    pub grain: usize,
    /// Percent of the first tree's pages that are in memory; from 100 on all that there will be.
    pub memory: usize,
    /// What the others come from.
    pub disk: Disk,
}

/// What became of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// How many there were.
    pub threads: u64,
    /// How often one looked a page up in the cache, under its lock.
    pub lookups: u64,
    /// How often one waited for the disk.
    pub misses: u64,
}

/// Moves the bodies by all steps; `forces` are their accelerations.
fn integrate<E>(
    bodies: &mut [Body],
    problem: Problem,
    mut forces: impl FnMut(&[Body]) -> Result<Vec<Vector>, E>,
) -> Result<(), E> {
    let mut accelerations = forces(bodies)?;
    for _ in 0..problem.steps {
        body::kick_and_drift(bodies, &accelerations, problem.dt);
        accelerations = forces(bodies)?;
        body::kick(bodies, &accelerations, problem.dt);
    }
    Ok(())
}

/// The program without threads, locks and cache.
pub fn sequential(bodies: &mut [Body], problem: Problem) {
    let Ok(()) = integrate(bodies, problem, |bodies| {
        let tree = Tree::new(bodies, problem.theta);
        let mut pages = &tree.pages[..];
        let mut open = Vec::new();
        let mut forces = vec![[0.0; 3]; bodies.len()];
        for some in tree.order.chunks(TOGETHER) {
            let places: Vec<_> = some
                .iter()
                .map(|&one| bodies[one as usize].position)
                .collect();
            let found = tree::accelerations(&places, &mut pages, &mut open);
            for (&index, found) in some.iter().zip(found) {
                forces[index as usize] = found;
            }
        }
        Ok::<_, std::convert::Infallible>(forces)
    });
}

struct Step<T: Threads> {
    cache: Arc<Cache<T>>,
    /// Where the bodies are, in the order of the tree.
    places: Vec<Vector>,
}

impl<T: Threads> Step<T> {
    fn forces(&self, bodies: Range<usize>) -> Vec<Vector> {
        let mut hand = Hand::new(&self.cache);
        let mut open = Vec::with_capacity(32);
        let together = self.places[bodies].chunks(TOGETHER);
        together
            .flat_map(|places| tree::accelerations(places, &mut hand, &mut open))
            .collect()
    }
}

/// The program with a thread for every few bodies in each step.
///
/// # Errors
///
/// The disk does not take the pages.
pub fn parallel<T: Threads>(
    bodies: &mut [Body],
    problem: Problem,
    means: Means,
) -> std::io::Result<Report> {
    let first = Tree::new(bodies, problem.theta).pages.len();
    let capacity = match means.memory {
        100.. => usize::MAX,
        percent => first * percent / 100,
    };
    let most = tree::pages_at_most(bodies.len());
    let cache = Arc::new(Cache::<T>::new(capacity, most, means.disk));
    let mut threads = 0;
    integrate(bodies, problem, |bodies| {
        let Tree { pages, order } = Tree::new(bodies, problem.theta);
        cache.renew(pages)?;
        let place = |&index: &u32| bodies[index as usize].position;
        let step = Arc::new(Step {
            cache: cache.clone(),
            places: order.iter().map(place).collect(),
        });
        let starts = (0..bodies.len()).step_by(means.grain.max(1));
        let own = starts.map(|start| {
            let step = step.clone();
            let end = bodies.len().min(start + means.grain.max(1));
            T::spawn(move || step.forces(start..end))
        });
        let own: Vec<_> = own.collect();
        threads += own.len() as u64;
        let mut forces = vec![[0.0; 3]; bodies.len()];
        let found = own.into_iter().flat_map(T::join);
        for (&index, found) in order.iter().zip(found) {
            forces[index as usize] = found;
        }
        Ok::<_, std::io::Error>(forces)
    })?;
    let (lookups, misses) = cache.counts();
    Ok(Report {
        threads,
        lookups,
        misses,
    })
}

pub(super) fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let theta = params.text("theta").unwrap_or("0.5");
    let problem = Problem {
        theta: theta
            .parse()
            .ok()
            .filter(|theta| (0.01..=1.0).contains(theta))
            .ok_or_else(|| Failure::Usage(format!("theta={theta} is not from 0.01 to 1")))?,
        dt: 1.0 / 64.0,
        steps: params.number("steps", 19)?,
    };
    let miss = params.number("miss_us", 50_000)? as u64 * 1000;
    let means = Means {
        grain: params.number("grain", 16)?,
        memory: params.number("memory", 100)?,
        disk: match params.text("disk") {
            None => Disk::Sleep(miss),
            Some(path) => Disk::open(Path::new(path))
                .map_err(|error| Failure::Skip(format!("{path}: {error}")))?,
        },
    };
    let seed = params.number("seed", 1)? as u64;
    let model = body::plummer(params.number("bodies", 2000)?, seed);
    let compares = params.number("sequential", 1)? != 0;
    pass_gate(params)?;
    let mut bodies = model.clone();
    let begin = now_ns();
    let report = parallel::<T>(&mut bodies, problem, means)
        .map_err(|error| Failure::Failed(format!("the disk: {error}")))?;
    let end = now_ns();
    let mut figures = Figures::default();
    figures.push("begin", begin as f64);
    figures.push("end", end as f64);
    figures.push("ns", (end - begin) as f64);
    figures.push("lookups", report.lookups as f64);
    figures.push("misses", report.misses as f64);
    figures.push("threads", report.threads as f64);
    if compares {
        let mut expected = model;
        let begin = now_ns();
        sequential(&mut expected, problem);
        figures.push("sequential", (now_ns() - begin) as f64);
        if bodies != expected {
            return Err(Failure::Failed("the threads came to another result".into()));
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::super::posix::Posix;
    use super::*;

    const PROBLEM: Problem = Problem {
        theta: 0.8,
        dt: 1.0 / 64.0,
        steps: 3,
    };

    fn both(count: usize, means: Means) -> Report {
        let mut expected = body::plummer(count, 2);
        let mut found = expected.clone();
        sequential(&mut expected, PROBLEM);
        let report = parallel::<Posix>(&mut found, PROBLEM, means).unwrap();
        assert_eq!(found, expected);
        report
    }

    #[test]
    fn threads_come_to_the_same_with_any_grain_and_memory() {
        for (grain, memory) in [(1, 100), (7, 100), (7, 60), (50, 10), (1000, 0)] {
            let report = both(
                500,
                Means {
                    grain,
                    memory,
                    disk: Disk::Sleep(20_000),
                },
            );
            assert_eq!(report.threads, 4 * 500usize.div_ceil(grain) as u64);
            assert_eq!(report.misses == 0, memory == 100, "{memory}: {report:?}");
        }
    }

    #[test]
    fn pages_come_from_a_file() {
        let path = std::env::temp_dir().join(format!("upcall-nbody-{}", std::process::id()));
        match Disk::open(&path) {
            Ok(disk) => {
                let report = both(
                    500,
                    Means {
                        grain: 20,
                        memory: 40,
                        disk,
                    },
                );
                assert!(report.misses > 0);
            }
            Err(error) => eprintln!("SKIPPED: {}: {error}", path.display()),
        }
        let _ = std::fs::remove_file(path);
    }

    /// The larger part of the error is the tree's: see what `theta` does to it.
    #[test]
    fn energy_is_conserved() {
        let begin = body::plummer(256, 4);
        let before = body::energy(&begin);
        for (theta, at_most) in [(0.1, 1e-4), (0.8, 1e-3)] {
            let mut bodies = begin.clone();
            sequential(
                &mut bodies,
                Problem {
                    theta,
                    dt: 1.0 / 64.0,
                    steps: 128,
                },
            );
            let error = (body::energy(&bodies) / before - 1.0).abs();
            assert!(error <= at_most, "{theta}: {error}");
        }
    }
}
