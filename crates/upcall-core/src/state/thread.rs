//! A user-level thread.
//!
//! | state | who owns the stack and the registers |
//! |---|---|
//! | `Running` | the activation that carries it (perhaps stopped in the kernel with it) |
//! | `Parking` | still its activation, on its way out; it is already findable by wakers |
//! | `Parked` | the thread: registers saved; the caller that claims it makes it ready |
//! | `Claimed` | a waker came while it was parking: its own activation makes it ready |
//! | `Queued` | as `Parked`, for the holder of the lock of the futex bucket in which it hangs |
//! | `Ready` | the ready list that holds it |
//! | `Returned` | the same: it came back from the kernel, and has not been chosen since |
//! | `Held` | the list of threads that are ready and may not run ([`Rank::HELD`]) |
//!
//! Claiming decides all races between wake-up, timeout and interruption: the claimer that moves the state
//! away from `Parking` or `Parked` is the one wake-up; everybody else has lost. The thread itself
//! cleans up afterwards (leaves the wait queue, takes back its deadline), so a claimer needs no
//! lock but its own. A `Queued` thread waits for one word and for nothing else, which is the most
//! frequent wait: the lock under which its waker finds it decides, without a locked instruction
//! more, and a signal for it takes that lock too ([`Runtime::interrupt`](crate::Runtime::interrupt)).

use core::mem::offset_of;
use core::ptr::NonNull;

use intrusive_collections::RBTreeAtomicLink;

use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arch;
use crate::list::{Chained, Linked, List};
use crate::machine::Machine;
use crate::memory::{Recycled, Slab};
use crate::numbered::{AtomicEnum, Numbered, numbered_enum};
use crate::rank::Rank;
use crate::slot::Slot;
use crate::state::activation::Activation;
use crate::state::section::Sections;
use crate::state::vp::Vp;
use crate::state::wait::{Wait, WaitWord};

numbered_enum! {
    /// Why a parked thread runs again.
    pub enum WakeReason {
        /// What it waited for happened.
        Woken = 0,
        /// Its deadline passed.
        TimedOut = 1,
        /// Something for the thread itself came in between (a signal).
        Interrupted = 2,
    }
}

numbered_enum! {
    /// See the module's text. `Claimed` has the reason with it, so that it is published with the claim.
    pub(crate) enum Phase {
        Running = 0,
        Parking = 1,
        Parked = 2,
        Ready = 3,
        Queued = 4,
        Held = 5,
        ClaimedWoken = 6,
        ClaimedTimedOut = 7,
        ClaimedInterrupted = 8,
        Returned = 9,
    }
}

impl Phase {
    /// `Claimed` for this reason.
    #[inline(always)]
    fn claimed(reason: WakeReason) -> Self {
        Phase::of(Phase::ClaimedWoken.number() + reason.number())
    }

    /// It is in a ready list.
    pub(crate) fn is_ready(self) -> bool {
        matches!(self, Phase::Ready | Phase::Returned)
    }

    fn is_parked(self) -> bool {
        matches!(self, Phase::Parked | Phase::Queued)
    }

    /// Why a thread was claimed that is `Claimed`.
    #[inline(always)]
    pub(crate) fn reason(self) -> WakeReason {
        WakeReason::of(self.number().wrapping_sub(Phase::ClaimedWoken.number()))
    }
}

/// A user-level thread. Lives in recycled memory: a reference stays valid, its identity does not.
#[repr(C, align(64))]
pub struct Thread<K: Machine> {
    /// Stack pointer of the saved registers while it does not run. 0 of a ticket: see [`Thread::ticket_at`].
    pub(crate) context: AtomicUsize,
    pub(crate) state: AtomicEnum<Phase>,
    pub(crate) reason: AtomicEnum<WakeReason>,
    /// Neighbours in the one list that holds the thread (ready list, free list, list of claimed).
    pub(crate) next: Slot<Thread<K>>,
    /// Where that list goes both ways.
    pub(crate) previous: Slot<Thread<K>>,
    /// The activation that carries it while `Running`.
    pub(crate) carrier: Slot<Activation<K>>,

