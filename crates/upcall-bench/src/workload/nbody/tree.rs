//! The tree of Barnes and Hut (1986): an octree in which a distant group counts as one body at its centre of mass, so
//! that the forces on N bodies are O(N log N) work.
//!
//! The cells lie in [`Page`]s, which is what a buffer cache holds: the top of the tree in the first one, and in the
//! others as much as there is room for of a part of it. So a thread that goes down the tree stays in a page for some
//! levels, and bodies that are neighbours need mostly the same pages. The parts of a cell follow each other in one
//! page. A level where all bodies of a cell are in one octant is left out, so there are fewer than twice as many cells
//! as bodies.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::body::{Body, Vector, add, attract, squared};

/// Cells of a page: 4 KiB of them.
pub const CELLS: usize = 4096 / size_of::<Cell>();
/// Parts of a cell at most.
const PARTS: usize = 8;
/// The finest division of each axis: bodies that are in one of its cells are all looked at.
const LEVELS: u32 = 21;

/// A group of bodies, or one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Cell {
    mass: f64,
    centre: Vector,
    /// A body that is nearer than this, squared, looks at its parts. Zero for a body.
    open_within: f64,
    /// Its first part,
    first: u32,
    /// and how many follow each other.
    count: u32,
    /// So that a page has a power of two of them.
    rest: [u64; 2],
}

/// Some cells.
pub type Page = Arc<[Cell; CELLS]>;

/// Where the cells are that a traversal looks at.
pub trait Pages {
    /// The cell of this number.
    fn cell(&mut self, number: u32) -> Cell;
}

/// The cells as they lie in memory.
impl Pages for &[Page] {
    #[inline]
    fn cell(&mut self, number: u32) -> Cell {
        self[number as usize / CELLS][number as usize % CELLS]
    }
}

/// The tree of some bodies.
#[derive(Debug)]
pub struct Tree {
    /// Its cells; the first one is all of it.
    pub pages: Vec<Page>,
    /// The numbers of the bodies in the order of the tree: neighbours mostly follow each other.
    pub order: Vec<u32>,
}

/// A body's cell on the finest level: three bits for each level, the coarsest first.
fn key(position: &Vector, low: &Vector, width: f64) -> u64 {
    let most = ((1u64 << LEVELS) - 1) as f64;
    let part = |axis: usize| {
        let place = (position[axis] - low[axis]) / width * (1u64 << LEVELS) as f64;
        place.clamp(0.0, most) as u64
    };
    let parts = [part(0), part(1), part(2)];
    (0..LEVELS).rev().fold(0, |key, level| {
        parts
            .iter()
            .fold(key, |key, part| key << 1 | (part >> level & 1))
    })
}

impl Tree {
    /// The tree of `bodies`, in which a group is one body for a body that sees it under an angle less than `theta`
    /// (its width by its distance, to which the way from its middle to its centre of mass is added: Barnes 1994).
    #[must_use]
    pub fn new(bodies: &[Body], theta: f64) -> Self {
        let (mut low, mut high) = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
        for body in bodies {
            low = std::array::from_fn(|axis| body.position[axis].min(low[axis]));
            high = std::array::from_fn(|axis| body.position[axis].max(high[axis]));
        }
        let width = (0..3).fold(f64::MIN_POSITIVE, |most, axis| {
            most.max(high[axis] - low[axis])
        });
        let mut sorted: Vec<_> = bodies
            .iter()
            .enumerate()
            .map(|(index, body)| (key(&body.position, &low, width), index as u32))
            .collect();
        sorted.sort_unstable();

        let mut cells = Vec::with_capacity(2 * bodies.len());
        // The bodies of each cell that is a group, and the level and place of the smallest cube around them.
        let mut groups: Vec<(usize, u32, u64)> = Vec::new();
        let mut open: VecDeque<Range<usize>> = VecDeque::new();
        open.push_back(0..bodies.len());
        // Numbers are given in the order of the queue.
        let mut given = 1;
        while let Some(range) = open.pop_front() {
            let mut cell = Cell::default();
            if let [(_, index)] = sorted[range.clone()] {
                let body = &bodies[index as usize];
                (cell.mass, cell.centre) = (body.mass, body.position);
            } else if let (Some(first), Some(last)) =
                (sorted[range.clone()].first(), sorted[range.clone()].last())
            {
                let level = LEVELS.min((first.0 ^ last.0).leading_zeros().saturating_sub(1) / 3);
                groups.push((cells.len(), level, first.0));
                (cell.first, cell.count) = (given, 0);
                let each = range.len().div_ceil(PARTS);
                let mut rest = range;
                while !rest.is_empty() {
                    let end = match level {
                        // No division tells them apart.
                        LEVELS => rest.end.min(rest.start + each),
                        _ => {
                            let octant = |key: u64| key >> (3 * (LEVELS - 1 - level));
                            let own = octant(sorted[rest.start].0);
                            let same = |&(key, _): &(u64, u32)| octant(key) == own;
                            rest.start + sorted[rest.clone()].partition_point(same)
                        }
                    };
                    open.push_back(rest.start..end);
                    rest.start = end;
                    cell.count += 1;
                }
                given += cell.count;
            }
            cells.push(cell);
        }
        // Parts come after what they are parts of.
        for &(number, level, key) in groups.iter().rev() {
            let Cell { first, count, .. } = cells[number];
            let parts = &cells[first as usize..(first + count) as usize];
            let mass = parts.iter().map(|part| part.mass).sum::<f64>();
            let moment = parts
                .iter()
                .fold([0.0; 3], |sum, part| add(&sum, &part.centre, part.mass));
            let centre = moment.map(|part| part / mass);
            let side = width / (1u64 << level) as f64;
            let apart = add(&middle(key, level, &low, width), &centre, -1.0);
            let apart = squared(&apart).sqrt();
            let cell = &mut cells[number];
            (cell.mass, cell.centre) = (mass, centre);
            cell.open_within = (side / theta + apart).powi(2);
        }
        Tree {
            pages: arrange(&cells),
            order: sorted.into_iter().map(|(_, index)| index).collect(),
        }
    }
}

