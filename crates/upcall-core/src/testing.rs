//! A kernel for unit tests of single structures: it maps memory and notes the alarm. Nothing runs
//! on it; the whole runtime is tested on the machine of `upcall-sim`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::boxed::Box;
use std::vec;

use crate::activation::Activation;
use crate::kernel::{Errno, Kernel, Waiting};
use crate::memory::Slab;
use crate::thread::Thread;
use crate::thread_list::ThreadList;

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

// SAFETY: memory is leaked, so it stays mapped; no activation exists that could be wrong.
unsafe impl Kernel for Bare {
    type ActivationState = ();
    type ThreadState = ();

    fn current(&self) -> &'static Activation<Self> {
        unreachable!("nothing runs")
    }

    fn set_inside(&self) {}

    fn clear_inside(&self) -> bool {
        false
    }

    fn now(&self) -> u64 {
        0
    }

    fn yield_processor(&self) {}

    fn sleep(&self, _: &'static Activation<Self>, _: u32) {}

    fn wake(&self, _: &'static Activation<Self>) {}

    fn interrupt(&self, _: &'static Activation<Self>) {}

    fn is_blocked(&self, _: &'static Activation<Self>, _: bool) -> bool {
        false
    }

    fn waiting(&self, _: &'static Activation<Self>) -> Waiting {
        Waiting::Deaf
    }

    fn spawn(&self, _: &'static Activation<Self>, _: bool) -> Result<(), Errno> {
        Err(Errno(11))
    }

    fn exit_activation(&self, _: &'static Activation<Self>) -> ! {
        unreachable!("nothing runs")
    }

    fn bind(&self, _: &'static Activation<Self>) {}

    fn install(&self, _: &'static Activation<Self>, _: &'static Thread<Self>) {}

    fn uninstall(&self, _: &'static Activation<Self>, _: &'static Thread<Self>) {}

    fn map(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        const PAGE: usize = 4096;
        let memory = Box::leak(vec![0u8; length + PAGE].into_boxed_slice());
        let start = memory.as_ptr().align_offset(PAGE);
        Ok(NonNull::from(&mut memory[start..]).cast())
    }

    fn guard(&self, _: NonNull<u8>, _: usize) {}

    fn poll(&self, _: &'static Activation<Self>, _: Option<u32>) -> ThreadList<Self> {
        ThreadList::new()
    }

    fn wants_poller(&self) -> bool {
        false
    }

    fn set_alarm(&self, deadline: u64) {
        self.alarm.store(deadline, Ordering::Relaxed);
    }

    fn slack(&self, _: &'static Thread<Self>) -> u64 {
        self.slack.load(Ordering::Relaxed)
    }

    fn is_interrupted(&self, _: &'static Thread<Self>) -> bool {
        false
    }

    fn deferred(&self, _: &'static Activation<Self>, _: Option<&'static Thread<Self>>) {}

    fn tick(&self, _: &'static Activation<Self>, _: &'static Thread<Self>) {}

    fn is_gone(&self, _: &'static Activation<Self>) -> bool {
        true
    }

    fn sentinel(&self) -> bool {
        false
    }

    fn broken(&self, what: &str) -> ! {
        panic!("{what}")
    }
}