    pub(crate) wait_next: Slot<Thread<K>>,
    pub(crate) wait_previous: Slot<Thread<K>>,
    pub(crate) wait: WaitWord,
    pub(crate) wait_mask: AtomicU32,
    /// 1 + its place in the deadline heap; 0 when it has no deadline. Guarded by the heap's lock.
    pub(crate) heap_place: AtomicU32,
    pub(crate) deadline: AtomicU64,
    /// The deadline and the slack: when it must run. What the heap is ordered by.
    pub(crate) latest: AtomicU64,

    /// Its [`Rank`].
    pub(crate) rank: AtomicU64,
    /// The critical sections of the program in which it is.
    pub(crate) sections: Sections,
    /// Its place among the ranked threads of a ready list, and the rank with which it went there.
    pub(crate) rank_link: RBTreeAtomicLink,
    pub(crate) listed_rank: AtomicU64,

    /// The virtual processor on which it began its last wait.
    pub(crate) home: Slot<Vp<K>>,
    /// When it is due, in the time of the ready list that holds it, if its time slice has ended. Guarded by the list's lock.
    pub(crate) due: AtomicU64,

    /// What has happened to it since the adviser looked, and its link in the list of such threads. Guarded by
    /// that list's lock.
    pub(crate) told: AtomicU32,
    /// How many look at a word in which it may hang: until there are none it does not go on.
    pub(crate) pins: AtomicU32,
    pub(crate) told_next: Slot<Thread<K>>,

    /// What the backend keeps with the thread.
    pub kernel: K::ThreadState,
}

/// What the number in a thread's state word means to those who look from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Its carrier runs it. Without one it is on its way from one state to another.
    Running,
    /// It is being saved.
    Parking,
    /// It is saved, and waits.
    Parked,
    /// It is saved, and waits for a virtual processor.
    Ready,
    /// It is saved and ready, and may not run.
    Held,
    /// It was woken while it was being saved.
    Woken,
}

impl Phase {
    const ALL: [Phase; 10] = [
        Phase::Running,
        Phase::Parking,
        Phase::Parked,
        Phase::Ready,
        Phase::Queued,
        Phase::Held,
        Phase::ClaimedWoken,
        Phase::ClaimedTimedOut,
        Phase::ClaimedInterrupted,
        Phase::Returned,
    ];

    const fn standing(self) -> Standing {
        match self {
            Phase::Running => Standing::Running,
            Phase::Parking => Standing::Parking,
            Phase::Parked | Phase::Queued => Standing::Parked,
            Phase::Ready | Phase::Returned => Standing::Ready,
            Phase::Held => Standing::Held,
            Phase::ClaimedWoken | Phase::ClaimedTimedOut | Phase::ClaimedInterrupted => {
                Standing::Woken
            }
        }
    }
}

