//! Takes turns with other processes: the virtual processors of a program that computes run together or not at all.
//!
//! The kernel slices the time of each processor without regard to the others. When two programs that spin share
//! processors, half of each program wastes its slices waiting for the other half. So processes under this runtime take
//! turns by `rules`, through the memory of [`registry`]. That needs no daemon and no privilege.
//!
//! 1. A virtual processor that has computed for a whole time slice, and hardly blocked or idled in it, makes its processor
//!    *busy*. Programs that mostly wait never do so, and never take part.
//! 2. At each time slice the process decides about its phase. A process that has to wait stops its busy virtual processors
//!    on the processors of those that are on. The owner parks its thread in the ready list, where the process's other
//!    virtual processors may take it, and sleeps as an idle owner does. A system call that returns, a descriptor or a
//!    deadline finds the virtual processor idle and runs on it for up to a slice. So waiting programs still answer.
//! 3. A virtual processor that idles makes its processor free at once, and wakes the process that waits for it. While some
//!    process waits, a standby is up for every system call, so that blocking counts as idling.
//! 4. A process that is on and loses processor time to programs that take no turns makes a truce (`crowd`). All go on then,
//!    and the kernel divides the processors.
//! 5. The runtime's own sleeps keep their protocol: the sleeper looks at the wake word after it has read the bell, and
//!    `Turns::wake` rings the bell.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use upcall_core::{Activation, Errno, Kernel, Turnstile, Vp};

use crate::processors::placement;
use crate::processors::slice::Spent;
use crate::sys::memory;

mod crowd;
pub mod registry;
mod rules;

use crowd::{Crowd, Ledger};
use registry::{Registry, SLOTS, Trouble};
use rules::truce::{self, Truce};
use rules::{Member, Phase, Set, TIMES, Times};

/// A virtual processor without a tick for this time, in nanoseconds, does not compute: it is blocked.
const UNHEARD_NS: u64 = 60_000_000;
/// Sleeps in one slice of processor time that do not make a program one that mostly waits: the
/// one before it began to compute, and the runtime's own.
const FEW_SLEEPS: u64 = 2;
/// A member that is on and silent for this time, in nanoseconds, may be dead: worth a look.
const SUSPECT_NS: u64 = 15_000_000;
/// A waiting process looks for itself at least so much later than it expects, in nanoseconds.
const SLACK_NS: u64 = 5_000_000;

/// What was counted, for `--stats`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Turns waited for and taken.
    pub turns: u64,
    /// Nanoseconds in which the process waited for a turn.
    pub waited_ns: u64,
    /// Truces that this process has begun or taken on.
    pub truces: u64,
}

/// This process's part in the turns.
pub struct Turns {
    state: Option<&'static State>,
    /// Why it has none, if it was to have one.
    trouble: Option<Trouble>,
}

struct State {
    registry: Registry,
    times: Times,
    processors: Processors,
    ledger: Ledger,
    decisions: Turnstile,
    /// Belongs to the activation inside of `decisions`.
    inner: UnsafeCell<Inner>,
    left: AtomicBool,
    sleepers: AtomicU32,
    /// How long to sleep at most, in nanoseconds.
    patience: AtomicU64,
    turns: AtomicU64,
    waited_ns: AtomicU64,
    truces: AtomicU64,
}

/// What the activations read and write without a lock.
struct Processors {
    busy: [AtomicU64; Set::WORDS],
    /// Busy, and to be left to others now.
    stopped: [AtomicU64; Set::WORDS],
    /// When a busy virtual processor was last heard of, by processor.
    heard: [AtomicU64; Set::BITS as usize],
}

struct Inner {
    phase: Phase,
    /// Takes no part before this time.
    apart_until: u64,
    busy_before: Set,
    crowd: Crowd,
    room: [Member; SLOTS],
}

/// The members to wake after a decision: one bit each.
struct Calls {
    rings: u64,
    offers: u64,
}

