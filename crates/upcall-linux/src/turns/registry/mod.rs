//! The memory that one user's processes share to take turns.
//!
//! A file (`place` says where) holds a header and one [`Slot`] for each process. Zeros are the valid beginning, so its
//! creators need no order among them. Every word is a hint: it is read as a number and bounded, and can cost no more than
//! the rules say (see `turns::rules`). A process that needs a slot takes one whose process is gone.

#[cfg(not(any(loom, shuttle)))]
use core::mem::offset_of;
use core::ptr;

use upcall_core::sync::{AtomicU32, AtomicU64, Ordering};

use super::rules::truce::Truce;
use super::rules::{Member, Phase, Set};
use crate::sys::procfs::Path;
use crate::sys::{self, error, memory};

mod place;

pub use place::{Trouble, forget, look, mend, path};

use place::{Origin, attach, detach, name};

/// Processes that can take part; the others are scheduled by the kernel alone.
pub const SLOTS: usize = 64;

const MAGIC: u64 = 0x7570_6361_6c6c_6732;
const ESRCH: i32 = libc::ESRCH;
/// How often a file is opened anew that has just been removed.
const TRIES: u32 = 3;
const FUTEX_WAKE: usize = 1;

/// What one process publishes.
#[repr(C, align(128))]
pub struct Slot {
    /// The process; 0: free.
    pid: AtomicU32,
    /// Counts the changes that concern it; it sleeps on this word.
    bell: AtomicU32,
    /// 0, or since when it has its turn.
    on: AtomicU64,
    /// 0, or since when it waits.
    waiting: AtomicU64,
    /// 0, or when it was offered the turn.
    offered: AtomicU64,
    /// When it was last heard of.
    beat: AtomicU64,
    /// Not 0: a competitor waits.
    wanted: AtomicU64,
    busy: [AtomicU64; Set::WORDS],
    /// When its last truce ends or ended, and how long it was to be.
    truce_until: AtomicU64,
    truce_length: AtomicU64,
}

#[repr(C, align(128))]
struct Shared {
    magic: AtomicU64,
    size: AtomicU64,
    /// No slot from here on was ever taken.
    nr_used: AtomicU32,
    slots: [Slot; SLOTS],
}

const SIZE: usize = size_of::<Shared>();
#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(size_of::<Slot>() == 128);
    assert!(offset_of!(Slot, bell) == 4);
    assert!(offset_of!(Slot, busy) == 48);
    assert!(offset_of!(Slot, truce_until) == 80);
    assert!(offset_of!(Shared, slots) == 128);
    assert!(SIZE == 128 * (SLOTS + 1));
};

/// This process's place among the others.
pub struct Registry {
    shared: &'static Shared,
    id: u32,
    /// The file; none where the memory is not a file's.
    origin: Option<Origin>,
}

impl Registry {
    /// Joins the registry of the calling process's user.
    ///
    /// # Errors
    ///
    /// [`Trouble`].
    pub fn join(pid: i32) -> Result<Self, Trouble> {
        Self::join_at(name, pid)
    }

    /// As [`Registry::join`], in this file.
    fn join_at(path: impl Fn() -> Path, pid: i32) -> Result<Self, Trouble> {
        let mut tries = 0;
        loop {
            let attached = attach(path())?;
            let Some(mut registry) = Self::take(attached.shared, pid) else {
                detach(attached.shared);
                return Err(Trouble::Full);
            };
            tries += 1;
            // The last member has just removed it: the others are in the next file of that name.
            if attached.is_removed() && tries < TRIES {
                detach(attached.shared);
                continue;
            }
            memory::note(ptr::from_ref(registry.shared) as usize, SIZE);
            registry.origin = Some(attached.origin);
            return Ok(registry);
        }
    }

    /// Takes a slot of nobody's, or of one that is gone.
    fn take(shared: &'static Shared, pid: i32) -> Option<Self> {
        for id in 0..SLOTS as u32 {
            let slot = &shared.slots[id as usize];
            let owner = slot.pid.load(Ordering::Acquire);
            // The same number: what this process was before it executed another program.
            if (owner == 0 || owner == pid as u32 || !is_alive(owner))
                && slot
                    .pid
                    .compare_exchange(owner, pid as u32, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                shared.nr_used.fetch_max(id + 1, Ordering::AcqRel);
                let registry = Registry {
                    shared,
                    id,
                    origin: None,
                };
                registry.publish(Phase::Resting);
                registry.publish_busy(Set::default());
                registry.publish_truce(Truce::default());
                return Some(registry);
            }
        }
        None
    }

    /// Gives the slot back.
    pub fn leave(&self) {
        self.publish(Phase::Resting);
        self.publish_busy(Set::default());
        // Release: the slot is clean for the next one.
        self.own().pid.store(0, Ordering::Release);
        if let Some(origin) = &self.origin
            && living(self.shared) == 0
        {
            origin.remove();
        }
    }

    /// Its place.
    pub fn id(&self) -> u32 {
        self.id
    }

