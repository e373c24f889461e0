//! The specialization layer's lower half: what a policy is told, and how ready threads of one rank are ordered.
//!
//! A policy runs in a thread, the *adviser* ([`Inside::become_adviser`]). What happens to the other threads is
//! noted in them ([`Transition`]), in the order in which it happened first; the adviser takes the notes
//! ([`Entered::await_transition`]) and answers with ranks ([`Inside::set_rank`]). Nothing waits for the answer:
//! `docs/adr/0003-policies.md` says why.
//!
//! Protocol:
//! 1. The teller makes the note with the list locked, takes the adviser's mark that it waits, and claims it.
//! 2. The adviser, which found the list empty with it locked, sets its mark and begins to park under the
//!    same lock: it is woken, or sees the note.

use core::sync::atomic::Ordering;

use crate::kernel::Kernel;
use crate::list::{Linked, List};
use crate::lock::SpinLock;
use crate::numbered::{AtomicEnum, numbered_enum};
use crate::rank::Rank;
use crate::runtime::Runtime;
use crate::slot::Slot;
use crate::state::activation::Activation;
use crate::state::inside::{Entered, Inside};
use crate::state::ready::By;
use crate::state::thread::{Claim, Thread, WakeReason};
use crate::state::vp::Vp;
use crate::sync::AtomicU64;

/// The adviser's rank: before all others.
const ADVISER: Rank = Rank(0);
/// The same while it takes too long: after all others that may run.
const LATE: Rank = Rank(Rank::HELD.0 - 1);

/// Beside the transitions of a thread: it is in the list.
const LISTED: u32 = 1 << 31;
/// The same: after those it waits, perhaps again.
const WAITS: u32 = 1 << 30;

numbered_enum! {
    /// How ready threads of one rank are ordered.
    pub enum Order {
        /// They take turns; a new thread that divides its creator's work ([`Inside::make_ready_forked`]) goes first.
        ForkedFirst = 0,
        /// They take turns; every new thread goes first, for a time slice.
        Lifo = 1,
        /// They take turns.
        RoundRobin = 2,
        /// First come, first served: a thread runs until it waits or gives way.
        Fifo = 3,
    }
}

/// What happens to a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Transition {
    /// It has ended. Its block may be another thread's at once, which is created then.
    Ended = 1,
    /// It is new, and ready. Not told of one that has ended before anybody looked.
    Created = 2,
    /// It waits, in the program or in the kernel.
    Blocked = 4,
    /// It is ready again.
    Unblocked = 8,
    /// It is ready, and has let others go first.
    Yielded = 16,
    /// It is ready, and has been stopped in favour of another.
    Preempted = 32,
}

impl Transition {
    /// In the order in which several of one thread have happened.
    pub const ALL: [Transition; 6] = [
        Transition::Ended,
        Transition::Created,
        Transition::Blocked,
        Transition::Unblocked,
        Transition::Yielded,
        Transition::Preempted,
    ];
}

/// What has happened to a thread since the adviser looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transitions(u32);

impl Transitions {
    /// They, in their order.
    pub fn iter(self) -> impl Iterator<Item = Transition> {
        let has = move |one: &Transition| self.0 & *one as u32 != 0;
        let last = (self.0 & WAITS != 0).then_some(Transition::Blocked);
        Transition::ALL.into_iter().filter(has).chain(last)
    }

    /// These and one more. What is in between and makes no difference any more is left out.
    fn and(self, transition: Transition) -> Self {
        use Transition::{Blocked, Created, Ended, Preempted, Unblocked, Yielded};
        let before = self.0;
        let has = |some: u32| before & some != 0;
        let stops = Yielded as u32 | Preempted as u32;
        Transitions(match transition {
            // It has come and gone: of it nothing is said, but of the one whose block it had before.
            Ended if has(Created as u32) => before & Ended as u32,
            Ended => Ended as u32,
            Blocked if has(Unblocked as u32 | stops) => before | WAITS,
            // It waited, was ready, and waits: of the second wait nothing else is known.
            Unblocked if has(WAITS) && !has(Unblocked as u32) => {
                before & !(WAITS | stops) | Blocked as u32 | Unblocked as u32
            }
            Unblocked => before & !(WAITS | stops) | Unblocked as u32,
            Yielded | Preempted => before & !(WAITS | stops) | transition as u32,
            Created | Blocked => before | transition as u32,
        })
    }
}