/// For debuggers.
impl<K: Machine> Thread<K> {
    /// Offset of the word with the address of the saved registers.
    pub const OFFSET_CONTEXT: usize = offset_of!(Self, context);
    /// Offset of the 32-bit word of its state: an index of [`Thread::STANDINGS`].
    pub const OFFSET_STATE: usize = offset_of!(Self, state);
    /// Offset of the word that says what it waits for: see [`WAIT_WORD`](Thread::WAIT_WORD).
    pub const OFFSET_WAIT: usize = offset_of!(Self, wait);
    /// Offset of the word with the address of the activation that carries it.
    pub const OFFSET_CARRIER: usize = offset_of!(Self, carrier);
    /// Offset of the 32-bit word that is not 0 while it has a deadline.
    pub const OFFSET_HAS_DEADLINE: usize = offset_of!(Self, heap_place);
    /// Offset of the word of its deadline.
    pub const OFFSET_DEADLINE: usize = offset_of!(Self, deadline);
    /// What the two low bits of that word are where it waits for a word, if the word is not 0.
    pub const WAIT_WORD: usize = Wait::Word(0).bits();
    /// The same where it waits for its deadline.
    pub const WAIT_SLEEP: usize = Wait::Sleep(0).bits();
    /// The same where it waits for the end of a thread.
    pub const WAIT_END: usize = Wait::End(0).bits();
    /// The same where it waits for a word and hangs in it.
    pub const WAIT_ALONE: usize = Wait::Alone(0).bits();
    /// By the number in the word of its state.
    pub const STANDINGS: [Standing; Phase::ALL.len()] = {
        let mut all = [Standing::Running; Phase::ALL.len()];
        let mut at = 0;
        while at < all.len() {
            all[Phase::ALL[at] as usize] = Phase::ALL[at].standing();
            at += 1;
        }
        all
    };
}

impl<K: Machine> Thread<K> {
    /// Declares the current thread findable by [`Thread::claim`];
    /// [`Entered::park_until_claimed`](crate::Entered::park_until_claimed) must follow.
    pub fn begin_park(&self) {
        self.state.store(Phase::Parking, Ordering::Release);
    }

