//! The N-body problem of Barnes and Hut (1986), the application of Anderson et al. §5.3: an octree of
//! the bodies, in which a distant group counts as one body at its centre of mass.
//!
//! | part | what |
//! |---|---|
//! | here | bodies, the tree, the forces: physics, and nothing that knows of threads |
//! | [`program`] | the same, a thread for every few bodies, on any kind of simulated thread |
//! | [`firefly`] | the experiments of 1991 with it |

pub mod firefly;
pub mod program;

use std::collections::VecDeque;

/// A vector.
pub type Vector = [f64; 3];

/// A group is one body if it is seen under a smaller angle than this.
pub const ANGLE: f64 = 0.8;
/// Softening of close encounters, squared.
const SOFT: f64 = 1e-4;
/// A cell is not divided below this depth: bodies at one place share it.
const DEEPEST: u32 = 48;
/// No cell.
const NONE: u32 = u32::MAX;

/// A body; the gravitational constant is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Body {
    /// Where it is.
    pub position: Vector,
    /// How it moves.
    pub velocity: Vector,
    /// Its mass.
    pub mass: f64,
}

struct Cell {
    centre: Vector,
    half: f64,
    mass: f64,
    /// Sum of mass times position; then the centre of mass.
    moment: Vector,
    children: [u32; 8],
    /// The bodies of a cell that is not divided.
    bodies: Vec<u32>,
    divided: bool,
}

/// The tree of some bodies.
pub struct Tree {
    cells: Vec<Cell>,
    /// The place of each cell, level by level: what everybody looks at lies together, and so do the
    /// neighbours of a level.
    places: Vec<u32>,
    /// The bodies, depth first.
    order: Vec<u32>,
    /// Cells passed while it was built.
    pub steps: u64,
}

/// Numbers that look random, the same for the same seed.
fn numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A Plummer sphere of `count` bodies with a mass of 1 together, at rest as a whole.
pub fn plummer(count: usize, seed: u64) -> Vec<Body> {
    let mut pick = numbers(seed);
    let mut direction = {
        let mut pick = numbers(seed + 1);
        move |length: f64| {
            let z = 2.0 * pick() - 1.0;
            let angle = std::f64::consts::TAU * pick();
            let flat = (1.0 - z * z).sqrt();
            [flat * angle.cos(), flat * angle.sin(), z].map(|part| part * length)
        }
    };
    let bodies = (0..count).map(|_| {
        // The innermost 99 percent of the mass: the sphere has no end.
        let inside = 0.001 + 0.989 * pick();
        let radius = (inside.powf(-2.0 / 3.0) - 1.0).powf(-0.5);
        // The velocity by rejection (Aarseth, Hénon and Wielen, 1974).
        let ratio = loop {
            let (q, g) = (pick(), 0.1 * pick());
            if g < q * q * (1.0 - q * q).powf(3.5) {
                break q;
            }
        };
        let speed = ratio * std::f64::consts::SQRT_2 * (1.0 + radius * radius).powf(-0.25);
        Body {
            position: direction(radius),
            velocity: direction(speed),
            mass: 1.0 / count as f64,
        }
    });
    bodies.collect()
}

fn attraction(here: &Vector, there: &Vector, mass: f64) -> Vector {
    let apart: Vector = std::array::from_fn(|axis| there[axis] - here[axis]);
    let squared = SOFT + apart.iter().map(|part| part * part).sum::<f64>();
    apart.map(|part| mass * part / (squared * squared.sqrt()))
}

/// The acceleration of one body, by all others one by one.
pub fn direct(bodies: &[Body], index: usize) -> Vector {
    let here = bodies[index].position;
    let others = bodies
        .iter()
        .enumerate()
        .filter(|&(other, _)| other != index);
    others.fold([0.0; 3], |sum, (_, other)| {
        add(sum, attraction(&here, &other.position, other.mass))
    })
}

fn add(one: Vector, other: Vector) -> Vector {
    std::array::from_fn(|axis| one[axis] + other[axis])
}

/// One step in time, of length `dt`.
pub fn advance(bodies: &mut [Body], accelerations: &[Vector], dt: f64) {
    for (body, acceleration) in bodies.iter_mut().zip(accelerations) {
        body.velocity = add(body.velocity, acceleration.map(|part| part * dt));
        body.position = add(body.position, body.velocity.map(|part| part * dt));
    }
}

impl Tree {
    /// The tree of these bodies.
    pub fn new(bodies: &[Body]) -> Self {
        let reach = (bodies.iter().flat_map(|body| body.position))
            .fold(f64::MIN_POSITIVE, |most, part| most.max(part.abs()));
        let mut tree = Tree {
            cells: vec![Cell::new([0.0; 3], reach * 1.001)],
            places: Vec::new(),
            order: Vec::new(),
            steps: 0,
        };
        for (index, body) in bodies.iter().enumerate() {
            tree.insert(bodies, index as u32, body);
        }
        for cell in &mut tree.cells {
            let mass = cell.mass;
            cell.moment = cell.moment.map(|part| part / mass);
        }
        tree.places = vec![0; tree.cells.len()];
        let mut level = VecDeque::from([0]);
        let mut place = 0;
        while let Some(at) = level.pop_front() {
            tree.places[at as usize] = place;
            place += 1;
            level.extend(
                tree.cells[at as usize]
                    .children
                    .iter()
                    .filter(|&&child| child != NONE),
            );
        }
        tree.arrange(0);
        tree
    }