/// What the adviser has to look at.
pub enum Advice<K: Kernel> {
    /// This has happened to this thread.
    Thread(&'static Thread<K>, Transitions),
    /// A virtual processor has nothing to run.
    Idle,
    /// The program is to lose its processors at this moment, in nanoseconds of [`Machine::now`](crate::Machine::now).
    Warned(u64),
    /// The time is over, or a signal came.
    Nothing,
}

/// What the adviser may be told.
enum What<K: Kernel> {
    Happened(&'static Thread<K>, Transition),
    Absent(&'static Activation<K>),
    Idle,
    Warned(u64),
}

/// What a runtime has of its policy.
pub(super) struct Policy<K: Kernel> {
    order: AtomicEnum<Order>,
    adviser: Slot<Thread<K>>,
    told: SpinLock<Told<K>>,
    /// How often the adviser has asked for more, and what that was at the last tick that found it running.
    answers: AtomicU64,
    at_tick: AtomicU64,
}

/// Threads to which something has happened, linked through themselves.
struct Told<K: Kernel> {
    threads: List<Thread<K>, Happened>,
    idle: bool,
    /// 0, or when the program is to lose its processors.
    warned: u64,
    adviser_waits: bool,
}

/// The list of threads to which something has happened.
struct Happened;

impl<K: Kernel> Linked<Happened> for Thread<K> {
    fn after(&self) -> &Slot<Self> {
        &self.told_next
    }
}

impl<K: Kernel> Told<K> {
    fn add(&mut self, thread: &'static Thread<K>, transition: Transition) {
        let before = thread.told.load(Ordering::Relaxed);
        let now = Transitions(before & !LISTED).and(transition);
        thread.told.store(now.0 | LISTED, Ordering::Relaxed);
        if before & LISTED != 0 {
            return;
        }
        self.threads.push_back(thread);
    }

    fn take(&mut self) -> Option<Advice<K>> {
        // First: there is little time.
        let warned = core::mem::take(&mut self.warned);
        if warned != 0 {
            return Some(Advice::Warned(warned));
        }
        let Some(thread) = self.threads.pop_front() else {
            return core::mem::take(&mut self.idle).then_some(Advice::Idle);
        };
        let transitions = thread.told.load(Ordering::Relaxed);
        thread.told.store(0, Ordering::Relaxed);
        Some(Advice::Thread(thread, Transitions(transitions & !LISTED)))
    }
}

impl<K: Kernel> Policy<K> {
    pub(super) fn new() -> Self {
        Policy {
            order: AtomicEnum::new(Order::ForkedFirst),
            adviser: Slot::empty(),
            told: SpinLock::new(Told {
                threads: List::new(),
                idle: false,
                warned: 0,
                adviser_waits: false,
            }),
            answers: AtomicU64::new(1),
            at_tick: AtomicU64::new(0),
        }
    }

    /// Makes a thread the adviser. Returns true if it is: there is one at most.
    pub(super) fn appoint(&self, thread: &'static Thread<K>) -> bool {
        self.adviser.replace_if(None, Some(thread))
    }
}

impl<K: Kernel> Runtime<K> {
    /// How threads of one rank are ordered from here on; [`Order::ForkedFirst`] otherwise.
    pub fn set_order(&self, order: Order) {
        self.policy.order.store(order, Ordering::Relaxed);
    }

    /// Returns true if a thread gives way to its equals when its time slice ends.
    #[inline]
    pub(super) fn takes_turns(&self) -> bool {
        self.policy.order.load(Ordering::Relaxed) != Order::Fifo
    }

    /// Returns true if all threads are equals that give way to each other.
    #[inline]
    pub(super) fn all_take_turns(&self) -> bool {
        !self.is_ranked() && self.takes_turns()
    }

    /// Returns true if a new thread goes before its equals; `forked`: it divides its creator's work.
    #[inline]
    pub(super) fn goes_first(&self, forked: bool) -> bool {
        match self.policy.order.load(Ordering::Relaxed) {
            Order::ForkedFirst => forked,
            Order::Lifo => true,
            Order::RoundRobin | Order::Fifo => false,
        }
    }

    /// What has happened while the adviser waited, which it does not any more.
    pub(super) fn heed(&'static self) -> Advice<K> {
        let mut told = self.policy.told.lock(&self.kernel);
        told.adviser_waits = false;
        told.take().unwrap_or(Advice::Nothing)
    }

    /// What has happened; if nothing, the adviser begins to park.
    pub(super) fn ask(&'static self, adviser: &'static Thread<K>) -> Option<Advice<K>> {
        let mut told = self.policy.told.lock(&self.kernel);
        let advice = told.take();
        if advice.is_none() {
            told.adviser_waits = true;
            adviser.begin_park();
        }
        advice
    }

    /// Something happens to a thread: those are told that listen. `vp` is near.
    #[inline]
    pub(crate) fn tell(
        &'static self,
        vp: &'static Vp<K>,
        thread: &'static Thread<K>,
        transition: Transition,
    ) {
        if self.listeners.any() {
            self.tell_listeners(vp, thread, transition);
        }
    }

    /// The same for the adviser alone.
    pub(super) fn tell_policy(
        &'static self,
        vp: &'static Vp<K>,
        thread: &'static Thread<K>,
        transition: Transition,
    ) {
        if self.is_ranked() {
            self.tell_adviser(vp, What::Happened(thread, transition));
        }
    }

    /// See [`Activation::tell_of_absent`].
    pub(super) fn tell_policy_of_absent(
        &'static self,
        activation: &'static Activation<K>,
        vp: &'static Vp<K>,
    ) {
        if self.is_ranked() {
            self.tell_adviser(vp, What::Absent(activation));
        }
    }

    /// `vp` has nothing to run. Returns true if the adviser will be told.
    #[inline]
    pub(super) fn tell_idle(&'static self, vp: &'static Vp<K>) -> bool {
        self.is_ranked() && self.tell_adviser(vp, What::Idle)
    }

    /// The program is to lose its processors at this moment, which is not 0. The adviser is told, if there is one: it has until then. To be
    /// called from inside the runtime, by the owner of `vp`. Returns true if it is told.
    pub fn warn(&'static self, vp: &'static Vp<K>, moment: u64) -> bool {
        self.is_ranked() && self.tell_adviser(vp, What::Warned(moment))
    }

    /// Returns true if the adviser was told anything new.
    #[cold]
    fn tell_adviser(&'static self, vp: &'static Vp<K>, what: What<K>) -> bool {
        if self.policy.adviser.get(Ordering::Relaxed).is_none() {
            return false;
        }
        let mut told = self.policy.told.lock(&self.kernel);
        // Again, with the list locked: the mark that somebody waits is this one's.
        let Some(adviser) = self.policy.adviser.get(Ordering::Acquire) else {
            return false;
        };
        match what {
            What::Happened(thread, transition) if !core::ptr::eq(thread, adviser) => {
                told.add(thread, transition);
            }
            // With the list locked: an activation that comes back takes the mark away before it says so.
            What::Absent(activation) if activation.is_absent() => match activation.thread() {
                Some(thread) if !core::ptr::eq(thread, adviser) => {
                    told.add(thread, Transition::Blocked);
                }
                _ => return false,
            },
            What::Idle if !vp.idle_told.load(Ordering::Relaxed) => {
                vp.idle_told.store(true, Ordering::Relaxed);
                told.idle = true;
            }
            What::Warned(moment) => told.warned = moment,
            _ => return false,
        }
        // With the list locked: later the adviser may wait for something else.
        let claims = core::mem::take(&mut told.adviser_waits)
            && adviser.claim(WakeReason::Woken) == Claim::Ready;
        drop(told);
        if claims {
            self.make_ready_on(vp, By::Others, adviser);
        }
        true
    }

    /// A thread's time slice ends. Returns true if the adviser has to say what runs next.
    #[inline]
    pub(super) fn advises_on_slice(&self, thread: &'static Thread<K>) -> bool {
        let Some(adviser) = self.policy.adviser.get(Ordering::Relaxed) else {
            return false;
        };
        if core::ptr::eq(adviser, thread) {
            self.count_slice_of(adviser);
            return false;
        }
        true
    }

    /// A time slice ends while the adviser runs. Had it the whole of it for one answer, all others
    /// go first until it asks for more.
    #[cold]
    fn count_slice_of(&self, adviser: &'static Thread<K>) {
        let answers = self.policy.answers.load(Ordering::Relaxed);
        let at_last_tick = self.policy.at_tick.swap(answers, Ordering::Relaxed);
        if at_last_tick == answers && adviser.rank() == ADVISER {
            adviser.rank.store(LATE.0, Ordering::SeqCst);
            self.kernel.advice_is_late();
        }
    }

    /// Returns true if a thread is the adviser.
    pub(super) fn is_adviser(&self, thread: &'static Thread<K>) -> bool {
        let adviser = self.policy.adviser.get(Ordering::Relaxed);
        adviser.is_some_and(|adviser| core::ptr::eq(adviser, thread))
    }
}

impl<K: Kernel> Entered<K> {
    /// The adviser waits until something has happened, or until `deadline` (nanoseconds of [`Machine::now`](crate::Machine::now)).
    pub fn await_transition(self, deadline: Option<u64>) -> (Self, Advice<K>) {
        let runtime = self.runtime();
        let Some(thread) = self.thread() else {
            runtime.kernel.broken("an adviser without a thread");
        };
        // One asks: the adviser. It may have been less urgent for having taken too long.
        let answers = runtime.policy.answers.load(Ordering::Relaxed);
        runtime.policy.answers.store(answers + 1, Ordering::Relaxed);
        thread.rank.store(ADVISER.0, Ordering::SeqCst);
        if let Some(advice) = runtime.ask(thread) {
            return (self, advice);
        }
        let inside = self.park_until_claimed(thread, deadline);
        (inside, runtime.heed())
    }
}

impl<K: Kernel> Inside<K> {
    /// The current thread is the adviser from here on, until it ends. Returns true if it is: there is one at most.
    pub fn become_adviser(&self) -> bool {
        let runtime = self.runtime();
        let Some(thread) = self.thread() else {
            return false;
        };
        let becomes = runtime.policy.appoint(thread);
        if becomes {
            runtime.listeners.begin_ranks();
            thread.rank.store(ADVISER.0, Ordering::SeqCst);
        }
        becomes
    }

    /// There is no adviser from here on: nobody is told anything. Called by the adviser.
    pub fn dismiss_adviser(&self) {
        let runtime = self.runtime();
        let mut told = runtime.policy.told.lock(&runtime.kernel);
        if let Some(adviser) = runtime.policy.adviser.get(Ordering::Relaxed) {
            // Late or not, it has only to end.
            adviser.rank.store(ADVISER.0, Ordering::SeqCst);
        }
        runtime.policy.adviser.set(None, Ordering::Release);
        // What the next one was told would be of long ago.
        while told.take().is_some() {}
    }

    /// Something happens to the thread that the caller is: those are told that listen.
    #[inline]
    pub fn tell_of_current(&self, transition: Transition) {
        let runtime = self.runtime();
        if runtime.listeners.any()
            && let Some(thread) = self.thread()
        {
            runtime.tell(self.vp(), thread, transition);
        }
    }
}

impl<K: Kernel> Activation<K> {
    /// The activation was replaced on `vp` since it is blocked in the kernel with its thread.
    #[inline]
    pub(super) fn tell_of_absent(&'static self, vp: &'static Vp<K>) {
        if self.runtime().listeners.any() {
            self.tell_listeners_of_absent(vp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Transition::{self, Blocked, Created, Ended, Preempted, Unblocked, Yielded};
    use super::Transitions;
    use std::vec::Vec;

    /// What an adviser is told that looks after all of these.
    fn told(happened: &[Transition]) -> Vec<Transition> {
        let all = happened
            .iter()
            .fold(Transitions(0), |all, &one| all.and(one));
        all.iter().collect()
    }

    #[test]
    fn of_one_that_has_ended_nothing_is_told_afterwards() {
        assert_eq!(told(&[Preempted, Blocked, Unblocked, Ended]), [Ended]);
        assert_eq!(told(&[Ended, Created, Blocked]), [Ended, Created, Blocked]);
        assert_eq!(told(&[Ended, Created, Blocked, Ended]), [Ended]);
        assert_eq!(told(&[Created, Yielded, Ended]), []);
    }

    #[test]
    fn the_last_that_is_told_says_whether_it_waits() {
        assert_eq!(told(&[Blocked, Unblocked]), [Blocked, Unblocked]);
        assert_eq!(told(&[Unblocked, Blocked]), [Unblocked, Blocked]);
        assert_eq!(
            told(&[Unblocked, Preempted, Blocked, Unblocked]),
            [Unblocked]
        );
        assert_eq!(told(&[Preempted, Blocked, Unblocked]), [Blocked, Unblocked]);
        let twice = [Blocked, Unblocked, Blocked];
        assert_eq!(told(&twice), twice);
        assert_eq!(told(&[Preempted, Yielded]), [Yielded]);
    }
}