    /// A ticket: it has no registers, and waits in ready lists for a thread that has not begun. When it is chosen,
    /// [`Attributes::begins`](crate::kernel::Attributes::begins) says which one that is, and the ticket is the backend's again.
    ///
    /// # Safety
    ///
    /// At `place` there is room for a thread, aligned and mapped for ever, and nobody else uses it, now or later.
    pub unsafe fn ticket_at(place: NonNull<u8>) -> &'static Self {
        // SAFETY: the caller's promise.
        unsafe { Slab::place(place) }
    }

    /// Returns true if it is a ticket.
    #[inline]
    pub fn is_ticket(&self) -> bool {
        self.context.load(Ordering::Relaxed) == 0
    }

    /// It will go on with the caller's control words.
    ///
    /// # Safety
    ///
    /// It is saved, and nobody else lets it go on meanwhile.
    #[inline(always)]
    pub unsafe fn inherit_control(&self) {
        // SAFETY: the caller vouches for the context.
        unsafe { arch::inherit_control(self.context.load(Ordering::Relaxed)) };
    }

    /// It will go on with these control words.
    ///
    /// # Safety
    ///
    /// As [`Thread::inherit_control`].
    #[inline(always)]
    pub unsafe fn set_control(&self, control: arch::Control) {
        // SAFETY: the caller vouches for the context.
        unsafe { arch::set_saved_control(self.context.load(Ordering::Relaxed), control) };
    }

    /// The activation that carries the thread, if it runs (or is stopped by the kernel).
    pub fn carrier(&self) -> Option<&'static Activation<K>> {
        self.carrier.get(Ordering::Acquire)
    }

    /// Returns true if it runs on some activation, as far as one can know from outside.
    pub fn is_running(&self) -> bool {
        self.state.load(Ordering::Acquire) == Phase::Running
    }

    /// Returns true if it waits for a virtual processor, as far as one can know from outside.
    pub fn is_ready(&self) -> bool {
        self.state.load(Ordering::Acquire).is_ready()
    }

    /// Returns true if it waits, in the program or in the kernel, so that it has no use for a virtual processor. As far as
    /// one can know from outside.
    pub fn is_waiting(&self) -> bool {
        match self.state.load(Ordering::Acquire) {
            Phase::Running => self
                .carrier()
                .is_some_and(|one| !one.vp().word().is_owned_by(one)),
            Phase::Parking | Phase::Parked | Phase::Queued => true,
            Phase::Ready
            | Phase::Returned
            | Phase::Held
            | Phase::ClaimedWoken
            | Phase::ClaimedTimedOut
            | Phase::ClaimedInterrupted => false,
        }
    }

    /// Returns true if it is ready and put aside ([`Rank::HELD`]), as far as one can know from outside.
    pub fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == Phase::Held
    }

    /// Returns true if it waits for what another thread, or a signal, will change: a word, or another thread's end.
    /// As far as one can know from outside.
    pub fn waits_for_word(&self) -> bool {
        self.state.load(Ordering::SeqCst).is_parked()
            && self.wait.load(Ordering::SeqCst) != Wait::Nothing
    }

    /// Where it is, if it is parked, as far as one can know from outside.
    pub fn saved(&self) -> Option<arch::Saved> {
        let parked = self.state.load(Ordering::Acquire).is_parked();
        // SAFETY: the context of a thread is there for as long as it is parked.
        parked.then(|| unsafe { self.saved_here() })
    }

    /// Where it is.
    ///
    /// # Safety
    ///
    /// It is saved, and nobody else lets it go on meanwhile.
    pub unsafe fn saved_here(&self) -> arch::Saved {
        // SAFETY: the caller vouches for the context.
        unsafe { arch::saved(self.context.load(Ordering::Relaxed)) }
    }

    /// Its urgency.
    #[inline]
    pub fn rank(&self) -> Rank {
        // SeqCst: see `Inside::set_rank`.
        Rank(self.rank.load(Ordering::SeqCst))
    }

    /// The calling thread, which is this one, enters a critical section: it is not preempted, and goes on first where it
    /// loses its processor all the same, until [`Thread::leave_section`]. Sections may be inside of each other.
    ///
    /// # Upcall safety
    ///
    /// One store. For a thread's own code, outside of the runtime.
    #[inline(always)]
    pub fn enter_section(&self) {
        self.sections.enter();
    }

    /// The calling thread leaves the section that it entered last, if it is in one. Returns true if others were to run
    /// meanwhile: [`Runtime::end_section`](crate::Runtime::end_section) must follow.
    ///
    /// # Upcall safety
    ///
    /// As [`Thread::enter_section`].
    #[inline(always)]
    pub fn leave_section(&self) -> bool {
        self.sections.leave()
    }

    /// Returns true if it is in a critical section, and has not been there for too long. As far as one can know from outside.
    #[inline]
    pub fn is_in_section(&self) -> bool {
        self.sections.protect()
    }

    /// The rank with which it went into a ready list. Guarded by the list's lock.
    pub(crate) fn listed_rank(&self) -> Rank {
        Rank(self.listed_rank.load(Ordering::Relaxed))
    }

    pub(crate) fn set_listed_rank(&self, rank: Rank) {
        self.listed_rank.store(rank.0, Ordering::Relaxed);
    }

    /// Claims a parked thread for `reason`. The caller that gets [`Claim::Ready`] must make the
    /// thread ready; for the other answers there is nothing to do.
    pub fn claim(&self, reason: WakeReason) -> Claim {
        // A guess and not a load: the claimer has made a note before, and a locked operation
        // must stand between the two.
        let mut state = Phase::Parked;
        loop {
            let (next, claim) = match state {
                Phase::Parked => (Phase::Ready, Claim::Ready),
                Phase::Parking => (Phase::claimed(reason), Claim::Soon),
                _ => return Claim::Lost,
            };
            // SeqCst: pairs with itself and with `Inside::finish_park`, which may turn one state
            // into the other at any time.
            match self
                .state
                .compare_exchange(state, next, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => {
                    if claim == Claim::Ready {
                        self.reason.store(reason, Ordering::Relaxed);
                    }
                    return claim;
                }
                Err(found) => state = found,
            }
        }
    }

    /// As [`Thread::claim`], for the holder of the lock of the bucket in which the thread hangs.
    #[inline]
    pub(crate) fn claim_in_bucket(&self, reason: WakeReason) -> Claim {
        // Relaxed: `Queued` comes and goes under the lock alone.
        if self.state.load(Ordering::Relaxed) == Phase::Queued {
            self.state.store(Phase::Ready, Ordering::Relaxed);
            self.reason.store(reason, Ordering::Relaxed);
            Claim::Ready
        } else {
            self.claim(reason)
        }
    }

    /// What it waits for, where the runtime knows: an address, and in the two low bits what kind it is of, as in the word at
    /// [`Thread::OFFSET_WAIT`]. Where in a word's queue it hangs is left out.
    pub fn waits(&self) -> u64 {
        let wait = match self.wait.load(Ordering::Relaxed) {
            Wait::Alone(address) => Wait::Word(address),
            other => other,
        };
        wait.bits() as u64
    }

    /// Why it was last woken. Only for the thread itself.
    pub fn wake_reason(&self) -> WakeReason {
        self.reason.load(Ordering::Relaxed)
    }
}