// SAFETY: `inner` is used inside of `decisions` only; the rest is atomics.
unsafe impl Sync for State {}

fn load(words: &[AtomicU64; Set::WORDS]) -> Set {
    Set(core::array::from_fn(|at| words[at].load(Ordering::Relaxed)))
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit)
    })
}

/// How often the calling kernel thread has gone to sleep by itself.
fn sleeps() -> u64 {
    // SAFETY: an all-zero rusage is valid; getrusage fills it in.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        sys!(libc::SYS_getrusage, libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw as u64
    }
}

impl Turns {
    /// Takes no part.
    pub fn none() -> Self {
        Turns {
            state: None,
            trouble: None,
        }
    }

    /// Joins the other processes of the user. Where that fails the process runs without turns.
    pub fn join(pid: i32) -> Self {
        Self::try_join(pid).unwrap_or_else(|trouble| Turns {
            state: None,
            trouble: Some(trouble),
        })
    }

    /// Why the process takes no turns, if it was to take them.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    fn try_join(pid: i32) -> Result<Self, Trouble> {
        let registry = Registry::join(pid)?;
        let place = match memory::map(size_of::<State>()) {
            Ok(place) => place as *mut State,
            Err(Errno(number)) => {
                registry.leave();
                return Err(Trouble::Open(number));
            }
        };
        // SAFETY: zeroed, page-aligned, large enough, mapped for ever; zero is valid for all fields
        // that are not written here (atomics, `Resting`, empty members), before it is shared.
        let state = unsafe {
            (&raw mut (*place).registry).write(registry);
            (&raw mut (*place).times).write(TIMES);
            let inner = (*place).inner.get();
            (&raw mut (*inner).phase).write(Phase::Resting);
            (&raw mut (*inner).crowd).write(Crowd::default());
            (&raw mut (*inner).room).write([Member::default(); SLOTS]);
            &*place
        };
        Ok(Turns {
            state: Some(state),
            trouble: None,
        })
    }

    /// What was counted, if the process takes part.
    pub fn report(&self) -> Option<Report> {
        self.state.map(|state| Report {
            turns: state.turns.load(Ordering::Relaxed),
            waited_ns: state.waited_ns.load(Ordering::Relaxed),
            truces: state.truces.load(Ordering::Relaxed),
        })
    }

    /// The process is about to end: others need not find out by themselves. What it has still to run, it runs
    /// without turns.
    pub fn leave(&self, now: u64) {
        let Some(state) = self.state else { return };
        if state.left.swap(true, Ordering::SeqCst) {
            return;
        }
        state.release();
        state.registry.publish(Phase::Resting);
        state.registry.publish_busy(Set::default());
        let mut room = [Member::default(); SLOTS];
        let count = state.registry.others(&mut room);
        let gone = Member {
            id: state.registry.id(),
            ..Member::default()
        };
        let verdict = rules::decide(&gone, &room[..count], now, &state.times);
        for id in bits(verdict.offers) {
            state.registry.offer(id, now);
        }
        state.registry.leave();
    }

    /// Returns true if a virtual processor may run on its processor now.
    #[inline]
    pub(crate) fn may_run(&self, processor: u32) -> bool {
        let Some(state) = self.state else { return true };
        let (word, bit) = Set::place(processor);
        state.processors.stopped[word].load(Ordering::Relaxed) & bit == 0
    }

    /// Returns true if another process waits for a processor of this one.
    #[inline]
    pub(crate) fn is_contended(&self) -> bool {
        self.state.is_some_and(|state| state.registry.is_wanted())
    }

    /// A time slice is over: the current activation owns its virtual processor and computes. `slept` is what this
    /// keeps with each activation: how often its kernel thread had gone to sleep by itself when last asked. `spent` is what
    /// it had of its processor, where that is known.
    pub(crate) fn tick<K: Kernel>(
        &self,
        activation: &Activation<K>,
        slept: &AtomicU64,
        spent: Option<Spent>,
    ) {
        let Some(state) = self.state else { return };
        let sleeps = sleeps();
        let before = slept.swap(sleeps, Ordering::Relaxed);
        let computed = sleeps.wrapping_sub(before) <= FEW_SLEEPS;
        let now = activation.runtime().kernel().now();
        state.registry.beat(now);
        let processor = activation.vp().processor();
        let (word, bit) = Set::place(processor);
        if computed {
            state.processors.heard[(processor % Set::BITS) as usize].store(now, Ordering::Relaxed);
            state.processors.busy[word].fetch_or(bit, Ordering::Relaxed);
        } else {
            state.processors.free(word, bit);
        }
        state.processors.free_unheard(now);
        if let Some(spent) = spent {
            let own = placement::count(activation.runtime().vps(), processor);
            state.ledger.add(spent, own);
        }
        state.decide(activation);
    }

    /// A virtual processor has nothing to do and is about to sleep.
    #[inline]
    pub(crate) fn resting<K: Kernel>(&self, activation: &Activation<K>, processor: u32) {
        let Some(state) = self.state else { return };
        let (word, bit) = Set::place(processor);
        if state.processors.busy[word].load(Ordering::Relaxed) & bit != 0 {
            state.processors.free(word, bit);
            if state.registry.is_wanted() {
                state.decide(activation);
            } else {
                state.registry.publish_busy(load(&state.processors.busy));
            }
        }
    }

    /// Sleeps until its process may be on, or until [`Turns::wake`]. Does not sleep if `is_due` returns true.
    pub(crate) fn sleep<K: Kernel>(
        &self,
        activation: &Activation<K>,
        slept: &AtomicU64,
        is_due: impl Fn() -> bool,
    ) {
        let Some(state) = self.state else { return };
        // Before the look: an activation that changes something afterwards finds a sleeper.
        state.sleepers.fetch_add(1, Ordering::SeqCst);
        let bell = state.registry.bell();
        if !is_due() && !self.may_run(activation.vp().processor()) {
            let patience = state.patience.load(Ordering::Relaxed);
            state.registry.sleep(bell, patience);
        }
        state.sleepers.fetch_sub(1, Ordering::SeqCst);
        state.look(activation, slept);
    }

    /// Decides whether the turn has come, on an activation that has slept elsewhere with a virtual processor that
    /// waits for it.
    pub(crate) fn look<K: Kernel>(&self, activation: &Activation<K>, slept: &AtomicU64) {
        if let Some(state) = self.state {
            state.look(activation, slept);
        }
    }

    /// Wakes the activations in [`Turns::sleep`].
    pub(crate) fn wake(&self) {
        if let Some(state) = self.state {
            state.registry.ring(state.registry.id());
        }
    }
}

