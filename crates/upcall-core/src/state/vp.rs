//! A virtual processor: one word says which activation owns it and what that activation does.
//!
//! | state | meaning | who may replace the owner |
//! |---|---|---|
//! | `User` | its thread runs program code | an unblocked activation; the standby, when the owner is blocked on a page fault |
//! | `Runtime` | it is inside the runtime | nobody |
//! | `Kernel` | its thread is in a system call that may block | the standby; an unblocked activation |
//! | `Idle` | it has nothing to run and waits | anybody who has a thread |
//! | `Granted` | it was given the processor with its thread, and has not run since | the standby, when the owner is blocked |
//! | `Rung` | it was given the processor, or told to look for work, without a thread, and has not run since | nobody |
//!
//! Protocol:
//! 1. Every change of owner is one compare-and-swap on the word. The loser learns it from the word
//!    at its next step and does not touch the virtual processor any more.
//! 2. The owner moves between its own states by compare-and-swap from `User`, `Kernel`, `Idle` and
//!    `Granted`, and by plain store from `Runtime` and `Rung`, which nobody else may leave.
//! 3. An owner in `User` may have a *bias*: it enters the runtime by a load and a store, without a locked instruction
//!    (Kawachiya, Koseki, Onodera, *Lock Reservation*, OOPSLA 2002). Who wants to replace it takes the bias away first
//!    ([`Vp::unbias`]): it says so, makes every kernel thread pass a barrier, and looks then if the owner is inside.
//! 4. A preempted owner that was replaced is *displaced*: it is in the `displaced` list with its
//!    thread inside, and an owner that gives the processor up grants it to the displaced first.
//!
//! Approach rejected: relying on the activations of a virtual processor being bound to one
//! processor, which would make plain stores enough; anybody may change the binding from outside.

use crate::sync::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, light_barrier, test_and_set,
};

use crate::lock::SpinLock;
use crate::machine::Machine;
use crate::numbered::{Numbered, numbered_enum};
use crate::rank::Rank;
use crate::slot::Slot;
use crate::state::activation::{Activation, ActivationList, Activity};
use crate::state::ready::{By, ReadyList};

numbered_enum! {
    /// What the owner of a virtual processor does.
    pub enum State {
        /// Runs its thread's own code.
        User = 0,
        /// Is inside the runtime.
        Runtime = 1,
        /// Is in a system call of its thread.
        Kernel = 2,
        /// Waits for something to run.
        Idle = 3,
        /// Was given the processor, with its thread inside, and has not run since.
        Granted = 4,
        /// Was given the processor, or told to look for work, without a thread, and has not run since.
        Rung = 5,
    }
}

const STATE: usize = 7;
/// In the place of [`State::User`]: the owner has the bias.
const BIASED: usize = 6;

/// For how long no owner has the bias, in nanoseconds, after it was taken away.
const UNBIASED_NS: u64 = 10_000_000;

/// The contents of a virtual processor's word.
pub struct Word<K: Machine> {
    bits: usize,
    kind: core::marker::PhantomData<K>,
}

impl<K: Machine> Clone for Word<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Machine> Copy for Word<K> {}

impl<K: Machine> Word<K> {
    #[inline]
    fn new(owner: &'static Activation<K>, state: State) -> Self {
        Self::with(owner, state as usize)
    }

    /// `state`: a number of [`State`], or [`BIASED`].
    #[inline]
    fn with(owner: &'static Activation<K>, state: usize) -> Self {
        Self::from_bits(core::ptr::from_ref(owner) as usize | state)
    }

    #[inline]
    fn from_bits(bits: usize) -> Self {
        Word {
            bits,
            kind: core::marker::PhantomData,
        }
    }