/// The answer of [`Thread::claim`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The caller must make the thread ready.
    Ready,
    /// The thread is still parking and will be made ready by its own activation.
    Soon,
    /// It was not parked, or somebody else was first.
    Lost,
}

/// Threads linked through themselves. A thread is in one such list at a time.
pub type ThreadList<K> = List<Thread<K>>;

impl<K: Machine> Linked for Thread<K> {
    #[inline(always)]
    fn after(&self) -> &Slot<Self> {
        &self.next
    }
}

impl<K: Machine> Chained for Thread<K> {
    #[inline(always)]
    fn before(&self) -> &Slot<Self> {
        &self.previous
    }
}

impl<K: Machine> Recycled for Thread<K> {
    fn initial() -> Self {
        Thread {
            context: AtomicUsize::new(0),
            state: AtomicEnum::new(Phase::Running),
            reason: AtomicEnum::new(WakeReason::Woken),
            next: Slot::empty(),
            previous: Slot::empty(),
            carrier: Slot::empty(),
            wait_next: Slot::empty(),
            wait_previous: Slot::empty(),
            wait: WaitWord::none(),
            wait_mask: AtomicU32::new(0),
            heap_place: AtomicU32::new(0),
            deadline: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            rank: AtomicU64::new(Rank::COMMON.0),
            sections: Sections::none(),
            rank_link: RBTreeAtomicLink::new(),
            listed_rank: AtomicU64::new(Rank::COMMON.0),
            told: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            home: Slot::empty(),
            due: AtomicU64::new(0),
            told_next: Slot::empty(),
            kernel: K::ThreadState::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bare, rounds};

    /// A caller that claims a thread while it finishes parking must not lose to the finishing itself.
    #[test]
    fn a_claim_is_not_lost_while_the_thread_parks() {
        // Each waits for another thread: dear for an interpreter.
        const ROUNDS: u32 = rounds(rounds(200_000));
        // The other side is at another place of its step in each round; on one processor, or among
        // other programs, it may not run at all.
        let await_round = |word: &AtomicU32, round| {
            let mut spins = 0;
            while word.load(Ordering::Acquire) < round {
                spins += 1;
                if spins % 1000 == 0 {
                    std::thread::yield_now();
                }
            }
        };
        let kernel = Bare::new();
        let [thread]: [&Thread<Bare>; 1] = kernel.threads();
        let (asked, parked) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    await_round(&asked, round);
                    // The step of `Inside::finish_park`.
                    let _ = thread.state.compare_exchange(
                        Phase::Parking,
                        Phase::Parked,
                        Ordering::SeqCst,
                        Ordering::Acquire,
                    );
                    parked.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                thread.state.store(Phase::Parking, Ordering::Release);
                asked.store(round, Ordering::Release);
                for _ in 0..round % 1000 {
                    std::hint::black_box(round);
                }
                assert_ne!(thread.claim(WakeReason::Woken), Claim::Lost);
                await_round(&parked, round);
            }
        });
    }
}