impl Processors {
    fn free(&self, word: usize, bit: u64) {
        self.busy[word].fetch_and(!bit, Ordering::Relaxed);
        self.stopped[word].fetch_and(!bit, Ordering::Relaxed);
    }

    /// What was busy and is not heard of any more, though it may run, is blocked in the kernel.
    fn free_unheard(&self, now: u64) {
        for word in 0..Set::WORDS {
            let running = self.busy[word].load(Ordering::Relaxed)
                & !self.stopped[word].load(Ordering::Relaxed);
            for bit in bits(running) {
                let heard = &self.heard[word * 64 + bit as usize];
                if now.saturating_sub(heard.load(Ordering::Relaxed)) > UNHEARD_NS {
                    self.free(word, 1 << bit);
                }
            }
        }
    }
}

impl State {
    /// An activation that waits for the turn has slept.
    fn look<K: Kernel>(&self, activation: &Activation<K>, slept: &AtomicU64) {
        // This sleep was not the program's.
        slept.store(sleeps(), Ordering::Relaxed);
        self.decide(activation);
    }

    /// Decides about the phase and does what follows from it; if somebody else is at it, that
    /// one does it again.
    fn decide<K: Kernel>(&self, current: &Activation<K>) {
        let decide = || {
            // SAFETY: one at a time is inside of `decisions`.
            let inner = unsafe { &mut *self.inner.get() };
            let now = current.runtime().kernel().now();
            (now, self.decide_once(inner, current, now))
        };
        // Outside: a process that is woken may take this processor at once.
        let call = |(now, calls): (u64, Calls)| {
            for id in bits(calls.rings) {
                self.registry.ring(id);
            }
            for id in bits(calls.offers) {
                self.registry.offer(id, now);
            }
        };
        self.decisions
            .ask(|| self.left.load(Ordering::SeqCst), decide, call);
        if self.left.load(Ordering::SeqCst) {
            self.release();
        }
    }

