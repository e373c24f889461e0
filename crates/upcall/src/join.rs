//! Fork and join.

use std::panic::resume_unwind;

use crate::thread;

/// Runs both, possibly at the same time, and returns their results. `other` has a thread of its own, which runs before
/// threads that wait. Both may block, and may divide their work again.
///
/// ```
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() < 100 {
///         return numbers.iter().sum();
///     }
///     let (left, right) = numbers.split_at(numbers.len() / 2);
///     let (left, right) = upcall::join(|| sum(left), || sum(right));
///     left + right
/// }
/// let numbers: Vec<u64> = (1..=1000).collect();
/// assert_eq!(sum(&numbers), 500_500);
/// ```
///
/// # Panics
///
/// If one of them panicked, with its panic, when both have ended; with that of `one` if both panicked. If there is no
/// memory, or the kernel gives no thread.
pub fn join<A, B, RA, RB>(one: A, other: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        (
            one,
            other.join().unwrap_or_else(|panic| resume_unwind(panic)),
        )
    })
}