    /// The owner.
    #[inline]
    pub fn owner(self) -> &'static Activation<K> {
        let pointer = (self.bits & !STATE) as *const Activation<K>;
        // SAFETY: words are only made from `&'static Activation`, whose alignment leaves the low
        // bits free.
        unsafe { &*pointer }
    }

    /// What the owner does.
    #[inline]
    pub fn state(self) -> State {
        match self.bits & STATE {
            BIASED => State::User,
            // SAFETY: words are only made from a `State`, but for that one.
            state => unsafe { State::of_known(state as u32) },
        }
    }

    /// Returns true if the owner is in `User` and has the bias.
    pub fn is_biased(self) -> bool {
        self.bits & STATE == BIASED
    }

    /// Returns true if this activation is the owner and in this state, which is not `User`.
    #[inline]
    pub(crate) fn is(self, owner: &'static Activation<K>, state: State) -> bool {
        self.bits == Self::new(owner, state).bits
    }

    /// Returns true if this activation is the owner.
    #[inline]
    pub fn is_owned_by(self, activation: &Activation<K>) -> bool {
        self.bits & !STATE == core::ptr::from_ref(activation) as usize
    }
}

/// A turn: the end of a time slice does not preempt a thread that has run for less, in nanoseconds.
const TURN_NS: u64 = 200_000;
/// How long a thread goes on, in nanoseconds, that waits for others and always finds that they were faster, while threads
/// are ready.
const ENOUGH_NS: u64 = 50_000;
/// While activations are absent, their processor is offered to them after this time, in nanoseconds; after twice as long
/// each time that none of them comes, and at the latest after [`OFFER_AT_LEAST_NS`].
const OFFER_NS: u64 = 100_000;
const OFFER_AT_LEAST_NS: u64 = 5_000_000;

/// How long threads that compute have the same order on the average, in nanoseconds.
const ORDER_NS: u64 = 50_000_000;

/// What the end of a slice does to the order of threads that compute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Nothing.
    Nothing,
    /// The virtual processor takes a thread from where as many wait.
    Take,
    /// Its thread has one more slice.
    Stay,
}

/// A virtual processor.
#[repr(align(128))]
pub struct Vp<K: Machine> {
    word: AtomicUsize,
    /// What the owner puts for `User` when it leaves the runtime: with the bias, or without.
    leaves_as: AtomicUsize,
    pub(crate) ready: ReadyList<K>,
    /// The activation that waits for the owner to block.
    pub(crate) standby: Slot<Activation<K>>,
    /// Where standbys need heirs: the reserved activation to which this one's gives the processor. A
    /// standby that is awake has one, so that it never holds a lock, which others would wait for
    /// while it does not get to run.
    pub(crate) heir: Slot<Activation<K>>,
    /// Somebody is creating or waking a standby.
    pub(crate) calling: AtomicBool,
    /// The standby naps: it looks again by itself soon.
    pub(crate) naps: AtomicBool,
    /// When the standby last saw an owner block outside of the calls that it announces, in nanoseconds.
    pub(crate) surprised_ns: AtomicU64,
    /// When it last saw one block in such a call.
    pub(crate) relieved_ns: AtomicU64,
    /// How often its standby was called, or would have been if it had not napped, since that moment, in nanoseconds. About so: two
    /// may count at a time.
    pub(crate) calls: AtomicU32,
    pub(crate) calls_ns: AtomicU64,
    pub(crate) displaced: SpinLock<Displaced<K>>,
    pub(crate) nr_displaced: AtomicU32,
    /// Somebody takes the bias away.
    unbiasing: AtomicBool,
    /// Owners may have it.
    may_be_biased: AtomicBool,
    /// When it was taken away last, in nanoseconds.
    unbiased_ns: AtomicU64,
    /// There are activations for [`crate::Runtime`]'s `settle`.
    pub(crate) has_unsettled: AtomicBool,
    /// Nanoseconds to wait for work before sleeping; adapts (hysteresis, Anderson §4.2).
    pub(crate) spell_ns: AtomicU64,
    /// Its threads compute without reaching scheduling points: the poller's seat may not stay empty.
    pub(crate) only_computes: AtomicBool,
    /// What `dispatches` was, and when, as the thread that runs was known to run at first. Hints.
    turn: AtomicU64,
    turn_ns: AtomicU64,
    /// The thread that runs next goes on with the turn of the last one.
    shares_turn: AtomicBool,
    /// Threads that were woken waited for each other at the end of the last time slice: then it is noted since when each
    /// thread runs.
    pub(crate) woken_wait: AtomicBool,
    /// What `dispatches` was at the end of the last time slice, and when that was.
    pub(crate) dispatches_at_tick: AtomicU64,
    pub(crate) tick_ns: AtomicU64,
    /// When the order of its threads is changed next, in nanoseconds. Only its owner uses it.
    mix_ns: AtomicU64,
    /// When the poller was last looked at from here, in nanoseconds.
    pub(crate) polled_ns: AtomicU64,
    /// How long after that it is due again. Only its owner writes.
    pub(crate) poll_every_ns: AtomicU64,
    /// The rank of the thread that it runs, or ran last: see [`crate::rank`].
    pub(crate) rank: AtomicU64,
    /// The adviser knows that it has nothing to run. Only its owner writes.
    pub(crate) idle_told: AtomicBool,
    /// Since when it is idle, or 0; and for how long it was before. All in nanoseconds.
    idle_since: AtomicU64,
    idle_ns: AtomicU64,
    /// Threads it has run. Only its owner writes.
    pub(crate) dispatches: AtomicU64,
    /// When the processor was last offered to returning activations, and how long it is not offered then (nanoseconds).
    offered_ns: AtomicU64,
    offer_after_ns: AtomicU64,
    /// The processor it is bound to.
    processor: AtomicU32,
    index: u32,
}