    /// Nobody decides for a process that has left: all its virtual processors may run. A decision that
    /// was being made meanwhile may stop some once more, so the activation that made it does this again.
    fn release(&self) {
        for word in &self.processors.stopped {
            word.store(0, Ordering::SeqCst);
        }
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            self.registry.ring(self.registry.id());
        }
    }

    fn decide_once<K: Kernel>(
        &self,
        inner: &mut Inner,
        current: &Activation<K>,
        now: u64,
    ) -> Calls {
        let registry = &self.registry;
        let busy = if now < inner.apart_until {
            Set::default()
        } else {
            load(&self.processors.busy)
        };
        registry.publish_busy(busy);
        let count = self.look_around(inner, now);
        let mut me = Member {
            id: registry.id(),
            busy,
            phase: inner.phase,
            beat: now,
            truce: inner.crowd.truce,
        };
        let agreed = truce::in_force(&me, &inner.room[..count], now, &self.times);
        if agreed != me.truce {
            self.make_truce(inner, &mut me, agreed, now);
        }
        let mut verdict = rules::decide(&me, &inner.room[..count], now, &self.times);
        let is_on = matches!(me.phase, Phase::On { .. });
        let mut rings = 0;
        if is_on
            && matches!(verdict.phase, Phase::Waiting { .. })
            && let Some(begun) = self.judge(inner, current, busy, now)
        {
            self.make_truce(inner, &mut me, begun, now);
            verdict = rules::decide(&me, &inner.room[..count], now, &self.times);
            // All at once: each would have to run before it could wake the next one.
            rings = inner.room[..count]
                .iter()
                .filter(|other| {
                    matches!(other.phase, Phase::Waiting { .. }) && !other.busy.and(busy).is_empty()
                })
                .fold(0, |bits, other| bits | 1 << other.id);
        }
        let others = &inner.room[..count];
        if !is_on || !verdict.shared.and(busy).is_empty() {
            self.ledger.not_alone(now);
        }
        if !is_on && verdict.wanted && matches!(verdict.phase, Phase::On { .. }) {
            inner.crowd.turn_begins(&self.ledger, now);
        }
        if verdict.gives_up {
            inner.apart_until = now + self.times.apart;
        }
        if registry.me().phase != verdict.phase {
            registry.publish(verdict.phase);
        }
        if verdict.wanted && matches!(verdict.phase, Phase::On { .. }) {
            registry.want(registry.id());
        } else if registry.is_wanted() {
            registry.clear_wanted();
        }
        if let Phase::Waiting { since, .. } = inner.phase
            && !matches!(verdict.phase, Phase::Waiting { .. })
        {
            if matches!(verdict.phase, Phase::On { .. }) {
                self.turns.fetch_add(1, Ordering::Relaxed);
            }
            self.waited_ns
                .fetch_add(now.saturating_sub(since), Ordering::Relaxed);
            registry.beat(now);
        }
        inner.phase = verdict.phase;
        self.patience.store(
            SLACK_NS
                + if verdict.offers == 0 {
                    self.times.turn
                } else {
                    self.times.grace
                },
            Ordering::Relaxed,
        );
        let mut calls = Calls {
            rings: rings | self.stop(current, verdict.off.and(busy), now),
            offers: verdict.offers,
        };
        for id in bits(verdict.holders) {
            registry.want(id);
        }
        // Processors that were busy and are not: a process that waits may have them before its turn.
        let before = core::mem::replace(&mut inner.busy_before, busy);
        let freed = Set(core::array::from_fn(|at| before.0[at] & !busy.0[at]));
        if !freed.is_empty() {
            for other in others {
                if verdict.offers & (1 << other.id) == 0
                    && matches!(other.phase, Phase::Waiting { .. })
                    && !other.busy.and(freed).is_empty()
                {
                    calls.rings |= 1 << other.id;
                }
            }
        }
        calls
    }

    fn make_truce(&self, inner: &mut Inner, me: &mut Member, truce: Truce, now: u64) {
        me.truce = truce;
        self.truces.fetch_add(1, Ordering::Relaxed);
        inner.crowd.make(truce, &self.ledger, now);
        self.registry.publish_truce(truce);
    }

    /// A turn is over: the truce that has to begin, if there is one.
    fn judge<K: Kernel>(
        &self,
        inner: &mut Inner,
        current: &Activation<K>,
        busy: Set,
        now: u64,
    ) -> Option<Truce> {
        let processors = current
            .runtime()
            .vps()
            .iter()
            .map(Vp::processor)
            .filter(|&processor| {
                let (word, bit) = Set::place(processor);
                busy.0[word] & bit != 0
            });
        inner
            .crowd
            .judge(&self.ledger, processors, now, &self.times)
    }

    /// Reads the others, without the dead.
    fn look_around(&self, inner: &mut Inner, now: u64) -> usize {
        let count = self.registry.others(&mut inner.room);
        let mut kept = 0;
        for at in 0..count {
            let other = inner.room[at];
            let suspect = match other.phase {
                Phase::Resting => false,
                Phase::On { .. } => now.saturating_sub(other.beat) > SUSPECT_NS,
                Phase::Waiting { offered, .. } => {
                    offered != 0 && now.saturating_sub(offered) > SUSPECT_NS
                }
            };
            if !(suspect && self.registry.bury(other.id)) {
                inner.room[kept] = other;
                kept += 1;
            }
        }
        kept
    }

    /// Stops the virtual processors on these processors, and lets the others go on. Returns whom
    /// to ring for that.
    fn stop<K: Kernel>(&self, current: &Activation<K>, stopped: Set, now: u64) -> u64 {
        let (mut more, mut fewer) = (false, false);
        for (at, &word) in stopped.0.iter().enumerate() {
            let before = self.processors.stopped[at].swap(word, Ordering::SeqCst);
            more |= word & !before != 0;
            fewer |= before & !word != 0;
            for bit in bits(before & !word) {
                self.processors.heard[at * 64 + bit as usize].store(now, Ordering::Relaxed);
            }
        }
        if more {
            let runtime = current.runtime();
            for vp in runtime.vps() {
                if !self.may_stay(vp) && !core::ptr::eq(vp, current.vp()) {
                    runtime.recall(vp);
                }
            }
        }
        let asleep = fewer && self.sleepers.load(Ordering::SeqCst) != 0;
        u64::from(asleep) << self.registry.id()
    }

    /// Returns true if a virtual processor may stay where it is.
    fn may_stay<K: Kernel>(&self, vp: &'static Vp<K>) -> bool {
        let (word, bit) = Set::place(vp.processor());
        self.processors.stopped[word].load(Ordering::Relaxed) & bit == 0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_that_has_left_still_runs_waits_for_no_turn() {
        let turns = Turns::try_join(std::process::id() as i32).unwrap();
        let state = turns.state.unwrap();
        for processor in [0, 70] {
            let (word, bit) = Set::place(processor);
            state.processors.stopped[word].store(bit, Ordering::SeqCst);
            assert!(!turns.may_run(processor));
        }
        turns.leave(1);
        assert!(turns.may_run(0) && turns.may_run(70));
    }
}