/// How many pages there are at most for so many bodies: but for the last, each is so full that
/// the parts of another cell may not fit.
#[must_use]
pub fn pages_at_most(bodies: usize) -> usize {
    (2 * bodies).div_ceil(CELLS - PARTS + 1) + 1
}

/// Parts of a cell that have no place yet, and where the cell itself is.
type Group = (Range<u32>, Option<usize>);

/// Cells that were numbered level by level, in pages.
fn arrange(cells: &[Cell]) -> Vec<Page> {
    let mut pages: Vec<[Cell; CELLS]> = Vec::new();
    let mut waiting: VecDeque<Group> = VecDeque::from([(0..1, None)]);
    while let Some(top) = waiting.pop_front() {
        let start = pages.len() * CELLS;
        pages.push([Cell::default(); CELLS]);
        let mut used = 0;
        let mut below = VecDeque::from([top]);
        while let Some((parts, whole)) = below.pop_front() {
            if parts.len() > CELLS - used {
                waiting.push_back((parts, whole));
                continue;
            }
            if let Some(whole) = whole {
                pages[whole / CELLS][whole % CELLS].first = (start + used) as u32;
            }
            for number in parts {
                let cell = cells[number as usize];
                pages[start / CELLS][used] = cell;
                if cell.count > 0 {
                    let parts = cell.first..cell.first + cell.count;
                    below.push_back((parts, Some(start + used)));
                }
                used += 1;
            }
            if below.is_empty() && CELLS - used >= PARTS {
                below.extend(waiting.pop_front());
            }
        }
    }
    pages.into_iter().map(Arc::new).collect()
}

/// The middle of a body's cell on some level.
fn middle(key: u64, level: u32, low: &Vector, width: f64) -> Vector {
    let side = width / (1u64 << level) as f64;
    std::array::from_fn(|axis| {
        let bits = (0..level).map(|above| key >> (3 * (LEVELS - 1 - above) + 2 - axis as u32) & 1);
        let place = bits.fold(0, |place, bit| place << 1 | bit);
        low[axis] + side * (place as f64 + 0.5)
    })
}

/// How many bodies can go down the tree together.
pub const TOGETHER: usize = u64::BITS as usize;

/// What is still to be looked at, and by which bodies (a bit for each).
pub type Open = Vec<(Range<u32>, u64)>;