impl<K: Machine> Vp<K> {
    /// Offset of the word with the owner's address and, in the bits of [`Vp::STATE_BITS`], the number of its [`State`].
    pub const OFFSET_WORD: usize = core::mem::offset_of!(Vp<K>, word);
    /// In the place of the number of [`State::User`] there: the owner has the bias.
    pub const BIASED: usize = BIASED;
    /// See [`Vp::OFFSET_WORD`].
    pub const STATE_BITS: usize = STATE;
    /// Offset of the 32-bit word of the processor's number.
    pub const OFFSET_PROCESSOR: usize = core::mem::offset_of!(Vp<K>, processor);
    /// Offset of the 32-bit word of its own number.
    pub const OFFSET_INDEX: usize = core::mem::offset_of!(Vp<K>, index);

    pub(crate) fn new(index: u32, processor: u32, owner: &'static Activation<K>) -> Self {
        Vp {
            word: AtomicUsize::new(Word::new(owner, State::Idle).bits),
            leaves_as: AtomicUsize::new(State::User as usize),
            ready: ReadyList::new(),
            standby: Slot::empty(),
            heir: Slot::empty(),
            calling: AtomicBool::new(false),
            naps: AtomicBool::new(false),
            surprised_ns: AtomicU64::new(0),
            relieved_ns: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            calls_ns: AtomicU64::new(0),
            displaced: SpinLock::new(Displaced::none()),
            nr_displaced: AtomicU32::new(0),
            unbiasing: AtomicBool::new(false),
            may_be_biased: AtomicBool::new(false),
            unbiased_ns: AtomicU64::new(0),
            has_unsettled: AtomicBool::new(false),
            spell_ns: AtomicU64::new(0),
            only_computes: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            turn_ns: AtomicU64::new(0),
            shares_turn: AtomicBool::new(false),
            woken_wait: AtomicBool::new(false),
            dispatches_at_tick: AtomicU64::new(0),
            tick_ns: AtomicU64::new(0),
            mix_ns: AtomicU64::new(0),
            polled_ns: AtomicU64::new(0),
            poll_every_ns: AtomicU64::new(0),
            rank: AtomicU64::new(Rank::COMMON.0),
            idle_told: AtomicBool::new(false),
            idle_since: AtomicU64::new(0),
            idle_ns: AtomicU64::new(0),
            dispatches: AtomicU64::new(0),
            offered_ns: AtomicU64::new(0),
            offer_after_ns: AtomicU64::new(OFFER_NS),
            processor: AtomicU32::new(processor),
            index,
        }
    }

    /// Its number, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The processor it is bound to.
    pub fn processor(&self) -> u32 {
        self.processor.load(Ordering::Relaxed)
    }

