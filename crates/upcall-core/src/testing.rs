//! A kernel for unit tests of single structures: it maps memory and notes the alarm. Nothing runs
//! on it; the whole runtime is tested on the machine of `upcall-sim`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::boxed::Box;
use std::vec;

use crate::kernel::Poll;
use crate::machine::{Errno, Machine};
use crate::memory::Slab;
use crate::state::thread::Thread;

/// The kernel.
pub(crate) struct Bare {
    /// The last alarm asked for.
    pub(crate) alarm: AtomicU64,
    /// The slack of threads that park from now on.
    pub(crate) slack: AtomicU64,
}

impl Bare {
    pub(crate) fn new() -> Self {
        Bare {
            alarm: AtomicU64::new(u64::MAX),
            slack: AtomicU64::new(0),
        }
    }

    /// Threads that never run.
    pub(crate) fn threads<const N: usize>(&self) -> [&'static Thread<Self>; N] {
        let slab: Slab<Thread<Self>> = Slab::new();
        core::array::from_fn(|_| slab.take(self).unwrap().0)
    }
}

/// So many rounds of a test, of which an interpreter (Miri) gets through a part only.
pub(crate) const fn rounds(usual: u32) -> u32 {
    if cfg!(miri) {
        usual.div_ceil(100)
    } else {
        usual
    }
}

/// Numbers that look random, the same in each run.
pub(crate) fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut x = seed | 1;
    move |below| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) % below
    }
}

// SAFETY: memory is leaked, so it stays mapped.
unsafe impl Machine for Bare {
    type ActivationState = ();
    type ThreadState = ();

    fn map(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        const PAGE: usize = 4096;
        let memory = Box::leak(vec![0u8; length + PAGE].into_boxed_slice());
        let start = memory.as_ptr().align_offset(PAGE);
        Ok(NonNull::from(&mut memory[start..]).cast())
    }

    fn broken(&self, what: &str) -> ! {
        panic!("{what}")
    }
}

impl Poll for Bare {
    fn set_alarm(&self, deadline: u64) {
        self.alarm.store(deadline, Ordering::Relaxed);
    }

    fn slack(&self, _: &'static Thread<Self>) -> u64 {
        self.slack.load(Ordering::Relaxed)
    }
}
