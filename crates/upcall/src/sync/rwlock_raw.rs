//! The lock of readers and writers, without what it protects.
//!
//! Readers do not starve writers, and are woken whenever a writer leaves (phases take turns: Brandenburg and Anderson,
//! *Spin-Based Reader-Writer Synchronization for Multiprocessor Real-Time Systems*, 2010):
//!
//! 1. A writer that has to wait shuts the *gate* ([`WRITERS`]). Readers that come then wait, and those that are inside
//!    leave; the last one wakes a writer. The gate stays shut until a writer was inside.
//! 2. A writer that leaves opens the gate if readers wait, and wakes all of them, then a writer, which shuts the gate
//!    behind them.
//! 3. A woken thread takes the lock like any other, or waits again. A writer that has waited shuts the gate when it
//!    enters, since it cannot know of others; if there are none, it opens the gate when it leaves.
//! 4. A writer that gives up, or becomes a reader, opens the gate and wakes as in 2: the waiting threads look again.
//!
//! A bit is cleared before those are woken that it stands for. What this does not do is to hand the lock over: a
//! writer that comes while it is free enters before those that were woken.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::waiting::{self, AtomicU32, Deadline, Patience};

/// A writer is inside.
const WRITER: u32 = 1 << 31;
/// Writers may wait: the gate is shut.
const WRITERS: u32 = 1 << 30;
/// Readers may wait.
const READERS: u32 = 1 << 29;
/// The readers inside.
const COUNT: u32 = READERS - 1;
const WAITING: u32 = READERS | WRITERS;

/// The lock without what it protects.
pub struct Raw {
    /// Readers wait for it.
    state: AtomicU32,
    /// Writers wait for it: how often one was woken.
    writers_woken: AtomicU32,
}

impl Default for Raw {
    fn default() -> Self {
        Raw::new()
    }
}

fn admits_readers(state: u32) -> bool {
    state & (WRITER | WRITERS) == 0
}

fn is_free(state: u32) -> bool {
    state & (WRITER | COUNT) == 0
}

impl Raw {
    constant! {
        /// A free lock; all its bytes are zero.
        pub const fn new() -> Self {
            Raw {
                state: AtomicU32::new(0),
                writers_woken: AtomicU32::new(0),
            }
        }
    }

