//! Stacks from packed pools.
//!
//! A pool maps many stacks at a time, side by side, without reserving memory; each has a guard
//! page at its low end that costs no mapping of its own where the kernel can do that
//! ([`Machine::guard`]). A used stack is recycled, most recently used first, with its pages.
//!
//! ```text
//!   chunk:  | guard | stack 0 ........ top | guard | stack 1 ........ top | ...
//! ```
//!
//! The link of a free stack is kept in its topmost word, the one page that is surely there.
//! Approach rejected: a mapping per stack, which ends at `vm.max_map_count` (32,753 stacks).

use core::ptr::NonNull;

use crate::lock::SpinLock;
use crate::machine::{Errno, Machine};

pub(crate) const PAGE: usize = 4096;
/// Bytes that a pool maps at first, at least one stack. Later as much again as it has, up to the most.
const CHUNK: usize = 4 << 20;
const MOST: usize = 64 << 20;

struct Free {
    head: usize,
    next: usize,
    end: usize,
    /// Bytes that were mapped so far.
    mapped: usize,
}

/// A pool of stacks of one size.
pub struct StackPool {
    size: usize,
    free: SpinLock<Free>,
}

impl StackPool {
    /// A pool of stacks of `size` bytes each, guard page included; a multiple of 4096, at least 8192.
    pub const fn new(size: usize) -> Self {
        assert!(size >= 2 * PAGE && size.is_multiple_of(PAGE));
        StackPool {
            size,
            free: SpinLock::new(Free {
                head: 0,
                next: 0,
                end: 0,
                mapped: 0,
            }),
        }
    }

    /// A stack: the address just above it, aligned to 64 bytes, and whether nobody has used it before.
    ///
    /// # Errors
    ///
    /// What [`Machine::map`] reports when memory is exhausted.
    ///
    /// # Upcall safety
    ///
    /// Inside the runtime only; allocates nothing but pages.
    pub fn take<K: Machine>(&self, kernel: &K) -> Result<(usize, bool), Errno> {
        let mut free = self.free.lock(kernel);
        if free.head != 0 {
            let top = free.head;
            // SAFETY: a free stack's topmost word holds the link, written by `give`.
            free.head = unsafe { *((top - size_of::<usize>()) as *const usize) };
            return Ok((top, false));
        }
        if free.next == free.end {
            let least = CHUNK.next_multiple_of(self.size);
            let most = MOST.next_multiple_of(self.size);
            let length = free.mapped.clamp(least, most);
            // Where addresses are limited there may be room for less.
            let (chunk, length) = match kernel.map_stacks(length) {
                Ok(chunk) => (chunk, length),
                Err(_) => (kernel.map_stacks(least)?, least),
            };
            free.next = chunk.as_ptr() as usize;
            free.end = free.next + length;
            free.mapped += length;
        }
        let low = free.next;
        free.next += self.size;
        drop(free);
        if let Some(guard) = NonNull::new(low as *mut u8) {
            kernel.guard(guard, PAGE);
        }
        Ok((low + self.size, true))
    }

    /// Gives back the stack below `top`.
    ///
    /// # Safety
    ///
    /// `top` came from [`StackPool::take`] of this pool, and nothing uses the stack any more.
    pub unsafe fn give<K: Machine>(&self, kernel: &K, top: usize) {
        let mut free = self.free.lock(kernel);
        // SAFETY: the topmost word of a stack that the caller owns.
        unsafe { *((top - size_of::<usize>()) as *mut usize) = free.head };
        free.head = top;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicUsize;
    use crate::sync::Ordering::Relaxed;
    use crate::testing::Bare;
    use std::collections::BTreeSet;

    /// A kernel with so much room.
    struct Limited(AtomicUsize);

    // SAFETY: as `Bare`, of whose memory it gives a part.
    unsafe impl Machine for Limited {
        type ActivationState = ();
        type ThreadState = ();

        fn map(&self, length: usize) -> Result<NonNull<u8>, Errno> {
            let left = self.0.load(Relaxed);
            let rest = left.checked_sub(length).ok_or(Errno(12))?;
            self.0.store(rest, Relaxed);
            Bare::new().map(length)
        }

        fn broken(&self, what: &str) -> ! {
            panic!("{what}")
        }
    }

    #[test]
    fn a_pool_goes_on_in_small_steps_where_addresses_are_limited() {
        const SIZE: usize = 1 << 20;
        // After 4, 4 and 8 MiB there is no room for 16.
        let kernel = Limited(AtomicUsize::new(24 << 20));
        let pool = StackPool::new(SIZE);
        let all: BTreeSet<usize> =
            core::iter::from_fn(|| pool.take(&kernel).ok().map(|(top, _)| top)).collect();
        assert_eq!(all.len(), 24);
    }

    #[test]
    fn stacks_do_not_overlap_and_come_back() {
        const SIZE: usize = 16 << 10;
        let kernel = Bare::new();
        let pool = StackPool::new(SIZE);
        let fresh = |expected| {
            let (top, fresh) = pool.take(&kernel).unwrap();
            assert_eq!(fresh, expected);
            top
        };
        let tops: BTreeSet<usize> = (0..600).map(|_| fresh(true)).collect();
        assert_eq!(tops.len(), 600);
        for (low, high) in tops.iter().zip(tops.iter().skip(1)) {
            assert!(high - low >= SIZE);
        }
        for &top in &tops {
            assert_eq!(top % 64, 0);
            // SAFETY: taken above, used by nobody.
            unsafe { pool.give(&kernel, top) };
        }
        let again: BTreeSet<usize> = (0..600).map(|_| fresh(false)).collect();
        assert_eq!(tops, again);
    }
}