    /// Binds it to another processor; each of its activations follows at its next chance.
    pub fn move_to(&self, processor: u32) {
        self.processor.store(processor, Ordering::Relaxed);
    }

    /// Its standby is called.
    pub(crate) fn count_call(&self) {
        let count = self.calls.load(Ordering::Relaxed);
        self.calls.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    /// Only for its owner.
    #[inline]
    pub(crate) fn count_dispatch(&self) {
        let count = self.dispatches.load(Ordering::Relaxed);
        self.dispatches.store(count + 1, Ordering::Relaxed);
    }

    /// It is about to be idle. Only for its owner.
    pub(crate) fn begins_rest(&self, now: u64) {
        self.idle_since.store(now, Ordering::Relaxed);
    }

    /// Returns true if it counts as idle: it is, or was when it became the caller's.
    pub fn rests(&self) -> bool {
        self.idle_since.load(Ordering::Relaxed) != 0
    }

    /// It is not idle any more. Only for its owner.
    pub(crate) fn ends_rest(&self, now: u64) {
        let idle = self.idle_ns(now);
        self.idle_since.store(0, Ordering::Relaxed);
        self.idle_ns.store(idle, Ordering::Relaxed);
    }

    /// For how long it has been idle until `now`.
    pub(crate) fn idle_ns(&self, now: u64) -> u64 {
        let before = self.idle_ns.load(Ordering::Relaxed);
        match self.idle_since.load(Ordering::Relaxed) {
            0 => before,
            since => before + now.saturating_sub(since),
        }
    }

    /// What is due now for the order of its threads, which compute. Who was woken waits for none of that. Only for its owner.
    pub(crate) fn mix(&self, kernel: &K, now: u64) -> Mix {
        let is_due = now >= self.mix_ns.load(Ordering::Relaxed);
        if !is_due || !self.ready.only_spent_wait(kernel, By::Owner) {
            return Mix::Nothing;
        }
        // Any number that does not follow the slices (Knuth's multiplicative hashing).
        let any = (now ^ u64::from(self.index)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let next = now + ORDER_NS / 2 + (any >> 1) % ORDER_NS;
        self.mix_ns.store(next, Ordering::Relaxed);
        if any & 1 == 0 || self.ready.len() == 0 {
            Mix::Take
        } else {
            Mix::Stay
        }
    }

    /// The thread that runs is known to run since `now`.
    pub(crate) fn begin_turn(&self, now: u64) {
        let dispatches = self.dispatches.load(Ordering::Relaxed);
        self.turn.store(dispatches, Ordering::Relaxed);
        if self.shares_turn.load(Ordering::Relaxed) {
            self.shares_turn.store(false, Ordering::Relaxed);
        } else {
            self.turn_ns.store(now, Ordering::Relaxed);
        }
    }

    /// The thread that runs next goes on with the turn of the one that runs, which may be itself: there is no more than one.
    pub(crate) fn share_turn(&self) {
        self.shares_turn.store(true, Ordering::Relaxed);
    }

    /// How long the thread that runs has run, in nanoseconds, as far as is known.
    pub(crate) fn ran_ns(&self, now: u64) -> Option<u64> {
        let is_known = self.turn.load(Ordering::Relaxed) == self.dispatches.load(Ordering::Relaxed);
        is_known.then(|| now.wrapping_sub(self.turn_ns.load(Ordering::Relaxed)))
    }

    /// Returns true if the thread that runs is known to run for less than a turn.
    pub(crate) fn has_begun_turn(&self, now: u64) -> bool {
        self.ran_ns(now).is_some_and(|ran| ran < TURN_NS)
    }

    /// Returns true if the thread that runs has had enough for now: [`ENOUGH_NS`] since it is known to run, which begins
    /// here at the latest.
    pub(crate) fn has_had_enough(&self, now: u64) -> bool {
        let ran = self.ran_ns(now);
        if ran.is_none() {
            self.begin_turn(now);
        }
        ran.is_some_and(|ran| ran >= ENOUGH_NS)
    }

    /// Returns true if it is time to offer the processor to activations that come back. An offer costs two switches in the
    /// kernel, and most absent activations stay away for long.
    pub(crate) fn offer_is_due(&self, now: u64) -> bool {
        let since = now.wrapping_sub(self.offered_ns.load(Ordering::Relaxed));
        since >= self.offer_after_ns.load(Ordering::Relaxed)
    }

    /// The processor was offered, and somebody has `taken` it, or nobody.
    pub(crate) fn offered(&self, now: u64, taken: bool) {
        let before = self.offer_after_ns.load(Ordering::Relaxed);
        let next = match taken {
            true => OFFER_NS,
            false => (2 * before).min(OFFER_AT_LEAST_NS),
        };
        self.offer_in(next, now);
    }

    /// One more is absent, and perhaps back soon: a ready thread runs first, then the processor is offered.
    pub(crate) fn offer_soon(&self, now: u64) {
        self.offer_in(OFFER_NS, now);
    }

    fn offer_in(&self, after: u64, now: u64) {
        self.offer_after_ns.store(after, Ordering::Relaxed);
        self.offered_ns.store(now, Ordering::Relaxed);
    }

    /// Returns true if its threads compute without reaching scheduling points, as far as is known.
    pub fn only_computes(&self) -> bool {
        self.only_computes.load(Ordering::Relaxed)
    }

    /// Owner and state now.
    #[inline]
    pub fn word(&self) -> Word<K> {
        // Pairs with the Release of the caller that changed it. SeqCst: sleepers declare themselves asleep
        // before they look here.
        Word::from_bits(self.word.load(Ordering::SeqCst))
    }

    /// The activation that waits for the owner to block, at some moment.
    pub fn standby(&self) -> Option<&'static Activation<K>> {
        self.standby.get(Ordering::Acquire)
    }

    /// How many threads wait in its ready list, at some moment.
    pub fn nr_ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns true if threads wait in its ready list, at some moment.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.ready.len() != 0
    }

