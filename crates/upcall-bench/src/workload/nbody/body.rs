//! Bodies: a model to begin with, a step in time, and their energy. The gravitational constant is 1.

use std::f64::consts::{SQRT_2, TAU};

/// A vector.
pub type Vector = [f64; 3];

/// Softening of close encounters, squared: the potential of a pair is -m m / sqrt(r² + SOFTENING).
pub const SOFTENING: f64 = 1e-3;

/// A body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Body {
    /// Its mass.
    pub mass: f64,
    /// Where it is.
    pub position: Vector,
    /// How it moves.
    pub velocity: Vector,
}

/// Numbers from 0 to 1 that look random, the same for the same seed (Marsaglia's xorshift).
fn numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A Plummer sphere of `count` bodies with a mass of 1 together, at rest as a whole, by the method of
/// Aarseth, Hénon and Wielen (1974). The same for the same seed.
#[must_use]
pub fn plummer(count: usize, seed: u64) -> Vec<Body> {
    let mut pick = numbers(seed);
    // The first numbers of seeds that are alike are alike.
    for _ in 0..16 {
        pick();
    }
    let mut bodies: Vec<_> = (0..count)
        .map(|_| {
            // The innermost 99 percent of the mass: the sphere has no end.
            let inside = 0.001 + 0.989 * pick();
            let radius = (inside.powf(-2.0 / 3.0) - 1.0).powf(-0.5);
            let ratio = loop {
                let (ratio, height) = (pick(), 0.1 * pick());
                if height < ratio * ratio * (1.0 - ratio * ratio).powf(3.5) {
                    break ratio;
                }
            };
            let speed = ratio * SQRT_2 * (1.0 + radius * radius).powf(-0.25);
            Body {
                mass: 1.0 / count as f64,
                position: direction(&mut pick).map(|part| part * radius),
                velocity: direction(&mut pick).map(|part| part * speed),
            }
        })
        .collect();
    let mean = |what: fn(&Body) -> Vector| {
        let sum = bodies
            .iter()
            .fold([0.0; 3], |sum, body| add(&sum, &what(body), 1.0));
        sum.map(|part| part / count as f64)
    };
    let (centre, drift) = (mean(|body| body.position), mean(|body| body.velocity));
    for body in &mut bodies {
        body.position = add(&body.position, &centre, -1.0);
        body.velocity = add(&body.velocity, &drift, -1.0);
    }
    bodies
}

fn direction(pick: &mut impl FnMut() -> f64) -> Vector {
    let z = 2.0 * pick() - 1.0;
    let angle = TAU * pick();
    let flat = (1.0 - z * z).sqrt();
    [flat * angle.cos(), flat * angle.sin(), z]
}

/// `one` and `times` the other.
#[inline(always)]
pub(super) fn add(one: &Vector, other: &Vector, times: f64) -> Vector {
    // Written out, since every compiler at every setting sees through it.
    [
        one[0] + times * other[0],
        one[1] + times * other[1],
        one[2] + times * other[2],
    ]
}

#[inline(always)]
pub(super) fn squared(vector: &Vector) -> f64 {
    vector[0] * vector[0] + vector[1] * vector[1] + vector[2] * vector[2]
}

/// Adds the attraction of a mass that is so far `apart`; that of a body on itself is nothing.
#[inline(always)]
pub(super) fn attract(sum: &mut Vector, apart: &Vector, mass: f64) {
    let squared = squared(apart) + SOFTENING;
    *sum = add(sum, apart, mass / (squared * squared.sqrt()));
}

/// The first half of a leapfrog step: half a kick, and the drift. The accelerations are those where the
/// bodies are; [`kick`] with those where they come to makes the step complete.
pub fn kick_and_drift(bodies: &mut [Body], accelerations: &[Vector], dt: f64) {
    kick(bodies, accelerations, dt);
    for body in bodies {
        body.position = add(&body.position, &body.velocity, dt);
    }
}

/// Half a kick: the velocities change as in half of `dt`.
pub fn kick(bodies: &mut [Body], accelerations: &[Vector], dt: f64) {
    for (body, acceleration) in bodies.iter_mut().zip(accelerations) {
        body.velocity = add(&body.velocity, acceleration, dt / 2.0);
    }
}

/// The acceleration of one body by all others, one by one.
#[must_use]
pub fn direct(bodies: &[Body], index: usize) -> Vector {
    let mut sum = [0.0; 3];
    for other in bodies {
        let apart = add(&other.position, &bodies[index].position, -1.0);
        attract(&mut sum, &apart, other.mass);
    }
    sum
}

/// Kinetic and potential energy, by all pairs: O(N²).
#[must_use]
pub fn energy(bodies: &[Body]) -> f64 {
    let mut sum = 0.0;
    for (index, one) in bodies.iter().enumerate() {
        sum += 0.5 * one.mass * squared(&one.velocity);
        for other in &bodies[index + 1..] {
            let apart = add(&one.position, &other.position, -1.0);
            sum -= one.mass * other.mass / (squared(&apart) + SOFTENING).sqrt();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_at_rest_and_its_seed_decides() {
        let bodies = plummer(2000, 7);
        assert_eq!(bodies, plummer(2000, 7));
        assert_ne!(bodies, plummer(2000, 8));
        for what in [|body: &Body| body.position, |body: &Body| body.velocity] {
            let sum = (bodies.iter()).fold([0.0; 3], |sum, body| add(&sum, &what(body), body.mass));
            assert!(sum.iter().all(|part| part.abs() < 1e-12), "{sum:?}");
        }
        // In these units a Plummer sphere has -3 pi / 64; 1 percent of the mass is left out.
        let found = energy(&bodies);
        let expected = -3.0 * std::f64::consts::PI / 64.0;
        assert!(
            (found / expected - 1.0).abs() < 0.1,
            "{found} and not {expected}"
        );
    }
}