    fn insert(&mut self, bodies: &[Body], index: u32, body: &Body) {
        let (mut at, mut depth) = (0, 0);
        loop {
            self.steps += 1;
            let cell = &mut self.cells[at];
            cell.mass += body.mass;
            cell.moment = add(cell.moment, body.position.map(|part| part * body.mass));
            if !cell.divided {
                if cell.bodies.is_empty() || depth == DEEPEST {
                    cell.bodies.push(index);
                    return;
                }
                // The body that was here alone goes one cell down, and has that cell for itself.
                cell.divided = true;
                let before = std::mem::take(&mut cell.bodies);
                for other in before {
                    let moved = &bodies[other as usize];
                    let child = self.child(at, &moved.position);
                    let cell = &mut self.cells[child];
                    cell.mass += moved.mass;
                    cell.moment = add(cell.moment, moved.position.map(|part| part * moved.mass));
                    cell.bodies.push(other);
                    self.steps += 1;
                }
            }
            at = self.child(at, &body.position);
            depth += 1;
        }
    }

    /// The cell within `at` for a position, made if there is none.
    fn child(&mut self, at: usize, position: &Vector) -> usize {
        let cell = &self.cells[at];
        let half = cell.half / 2.0;
        let mut octant = 0;
        let mut centre = cell.centre;
        for axis in 0..3 {
            let upper = position[axis] >= centre[axis];
            octant |= usize::from(upper) << axis;
            centre[axis] += if upper { half } else { -half };
        }
        if cell.children[octant] == NONE {
            let made = self.cells.len() as u32;
            self.cells[at].children[octant] = made;
            self.cells.push(Cell::new(centre, half));
        }
        self.cells[at].children[octant] as usize
    }

    fn arrange(&mut self, at: usize) {
        self.order.extend_from_slice(&self.cells[at].bodies);
        for child in self.cells[at].children {
            if child != NONE {
                self.arrange(child as usize);
            }
        }
    }

    /// How many cells there are.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns true if there is none, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The bodies in the order of the tree: neighbours mostly follow each other.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// The acceleration of one body. `visit` is told each cell that is looked at, by its place in the
    /// tree, and how many bodies or groups attracted from there.
    pub fn acceleration(
        &self,
        bodies: &[Body],
        index: usize,
        mut visit: impl FnMut(u32, u32),
    ) -> Vector {
        let here = bodies[index].position;
        let mut sum = [0.0; 3];
        let mut open = vec![0u32];
        while let Some(at) = open.pop() {
            let cell = &self.cells[at as usize];
            let mut interactions = 0;
            if !cell.divided {
                for &other in &cell.bodies {
                    if other as usize != index {
                        let other = &bodies[other as usize];
                        sum = add(sum, attraction(&here, &other.position, other.mass));
                        interactions += 1;
                    }
                }
            } else {
                let apart = (0..3)
                    .map(|axis| (cell.moment[axis] - here[axis]).powi(2))
                    .sum::<f64>();
                let inside = (0..3).all(|axis| (here[axis] - cell.centre[axis]).abs() <= cell.half);
                let width = 2.0 * cell.half;
                if !inside && width * width < ANGLE * ANGLE * apart {
                    sum = add(sum, attraction(&here, &cell.moment, cell.mass));
                    interactions = 1;
                } else {
                    open.extend(cell.children.iter().rev().filter(|&&child| child != NONE));
                }
            }
            visit(self.places[at as usize], interactions);
        }
        sum
    }
}

impl Cell {
    fn new(centre: Vector, half: f64) -> Self {
        Cell {
            centre,
            half,
            mass: 0.0,
            moment: [0.0; 3],
            children: [NONE; 8],
            bodies: Vec::new(),
            divided: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(vector: Vector) -> f64 {
        vector.iter().map(|part| part * part).sum::<f64>().sqrt()
    }

    /// Against the sum over all bodies.
    #[test]
    fn the_tree_attracts_as_its_bodies_do() {
        let bodies = plummer(1000, 5);
        let tree = Tree::new(&bodies);
        let mut worst: f64 = 0.0;
        let (mut apart, mut sum) = (0.0, 0.0);
        for index in 0..bodies.len() {
            let exact = direct(&bodies, index);
            let found = tree.acceleration(&bodies, index, |_, _| {});
            let error = length(std::array::from_fn(|axis| found[axis] - exact[axis]));
            worst = worst.max(error / length(exact));
            apart += error;
            sum += length(exact);
        }
        assert!(apart / sum < 0.02, "mean error {}", apart / sum);
        assert!(worst < 0.2, "worst error {worst}");
    }

    /// O(N log N): four times the bodies, much less than 16 times the work.
    #[test]
    fn the_work_grows_little_faster_than_the_bodies() {
        let work = |count| {
            let bodies = plummer(count, 9);
            let tree = Tree::new(&bodies);
            let mut work = 0;
            for index in 0..count {
                tree.acceleration(&bodies, index, |_, interactions| {
                    work += u64::from(interactions)
                });
            }
            work as f64
        };
        let growth = work(8000) / work(2000);
        assert!((4.0..6.5).contains(&growth), "{growth}");
    }

    /// Bodies at one place end up in one cell, and every body in some.
    #[test]
    fn every_body_has_a_place() {
        let mut bodies = plummer(200, 1);
        bodies[7] = bodies[3];
        let tree = Tree::new(&bodies);
        let mut order = tree.order().to_vec();
        order.sort_unstable();
        assert!(order.into_iter().eq(0..200));
        let found = tree.acceleration(&bodies, 7, |_, _| {});
        assert!(found.iter().all(|part| part.is_finite()));
    }
}