/// The accelerations at up to [`TOGETHER`] places, by the tree in these pages. They go down the tree together, so that a page
/// is asked for once for all of them, and each as far as it would alone and in the same order: the result is the
/// same in every bit. `open` is only room.
pub fn accelerations(places: &[Vector], pages: &mut impl Pages, open: &mut Open) -> Vec<Vector> {
    let mut sums = vec![[0.0; 3]; places.len()];
    let all = (0..places.len()).fold(0, |all, index| all | 1 << index);
    open.clear();
    open.push((0..1, all));
    while let Some((range, own)) = open.last_mut() {
        let (Some(number), own) = (range.next(), *own) else {
            open.pop();
            continue;
        };
        let cell = pages.cell(number);
        let (mut left, mut nearer) = (own, 0);
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            let here = &places[index];
            let apart = add(&cell.centre, here, -1.0);
            if squared(&apart) < cell.open_within {
                nearer |= 1 << index;
            } else {
                attract(&mut sums[index], &apart, cell.mass);
            }
        }
        if nearer != 0 {
            open.push((cell.first..cell.first + cell.count, nearer));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::super::body::{direct, plummer};
    use super::*;
    use std::slice;

    fn length(vector: Vector) -> f64 {
        squared(&vector).sqrt()
    }

    fn by_tree(tree: &Tree, here: &Vector) -> Vector {
        accelerations(slice::from_ref(here), &mut &tree.pages[..], &mut Vec::new())[0]
    }

    /// Mean and worst error of the forces against the sum over all bodies, relative to the mean force.
    fn errors(theta: f64) -> (f64, f64) {
        let bodies = plummer(1000, 5);
        let tree = Tree::new(&bodies, theta);
        let exact: Vec<_> = (0..bodies.len())
            .map(|index| direct(&bodies, index))
            .collect();
        let mean = exact.iter().map(|force| length(*force)).sum::<f64>() / exact.len() as f64;
        let errors: Vec<_> = bodies
            .iter()
            .zip(&exact)
            .map(|(body, exact)| length(add(&by_tree(&tree, &body.position), exact, -1.0)) / mean)
            .collect();
        let sum = errors.iter().sum::<f64>();
        (
            sum / exact.len() as f64,
            errors.into_iter().fold(0.0, f64::max),
        )
    }

    #[test]
    fn the_tree_attracts_as_its_bodies_do() {
        // With the first angle every group is opened.
        for (theta, mean_at_most, worst_at_most) in
            [(1e-12, 1e-12, 1e-11), (0.5, 4e-3, 0.05), (0.8, 0.015, 0.2)]
        {
            let (mean, worst) = errors(theta);
            assert!(
                mean <= mean_at_most && worst <= worst_at_most,
                "{theta}: {mean}, {worst}"
            );
        }
    }

    /// Counts the cells that are looked at.
    struct Counting<'a>(&'a [Page], u64);

    impl Pages for Counting<'_> {
        fn cell(&mut self, number: u32) -> Cell {
            self.1 += 1;
            self.0.cell(number)
        }
    }

    /// O(N log N): four times the bodies, much less than 16 times the work.
    #[test]
    fn the_work_grows_little_faster_than_the_bodies() {
        let work = |count| {
            let bodies = plummer(count, 9);
            let tree = Tree::new(&bodies, 0.8);
            let mut counting = Counting(&tree.pages, 0);
            for body in &bodies {
                let here = slice::from_ref(&body.position);
                accelerations(here, &mut counting, &mut Vec::new());
            }
            counting.1 as f64
        };
        let growth = work(8000) / work(2000);
        assert!((4.0..6.5).contains(&growth), "{growth}");
    }

    #[test]
    fn bodies_that_go_together_come_to_the_same() {
        let bodies = plummer(300, 6);
        let tree = Tree::new(&bodies, 0.6);
        let places: Vec<_> = bodies.iter().map(|body| body.position).collect();
        for together in [1, 3, TOGETHER] {
            for some in places.chunks(together) {
                let found = accelerations(some, &mut &tree.pages[..], &mut Vec::new());
                assert!(some.iter().map(|here| by_tree(&tree, here)).eq(found));
            }
        }
    }

    #[test]
    fn every_body_has_a_place_even_where_there_are_others() {
        let mut bodies = plummer(200, 1);
        for index in 100..200 {
            bodies[index].position = bodies[3].position;
        }
        for count in [0, 1, 2, 200] {
            let tree = Tree::new(&bodies[..count], 0.8);
            let mut order = tree.order.clone();
            order.sort_unstable();
            assert!(order.into_iter().eq(0..count as u32));
            let mass: f64 = bodies[..count].iter().map(|body| body.mass).sum();
            let all = tree.pages[0][0];
            assert!((all.mass - mass).abs() < 1e-12, "{count}");
            for body in &bodies[..count] {
                let found = by_tree(&tree, &body.position);
                assert!(found.iter().all(|part| part.is_finite()), "{found:?}");
            }
        }
    }
}
