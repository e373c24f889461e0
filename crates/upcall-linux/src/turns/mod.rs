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
//! 5. Where a daemon answers ([`daemon`]), it decides whose turn it is in the registry's place, for as long as it lives. One that
//!    comes later, or comes back, is found.
//!    What a process does with the decision is the same. One that *adapts* goes on with some of its processors (`adapting`).
//! 6. The runtime's own sleeps keep their protocol: the sleeper looks at the wake word after it has read the bell, and
//!    `Turns::wake` rings the bell.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use upcall_abi::{Said, Told};
use upcall_core::{Activation, Errno, Kernel, State as Word, Turnstile, Vp};

use crate::processors::placement;
use crate::processors::slice::Spent;
use crate::sys::{memory, vdso};

mod adapting;
mod bell;
mod by_daemon;
mod by_registry;
mod crowd;
pub mod daemon;
pub mod registry;
mod rules;

use crowd::{Crowd, Ledger};
use daemon::{Again, Daemon, Places};
use registry::{Registry, SLOTS, Trouble};
use rules::truce::Truce;
use rules::{Member, Phase, Set, TIMES, Times};

/// A virtual processor without a tick for this time, in nanoseconds, does not compute: it is blocked.
const UNHEARD_NS: u64 = 60_000_000;
/// Sleeps in one slice of processor time that do not make a program one that mostly waits: the
/// one before it began to compute, and the runtime's own.
const FEW_SLEEPS: u64 = 2;
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
    /// Of the turns, those that a daemon gave.
    pub by_daemon: u64,
    /// Turns that the process has left at a warning.
    pub warnings: u64,
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
    /// With how many processors the process goes on at least, while it wants more; 0: it needs all at once.
    adapts: u32,
    /// How many virtual processors the process uses at most.
    most: AtomicU32,
    /// For which share of the time it asks a daemon; 0: for what is configured there.
    share: u32,
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
    by_daemon: AtomicU64,
    warnings: AtomicU64,
    /// 0, or the process leaves its processors at a warning, which says this moment.
    leaves_at: AtomicU64,
    /// The word on which activations sleep that wait: the registry's or the daemon's.
    bell: AtomicPtr<u32>,
    /// The daemon's pages, while it decides.
    told: AtomicPtr<Told>,
    said: AtomicPtr<Said>,
}

/// What the activations read and write without a lock.
struct Processors {
    busy: [AtomicU64; Set::WORDS],
    /// Busy, and to be left to others now.
    stopped: [AtomicU64; Set::WORDS],
    /// A thread is in a critical section there, which it may leave first.
    finishing: [AtomicU64; Set::WORDS],
    /// When a busy virtual processor was last heard of, by processor.
    heard: [AtomicU64; Set::BITS as usize],
}

struct Inner {
    phase: Phase,
    /// Takes no part before this time.
    apart_until: u64,
    busy_before: Set,
    crowd: Crowd,
    daemon: Daemon,
    again: Again,
    places: Places,
    /// 0, or since when the daemon has others go first.
    waits_since: u64,
    /// The last warning that an adviser was asked about, and if there was one.
    warned: (u64, bool),
    /// Of a process that adapts: when it was last judged whether others take a part of its processors.
    judged: u64,
    room: [Member; SLOTS],
}

/// Whom to wake after a decision. Members: one bit each.
#[derive(Default)]
struct Calls {
    rings: u64,
    offers: u64,
    /// This process's own activations that wait.
    own: bool,
    /// The daemon, by this descriptor.
    knock: Option<i32>,
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

    /// Joins the other processes of the user. Where that fails the process runs without turns. `adapts`: with how many processors it
    /// goes on at least, where a daemon gives it fewer than it wants; 0: it needs all at once. `share`: for which share of the time it
    /// asks a daemon; 0: for what is configured there.
    pub fn join(pid: i32, adapts: u32, share: u32) -> Self {
        Self::try_join(pid, adapts, share).unwrap_or_else(|trouble| Turns {
            state: None,
            trouble: Some(trouble),
        })
    }

