//! The end of a thread, and who waits for it or has its result: one word between the thread and the one
//! handle that there is of it.
//!
//! | state | meaning | who leaves it |
//! |---|---|---|
//! | `RUNNING` | the thread runs, and somebody has its handle | the thread, its handle |
//! | a thread | as `RUNNING`, and that thread waits, saved | the thread that ends; who interrupts the one that waits |
//! | `OUTSIDE` | as `RUNNING`, and a kernel thread waits that is no activation | the thread that ends |
//! | `LEAVING` | its result is there, and it will end without another step of its own | the thread, its handle |
//! | `DROPPED` | the thread runs, and nobody has its handle | the thread |
//! | `OVER` | it has ended; nothing of it runs | its handle, which gives everything back |
//!
//! The caller that takes a waiting thread out of the word makes it ready, and nobody else does: a thread that waits
//! here is `Queued`, which [`Thread::claim`] leaves alone. Words are never unmapped, since a caller that interrupts
//! a thread may look at one in which the thread does not wait any more.

use core::marker::PhantomData;

use crate::kernel::Attributes;
use crate::machine::Machine;
use crate::state::thread::{Claim, Phase, Thread, WakeReason};
use crate::state::wait::Wait;
use crate::sync::{AtomicUsize, Ordering};

const RUNNING: usize = 0;
const OVER: usize = 1;
const DROPPED: usize = 2;
const LEAVING: usize = 3;
const OUTSIDE: usize = 4;

/// See the module's text.
#[repr(transparent)]
pub struct Ending<K: Machine> {
    word: AtomicUsize,
    kind: PhantomData<fn() -> K>,
}

/// What is to be done for a thread that has ended.
pub enum Ended<K: Machine> {
    /// Its handle is still there, and nobody waits.
    Kept,
    /// Nobody has its handle: its result is its own to drop. It has not ended yet.
    Dropped,
    /// This thread waited: the caller makes it ready, or runs it.
    Joined(&'static Thread<K>),
    /// A kernel thread waits for the word.
    Outside,
}

impl<K: Machine> Default for Ending<K> {
    fn default() -> Self {
        Ending {
            word: AtomicUsize::new(RUNNING),
            kind: PhantomData,
        }
    }
}

impl<K: Machine> Ending<K> {
    /// What its word is when it is over. For debuggers.
    pub const OVER: usize = OVER;

    /// Another thread begins, whose handle there is. Called by the one that has given everything back.
    #[inline]
    pub fn begin(&self) {
        // Relaxed: the thread is made ready, and the handle passed on, afterwards.
        self.word.store(RUNNING, Ordering::Relaxed);
    }

    /// Returns true if it is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        // SeqCst: a caller that looks whether all threads are over has noted before that it looks. Acquire: what
        // the thread did is seen.
        self.word.load(Ordering::SeqCst) == OVER
    }

    /// Called by the thread: it will end without another step of its own, and its result is there. Returns true if
    /// anybody has its handle. If not, the result is the thread's own to drop.
    pub fn leave(&self) -> bool {
        // Release: the result. Pairs with the Acquire in `drop_handle`.
        let left = self.change(RUNNING, LEAVING, Ordering::Release);
        left != Err(DROPPED)
    }

    fn change(&self, from: usize, to: usize, order: Ordering) -> Result<usize, usize> {
        self.word
            .compare_exchange(from, to, order, Ordering::Acquire)
    }

    /// The thread is saved and has given its result, or is gone; `gone`: it does not run again to
    /// drop anything.
    #[inline]
    pub fn end(&self, gone: bool) -> Ended<K> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word == DROPPED && !gone {
                return Ended::Dropped;
            }
            // Release: the result. Acquire: the thread that waits is saved. SeqCst: see `is_over`.
            match self.change(word, OVER, Ordering::SeqCst) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        match word {
            RUNNING | LEAVING => Ended::Kept,
            OUTSIDE => Ended::Outside,
            DROPPED => Ended::Dropped,
            // SAFETY: the address of a thread, as `hang` has put it there; memory of threads is there for ever.
            thread => Ended::Joined(unsafe { &*(thread as *const Thread<K>) }),
        }
    }

    /// Called by the handle, which is not used any more. `drop_result` is called if the result is the handle's to drop.
    /// Returns true if the thread is over: the caller must then give everything back.
    pub fn drop_handle(&self, drop_result: impl FnOnce()) -> bool {
        // Acquire: the result. Pairs with the Releases in `leave` and `end`.
        match self.change(RUNNING, DROPPED, Ordering::Acquire) {
            Ok(_) => false,
            Err(word) => {
                drop_result();
                // Release: nobody looks at the result any more. From `LEAVING` it may have become `OVER`.
                word == OVER || self.change(LEAVING, DROPPED, Ordering::AcqRel).is_err()
            }
        }
    }

    /// Called by a kernel thread that is no activation. If a value is returned, the caller must wait until the lower
    /// half of the word is other than that value.
    pub fn hang_outside(&self) -> Option<u32> {
        let mut word = self.word.load(Ordering::Acquire);
        while word != OVER {
            match self.change(word, OUTSIDE, Ordering::AcqRel) {
                Ok(_) => return Some(OUTSIDE as u32),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Where the word is.
    pub fn address(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Takes the thread out, if it waits here: it is the caller's then.
    fn withdraw(&self, thread: &'static Thread<K>) -> bool {
        let own = core::ptr::from_ref(thread) as usize;
        // That it was `LEAVING` before is not known any more, and only of interest to a handle that is dropped.
        self.change(own, RUNNING, Ordering::SeqCst).is_ok()
    }
}

impl<K: Attributes> Ending<K> {
    /// The thread, which is saved, waits. Returns true if it does. If not, what it waits for is over, or something
    /// has come for the thread itself, and it runs on.
    pub(crate) fn hang(&self, kernel: &K, thread: &'static Thread<K>) -> bool {
        let own = core::ptr::from_ref(thread) as usize;
        // Before the compare-and-swap, which stands between it and the look for a signal: see `Runtime::interrupt`.
        thread
            .wait
            .store(Wait::End(self.address()), Ordering::Relaxed);
        thread.state.store(Phase::Queued, Ordering::Relaxed);
        let mut word = self.word.load(Ordering::Relaxed);
        let hangs = loop {
            if word == OVER {
                break false;
            }
            // SeqCst: before the look for a signal. Release: the thread is saved.
            match self.change(word, own, Ordering::SeqCst) {
                Ok(_) => break true,
                Err(now) => word = now,
            }
        };
        if hangs && (!kernel.is_interrupted(thread) || !self.withdraw(thread)) {
            return true;
        }
        thread.state.store(Phase::Running, Ordering::Relaxed);
        false
    }
}

/// Something has come for a thread that waits for the end at this address ([`Wait::End`]).
pub(crate) fn interrupt<K: Machine>(ending: usize, thread: &'static Thread<K>) -> Claim {
    // SAFETY: the address of an `Ending`, which is there for ever, as the module's text demands.
    let ending = unsafe { &*(ending as *const Ending<K>) };
    if !ending.withdraw(thread) {
        return Claim::Lost;
    }
    thread.claim_in_bucket(WakeReason::Interrupted)
}