    /// Moves from exactly `from` to (`owner`, `state`). Returns true if it did.
    #[inline]
    pub(crate) fn replace(
        &self,
        from: Word<K>,
        owner: &'static Activation<K>,
        state: State,
    ) -> bool {
        self.word
            .compare_exchange(
                from.bits,
                Word::new(owner, state).bits,
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// The owner moves from one of its own states to another, unless it was replaced.
    #[inline]
    pub(crate) fn step(&self, owner: &'static Activation<K>, from: State, to: State) -> bool {
        self.replace(Word::new(owner, from), owner, to)
    }

    /// The owner, in a state that nobody else may leave, moves to another.
    #[inline]
    pub(crate) fn set(&self, owner: &'static Activation<K>, state: State) {
        self.set_to(Word::new(owner, state));
    }

    #[inline]
    fn set_to(&self, word: Word<K>) {
        // Release: what the owner did before is visible to the activation that replaces it.
        self.word.store(word.bits, Ordering::Release);
    }

    /// The owner leaves the runtime.
    #[inline]
    pub(crate) fn leave(&self, owner: &'static Activation<K>) {
        self.set_to(Word::with(owner, self.leaves_as.load(Ordering::Relaxed)));
    }

    /// An activation that runs its thread's code, and has marked itself as inside, moves from `User` to `Runtime`, unless it
    /// was replaced. Returns true if it did.
    #[inline]
    pub(crate) fn enter(&self, owner: &'static Activation<K>) -> bool {
        // Between the mark and the looks. Pairs with the barriers in `unbias`.
        light_barrier();
        // Acquire: the word is the one that was left there.
        if !self.unbiasing.load(Ordering::Acquire)
            && self.word.load(Ordering::Relaxed) == Word::with(owner, BIASED).bits
        {
            self.set(owner, State::Runtime);
            return true;
        }
        self.enter_unbiased(owner)
    }

    // Beside the way of an owner with the bias.
    #[inline(never)]
    fn enter_unbiased(&self, owner: &'static Activation<K>) -> bool {
        self.step(owner, State::User, State::Runtime)
            || self.replace(Word::with(owner, BIASED), owner, State::Runtime)
            // The bias was taken away in between.
            || self.step(owner, State::User, State::Runtime)
    }

    /// Owners may have the bias: [`Machine::pass_barriers`] works.
    pub(crate) fn allow_bias(&self) {
        self.may_be_biased.store(true, Ordering::Relaxed);
        self.leaves_as.store(BIASED, Ordering::Relaxed);
    }

    /// No owner has it when it leaves the runtime from here on.
    pub(crate) fn forbid_bias(&self) {
        self.may_be_biased.store(false, Ordering::Relaxed);
        self.leaves_as
            .store(State::User as usize, Ordering::Relaxed);
    }

    /// The owner has the bias again when it leaves the runtime, if nobody has taken it away for a while.
    pub(crate) fn bias_again(&self, now: u64) {
        let unbiased = self.unbiased_ns.load(Ordering::Relaxed);
        if self.may_be_biased.load(Ordering::Relaxed) && now.saturating_sub(unbiased) >= UNBIASED_NS
        {
            self.leaves_as.store(BIASED, Ordering::Relaxed);
        }
    }

    /// The word in which the owner of this one, which is in `User`, can be replaced. `None`: not now, since the owner is on its
    /// way into the runtime, or somebody else is about to replace it.
    ///
    /// The owner sets its mark, looks if somebody is here, and enters by a store if it has the bias. After the barriers of all
    /// kernel threads its mark is seen here, or it sees that somebody is here and enters by compare-and-swap.
    pub(crate) fn unbias(&self, kernel: &K, word: Word<K>) -> Option<Word<K>> {
        if !word.is_biased() {
            return Some(word);
        }
        if test_and_set(&self.unbiasing, Ordering::Acquire) {
            return None;
        }
        let owner = word.owner();
        self.leaves_as
            .store(State::User as usize, Ordering::Relaxed);
        self.unbiased_ns.store(kernel.now(), Ordering::Relaxed);
        let passed = kernel.pass_barriers();
        let user = Word::new(owner, State::User);
        let is_out = passed && !owner.is_inside() && self.replace(word, owner, State::User);
        // Release: the word comes first.
        self.unbiasing.store(false, Ordering::Release);
        is_out.then_some(user)
    }
}

/// The activations of one virtual processor that were replaced while their threads ran program code, the last ones first.
/// One that runs again takes itself out before anything else.
pub(crate) struct Displaced<K: Machine> {
    list: ActivationList<K>,
    /// Those that blocked, and were not told yet.
    unsettled: ActivationList<K>,
}

// SAFETY: references to activations, whose fields are atomics, behind a lock.
unsafe impl<K: Machine> Send for Displaced<K> {}

impl<K: Machine> Displaced<K> {
    pub(crate) fn none() -> Self {
        Displaced {
            list: ActivationList::new(),
            unsettled: ActivationList::new(),
        }
    }

    pub(crate) fn push_unsettled(&mut self, activation: &'static Activation<K>) {
        self.unsettled.push(activation);
        activation.set_activity(Activity::Unsettled);
    }

    pub(crate) fn pop_unsettled(&mut self) -> Option<&'static Activation<K>> {
        let activation = self.unsettled.take(|_| true)?;
        activation.set_activity(Activity::Running);
        Some(activation)
    }

    pub(crate) fn push(&mut self, activation: &'static Activation<K>) {
        self.list.push(activation);
        activation.set_activity(Activity::Displaced);
    }

    /// The rank of the thread in the last displaced.
    pub(crate) fn first_rank(&self) -> Option<Rank> {
        self.list.first?.thread().map(|thread| thread.rank())
    }

    pub(crate) fn pop(&mut self) -> Option<&'static Activation<K>> {
        let activation = self.list.pop()?;
        activation.set_activity(Activity::Running);
        Some(activation)
    }

    /// Takes this activation out, if it is still here. Returns whether it was displaced.
    pub(crate) fn remove(&mut self, activation: &'static Activation<K>) -> bool {
        let activity = activation.activity();
        match activity {
            Activity::Displaced => self.list.remove(activation),
            Activity::Unsettled => self.unsettled.remove(activation),
            _ => return false,
        };
        activation.set_activity(Activity::Running);
        activity == Activity::Displaced
    }
}