    /// Enters as a reader, unless a writer is inside or waits; returns true if it did.
    #[inline]
    pub fn try_read(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while admits_readers(state) {
            match self.enter(state, state + 1) {
                Ok(()) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    #[inline]
    fn enter(&self, from: u32, to: u32) -> Result<(), u32> {
        if from & COUNT == COUNT {
            too_many();
        }
        // Acquire: pairs with the Releases in `end_read`, `end_write` and `downgrade`.
        self.state
            .compare_exchange_weak(from, to, Ordering::Acquire, Ordering::Relaxed)
            .map(drop)
    }

    /// Enters as a reader.
    #[inline]
    pub fn read(&self) {
        if !self.try_read() {
            self.wait_to_read(None);
        }
    }

    #[inline]
    pub(super) fn read_timeout(&self, timeout: Duration) -> bool {
        self.try_read() || self.wait_to_read(Deadline::after(timeout))
    }

    /// [`Raw::read`] until `deadline`, if there is one; returns true if it entered.
    #[cfg(not(loom))]
    pub fn read_until(&self, deadline: Option<Deadline>) -> bool {
        self.try_read() || self.wait_to_read(deadline)
    }

    /// A reader leaves.
    #[inline]
    pub fn end_read(&self) {
        // Release: pairs with the Acquire in `try_write`.
        let state = self.state.fetch_sub(1, Ordering::Release) - 1;
        if state & COUNT == 0 && state & WAITING != 0 {
            self.readers_left(state);
        }
    }

    /// Enters as the writer, unless a thread is inside; returns true if it did.
    #[inline]
    pub fn try_write(&self) -> bool {
        self.try_write_with(self.state.load(Ordering::Relaxed), 0)
            .is_ok()
    }

    /// Enters as a writer unless a thread is inside; `gate` is what else to set.
    #[inline]
    fn try_write_with(&self, mut state: u32, gate: u32) -> Result<(), u32> {
        while is_free(state) {
            match self.enter(state, state | WRITER | gate) {
                Ok(()) => return Ok(()),
                Err(now) => state = now,
            }
        }
        Err(state)
    }

    /// Enters as the writer.
    #[inline]
    pub fn write(&self) {
        if !self.try_write() {
            self.wait_to_write(None);
        }
    }

    #[inline]
    pub(super) fn write_timeout(&self, timeout: Duration) -> bool {
        self.try_write() || self.wait_to_write(Deadline::after(timeout))
    }

    /// [`Raw::write`] until `deadline`, if there is one; returns true if it entered.
    #[cfg(not(loom))]
    pub fn write_until(&self, deadline: Option<Deadline>) -> bool {
        self.try_write() || self.wait_to_write(deadline)
    }

    /// How many readers are inside, at some moment.
    #[cfg(not(loom))]
    pub fn readers(&self) -> u32 {
        self.state.load(Ordering::Relaxed) & COUNT
    }

    /// Returns true if the writer is inside, at some moment.
    #[cfg(not(loom))]
    pub fn is_written(&self) -> bool {
        self.state.load(Ordering::Relaxed) & WRITER != 0
    }

    /// The writer leaves.
    #[inline]
    pub fn end_write(&self) {
        // Release: pairs with the Acquire in `enter`.
        let state = self.state.fetch_sub(WRITER, Ordering::Release) - WRITER;
        if state & WAITING != 0 {
            self.writer_left(state);
        }
    }

    /// The writer inside becomes a reader.
    pub(super) fn downgrade(&self) {
        // Release: pairs with the Acquire in `enter` of other readers.
        let state = self.state.fetch_sub(WRITER - 1, Ordering::Release) - (WRITER - 1);
        if state & WAITING != 0 {
            self.open(state, |_| true);
        }
    }

    #[cold]
    fn wait_to_read(&self, deadline: Option<Deadline>) -> bool {
        let mut state = self.look(admits_readers);
        loop {
            if admits_readers(state) {
                match self.enter(state, state + 1) {
                    Ok(()) => return true,
                    Err(now) => state = now,
                }
                continue;
            }
            if let Err(now) = self.mark(state, READERS) {
                state = now;
                continue;
            }
            if !waiting::wait(&self.state, state | READERS, deadline) {
                return self.try_read();
            }
            state = self.look(admits_readers);
        }
    }

    #[cold]
    fn wait_to_write(&self, deadline: Option<Deadline>) -> bool {
        let mut gate = 0;
        loop {
            self.look(is_free);
            // Acquire: pairs with `wake_writer`. The look at the state comes after this one: a wake-up that is
            // in the number already was for a state that is seen.
            let woken = self.writers_woken.load(Ordering::Acquire);
            let Err(state) = self.try_write_with(self.state.load(Ordering::Relaxed), gate) else {
                return true;
            };
            gate = WRITERS;
            if self.mark(state, WRITERS).is_err() {
                continue;
            }
            if !waiting::wait(&self.writers_woken, woken, deadline) {
                return self.give_up_writing();
            }
        }
    }

    /// Sets a bit, unless the state is not `state` any more.
    fn mark(&self, state: u32, bit: u32) -> Result<(), u32> {
        if state & bit != 0 {
            return Ok(());
        }
        // Relaxed: the mark carries nothing but itself.
        self.state
            .compare_exchange_weak(state, state | bit, Ordering::Relaxed, Ordering::Relaxed)
            .map(drop)
    }

    /// The state, after some looks while what `wanted` asks for may come to hold without a wait.
    fn look(&self, wanted: impl Fn(u32) -> bool) -> u32 {
        let mut patience = Patience::new();
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if wanted(state) || state & WAITING != 0 || !patience.lasts() {
                return state;
            }
        }
    }

    #[cold]
    fn readers_left(&self, state: u32) {
        // No writer sleeps: then it is about to, and sees the number; or gives up, and has its last try.
        if state & WRITERS != 0 {
            self.wake_writer();
        } else {
            self.open(state, |state| state & WRITER == 0);
        }
    }

    #[cold]
    fn writer_left(&self, state: u32) {
        // No writer sleeps: there may be none, and the gate be shut without need.
        if state & READERS != 0 || !self.wake_writer() {
            self.open(state, |state| state & WRITER == 0);
        }
    }

    /// The time is over; a last try. Returns true if it entered.
    fn give_up_writing(&self) -> bool {
        loop {
            let Err(state) = self.try_write_with(self.state.load(Ordering::Relaxed), WRITERS)
            else {
                return true;
            };
            if self.open(state, |state| !is_free(state)) {
                return false;
            }
        }
    }

    /// Opens the gate and wakes the waiting threads, if `still` holds of the state; returns true if it did.
    fn open(&self, mut state: u32, still: impl Fn(u32) -> bool) -> bool {
        loop {
            if !still(state) {
                return false;
            }
            if state & WAITING == 0 {
                return true;
            }
            // Relaxed: a woken thread takes the lock, and acquires what was released with it.
            match self.state.compare_exchange_weak(
                state,
                state & !WAITING,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if state & READERS != 0 {
            waiting::wake(&self.state, u32::MAX);
        }
        if state & WRITERS != 0 {
            self.wake_writer();
        }
        true
    }

    /// Returns true if one was woken; it will come.
    fn wake_writer(&self) -> bool {
        // Release: pairs with the Acquire in `wait_to_write`.
        self.writers_woken.fetch_add(1, Ordering::Release);
        waiting::wake(&self.writers_woken, 1) != 0
    }
}

#[cold]
fn too_many() -> ! {
    panic!("a lock with more than {COUNT} readers");
}