    /// Why the process takes no turns, if it was to take them.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    fn try_join(pid: i32, adapts: u32, share: u32) -> Result<Self, Trouble> {
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
            (&raw mut (*place).bell).write(AtomicPtr::new(registry.bell()));
            (&raw mut (*place).registry).write(registry);
            (&raw mut (*place).times).write(TIMES);
            (&raw mut (*place).adapts).write(adapts);
            (&raw mut (*place).most).write(AtomicU32::new(u32::MAX));
            (&raw mut (*place).share).write(share);
            let inner = (*place).inner.get();
            (&raw mut (*inner).phase).write(Phase::Resting);
            (&raw mut (*inner).crowd).write(Crowd::default());
            (&raw mut (*inner).daemon).write(Daemon::ask());
            (*inner).again.begin(vdso::monotonic_ns());
            (&raw mut (*inner).room).write([Member::default(); SLOTS]);
            &*place
        };
        Ok(Turns {
            state: Some(state),
            trouble: None,
        })
    }

    /// The process uses so many virtual processors at most from now on, and wants no more.
    pub(crate) fn use_at_most(&self, count: u32) {
        if let Some(state) = self.state {
            state.most.store(count, Ordering::Relaxed);
        }
    }

    /// What was counted, if the process takes part.
    pub fn report(&self) -> Option<Report> {
        self.state.map(|state| Report {
            turns: state.turns.load(Ordering::Relaxed),
            waited_ns: state.waited_ns.load(Ordering::Relaxed),
            truces: state.truces.load(Ordering::Relaxed),
            by_daemon: state.by_daemon.load(Ordering::Relaxed),
            warnings: state.warnings.load(Ordering::Relaxed),
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
        state.says_that_it_computes_on(Set::default());
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
        // SeqCst: an activation that falls idle looks here afterwards; a process that stops it looks at the word afterwards.
        state.processors.stopped[word].load(Ordering::SeqCst) & bit == 0
    }

    /// Returns true if a virtual processor that may not run may finish a critical section first.
    #[cold]
    pub(crate) fn may_finish(&self) -> bool {
        // SeqCst: written before any of them is stopped.
        self.state
            .is_some_and(|state| state.leaves_at.load(Ordering::SeqCst) != 0)
    }

    /// Returns true if another process waits for a processor of this one.
    #[inline]
    pub(crate) fn is_contended(&self) -> bool {
        self.state.is_some_and(|state| state.registry.is_wanted())
    }

    /// A time slice is over: the current activation owns its virtual processor and computes. `slept` is what this
    /// keeps with each activation: how often its kernel thread had gone to sleep by itself when last asked. `spent` is what
    /// it had of its processor, where that is known. `in_section`: its thread is in a critical section.
    pub(crate) fn tick<K: Kernel>(
        &self,
        activation: &Activation<K>,
        slept: &AtomicU64,
        spent: Option<Spent>,
        in_section: bool,
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
        state.processors.finishes(processor, in_section);
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
            if state.registry.is_wanted() || state.is_wanted_by_daemon() {
                state.decide(activation);
            } else if !state.says_that_it_computes_on(load(&state.processors.busy)) {
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
        if state
            .processors
            .finishes(activation.vp().processor(), false)
        {
            // The last one, perhaps: the daemon waits for it.
            state.decide(activation);
        }
        // Before the look: an activation that changes something afterwards finds a sleeper.
        state.sleepers.fetch_add(1, Ordering::SeqCst);
        let bell = state.bell.load(Ordering::SeqCst);
        let seen = bell::word(bell).load(Ordering::SeqCst);
        // If it is another by now, nobody rings this one, but whoever changed it has rung it before.
        let is_the_one = state.bell.load(Ordering::SeqCst) == bell;
        if is_the_one && !is_due() && !self.may_run(activation.vp().processor()) {
            bell::sleep(bell, seen, state.patience.load(Ordering::Relaxed));
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
            bell::ring(state.bell.load(Ordering::SeqCst));
        }
    }
}

impl Processors {
    fn free(&self, word: usize, bit: u64) {
        self.busy[word].fetch_and(!bit, Ordering::Relaxed);
        self.stopped[word].fetch_and(!bit, Ordering::Relaxed);
        self.finishing[word].fetch_and(!bit, Ordering::Relaxed);
    }

    /// Notes whether a thread is in a critical section on this processor. Returns true if that was noted before.
    fn finishes(&self, processor: u32, in_section: bool) -> bool {
        let (word, bit) = Set::place(processor);
        let finishing = &self.finishing[word];
        if finishing.load(Ordering::Relaxed) & bit == 0 && !in_section {
            return false;
        }
        let before = match in_section {
            true => finishing.fetch_or(bit, Ordering::Relaxed),
            false => finishing.fetch_and(!bit, Ordering::Relaxed),
        };
        before & bit != 0
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
            if calls.own {
                bell::ring(self.bell.load(Ordering::SeqCst));
            }
            if let Some(knocker) = calls.knock {
                daemon::knock(knocker);
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
            bell::ring(self.bell.load(Ordering::SeqCst));
        }
    }

    fn decide_once<K: Kernel>(
        &self,
        inner: &mut Inner,
        current: &Activation<K>,
        now: u64,
    ) -> Calls {
        if matches!(inner.daemon, Daemon::None) && inner.again.is_due(now) {
            inner.daemon = Daemon::ask();
        }
        if inner.daemon.look(&inner.places) {
            self.link(inner);
        }
        self.ask_daemon(inner, current, now)
            .unwrap_or_else(|| self.ask_registry(inner, current, now))
    }

    fn take_on(&self, crowd: &mut Crowd, truce: Truce, now: u64) {
        self.truces.fetch_add(1, Ordering::Relaxed);
        crowd.make(truce, &self.ledger, now);
    }

    /// A turn is over: the truce that has to begin, if there is one.
    fn judge<K: Kernel>(
        &self,
        crowd: &mut Crowd,
        current: &Activation<K>,
        busy: Set,
        now: u64,
    ) -> Option<Truce> {
        let processors = current
            .runtime()
            .vps()
            .iter()
            .map(Vp::processor)
            .filter(|&processor| busy.contains(processor));
        crowd.judge(&self.ledger, processors, now, &self.times)
    }

    /// Stops the virtual processors on these processors, and lets the others go on. `until`: when they must have left their critical
    /// sections; 0: now. Returns true if activations wait that must be rung for that.
    fn stop<K: Kernel>(&self, current: &Activation<K>, stopped: Set, until: u64, now: u64) -> bool {
        // SeqCst: who finds that it may not run sees this.
        let before = self.leaves_at.swap(until, Ordering::SeqCst);
        // Those that go on in sections are told that they must not any more.
        let mut more = before != 0 && until == 0;
        let mut back = Set::default();
        for (at, &word) in stopped.0.iter().enumerate() {
            let before = self.processors.stopped[at].swap(word, Ordering::SeqCst);
            more |= word & !before != 0;
            back.0[at] = before & !word;
            for bit in bits(back.0[at]) {
                self.processors.heard[at * 64 + bit as usize].store(now, Ordering::Relaxed);
            }
        }
        let runtime = current.runtime();
        if !back.is_empty() {
            let vps = runtime.vps().iter();
            runtime.added(vps.filter(|vp| back.contains(vp.processor())));
        }
        if more {
            for vp in runtime.vps() {
                // The caller looks by itself, if it does not fall idle.
                let is_own = core::ptr::eq(vp, current.vp()) && vp.word().state() != Word::Idle;
                if !self.may_stay(vp) && !is_own {
                    runtime.recall(vp);
                }
            }
        }
        !back.is_empty() && self.sleepers.load(Ordering::SeqCst) != 0
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
        let turns = Turns::try_join(std::process::id() as i32, 0, 0).unwrap();
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