    fn own(&self) -> &'static Slot {
        &self.shared.slots[self.id as usize]
    }

    /// This process as the others see it.
    pub fn me(&self) -> Member {
        self.own().read(self.id)
    }

    /// Reads the other members that have something to say into `room`; returns how many.
    pub fn others(&self, room: &mut [Member; SLOTS]) -> usize {
        let nr_used = self.shared.nr_used.load(Ordering::Acquire) as usize;
        let mut count = 0;
        for (id, slot) in self.shared.slots.iter().enumerate().take(nr_used) {
            if id as u32 != self.id && slot.pid.load(Ordering::Acquire) != 0 {
                let member = slot.read(id as u32);
                if !member.busy.is_empty() {
                    room[count] = member;
                    count += 1;
                }
            }
        }
        count
    }

    /// Publishes the phase.
    pub fn publish(&self, phase: Phase) {
        let (on, waiting, offered) = match phase {
            Phase::Resting => (0, 0, 0),
            Phase::On { since } => (since, 0, 0),
            Phase::Waiting { since, offered } => (0, since, offered),
        };
        let own = self.own();
        own.offered.store(offered, Ordering::Relaxed);
        own.waiting.store(waiting, Ordering::Relaxed);
        // SeqCst: before this member looks at the others again.
        own.on.store(on, Ordering::SeqCst);
        if on == 0 {
            own.wanted.store(0, Ordering::Relaxed);
        }
    }

    /// Publishes the processors in continuous use.
    pub(crate) fn publish_busy(&self, busy: Set) {
        for (word, value) in self.own().busy.iter().zip(busy.0) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Publishes the last truce.
    pub(crate) fn publish_truce(&self, truce: Truce) {
        let own = self.own();
        own.truce_length.store(truce.length, Ordering::Relaxed);
        own.truce_until.store(truce.until, Ordering::Relaxed);
    }

    /// Lets the others know that this process runs.
    pub fn beat(&self, now: u64) {
        self.own().beat.store(now, Ordering::Relaxed);
    }

    /// Notes that this process waits for `id`'s processors.
    pub fn want(&self, id: u32) {
        if let Some(slot) = self.shared.slots.get(id as usize) {
            slot.wanted.store(1, Ordering::Relaxed);
        }
    }

    /// Whether somebody said so of this one.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.own().wanted.load(Ordering::Relaxed) != 0
    }

    /// Nobody does any more.
    pub(crate) fn clear_wanted(&self) {
        self.own().wanted.store(0, Ordering::Relaxed);
    }

    /// Offers a waiting member the turn.
    pub(crate) fn offer(&self, id: u32, now: u64) {
        if let Some(slot) = self.shared.slots.get(id as usize) {
            // An older offer without an answer stands.
            let _ = slot
                .offered
                .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            slot.ring();
        }
    }

    /// Wakes a member that sleeps until something changes.
    pub fn ring(&self, id: u32) {
        if let Some(slot) = self.shared.slots.get(id as usize) {
            slot.ring();
        }
    }

    /// The word on which this process's kernel threads sleep.
    pub(super) fn bell(&self) -> *mut u32 {
        self.own().bell.as_ptr()
    }

    /// Frees the slot of a member whose process is gone. Returns true if it was.
    pub fn bury(&self, id: u32) -> bool {
        let Some(slot) = self.shared.slots.get(id as usize) else {
            return false;
        };
        let pid = slot.pid.load(Ordering::Acquire);
        if pid == 0 || is_alive(pid) {
            return false;
        }
        // Not reset but freed: it may have been taken by a new process in between.
        slot.pid
            .compare_exchange(pid, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

impl Slot {
    fn read(&self, id: u32) -> Member {
        let on = self.on.load(Ordering::SeqCst);
        let waiting = self.waiting.load(Ordering::Relaxed);
        Member {
            id,
            busy: Set(core::array::from_fn(|at| {
                self.busy[at].load(Ordering::Relaxed)
            })),
            phase: match (on, waiting) {
                (0, 0) => Phase::Resting,
                (0, since) => Phase::Waiting {
                    since,
                    offered: self.offered.load(Ordering::Relaxed),
                },
                (since, _) => Phase::On { since },
            },
            beat: self.beat.load(Ordering::Relaxed),
            truce: Truce {
                until: self.truce_until.load(Ordering::Relaxed),
                length: self.truce_length.load(Ordering::Relaxed),
            },
        }
    }

    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::SeqCst);
        // SAFETY: wakes on a mapped word; touches no memory.
        unsafe { sys!(sys::SYS_futex, self.bell.as_ptr(), FUTEX_WAKE, i32::MAX) };
    }
}

/// How many living processes are in it.
fn living(shared: &Shared) -> usize {
    let slots = shared.slots.iter();
    let processes = slots.map(|slot| slot.pid.load(Ordering::Relaxed));
    processes.filter(|&pid| is_alive(pid)).count()
}

/// Whether there is such a process, as far as this one may know.
fn is_alive(pid: u32) -> bool {
    // A number that no process can have would name groups of processes.
    let Ok(pid @ 1..) = i32::try_from(pid) else {
        return false;
    };
    // SAFETY: signal 0 only asks.
    let answer = unsafe { sys!(libc::SYS_kill, pid, 0) };
    error(answer) != Some(ESRCH)
}

#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(all(test, not(any(loom, shuttle))))]
mod hostile_tests;
#[cfg(all(test, shuttle))]
mod models;
#[cfg(test)]
mod tests;
