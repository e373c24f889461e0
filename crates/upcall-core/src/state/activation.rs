//! An activation: the kernel thread that serves as vessel for threads (Anderson §3.1).
//!
//! What an activation is doing is one word, [`Activity`]. Whether it owns its virtual processor is in that one's word
//! (`vp.rs`). The table has every change; where it says `store`, nobody else changes the word at that time.
//!
//! | from | to | when | by | how |
//! |---|---|---|---|---|
//! | `Reserved` | `Running` | it arrives as owner, rung or as heir | itself | store |
//! | `Reserved` | `Standby` | it is put at the side of an owner | the one that reserved it | store |
//! | `Reserved` | `Spare` | it is not needed after all | the one that reserved it | pool's lock |
//! | `Running` | `InCall` | its thread goes into an announced system call | itself, as owner in `Runtime` | store |
//! | `InCall` | `Running` | its thread is back from the call | itself, before it looks whether it is the owner | store |
//! | `Running` | `Displaced` | its virtual processor was taken while its thread ran program code | the new owner | displaced list's lock |
//! | `Displaced` | `Running` | it is granted the processor, or runs again unasked | the one that grants; itself | displaced list's lock |
//! | `Running` | `Unsettled` | it was replaced on a page fault | its successor, or the heir | displaced list's lock |
//! | `Unsettled` | `Running` | it is told, or runs again untold | the owner that settles; itself | displaced list's lock |
//! | `Running` | `Resting` | its virtual processor falls idle | itself, as owner in `Runtime` | store |
//! | `Resting` | `Running` | it goes on as owner | itself, as owner in `Runtime` | store |
//! | `Resting` | `Running` | it delivers what it polled | itself | pool's lock, compare-and-swap |
//! | `Running` | `Resting` | it has delivered, and sleeps on | itself | compare-and-swap |
//! | `Resting` | `Running` | it was replaced, and sees that itself | itself | compare-and-swap |
//! | `Resting` | `Spare` | it was replaced | its successor | pool's lock, compare-and-swap |
//! | `Standby` | `Running` | it becomes the owner | itself | store |
//! | `Running` | `Spare` | it has neither a thread nor a virtual processor | itself | pool's lock |
//! | `Spare` | `Running` | it has something to do, or ends | itself | pool's lock |
//! | `Spare` | `Reserved` | it is taken | the one that takes it | pool's lock |
//! | `Running` | `Reserved` | it has ended, and begins anew as another kernel thread | its creator | store |
//!
//! `InCall`, `Displaced` and `Unsettled` have a thread; `Standby`, `Spare`, `Reserved` and `Resting` have none.
//!
//! What else an activation keeps of its own state is no activity:
//! - `inside`, `attention`: the backend finds them by their offset, and others leave notes in any activity;
//! - `marks`: several that would replace it leave theirs before they try, while it may store its activity;
//! - `bequest`: of a reserved one, who was the owner before;
//! - `stays`: once and for all.

use core::cell::UnsafeCell;
use core::ops::Range;
use core::ptr::NonNull;

use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

#[cfg(doc)]
use crate::arch;
use crate::list::{Linked, Stack};
use crate::machine::{Errno, Machine};
use crate::memory::Recycled;
use crate::numbered::{AtomicEnum, numbered_enum};
use crate::slot::Slot;
use crate::stack;
use crate::state::thread::Thread;
use crate::state::vp::Vp;

numbered_enum! {
    /// What an activation is doing.
    pub enum Activity {
        /// Runs a thread, or the runtime on its own stack. Perhaps it is blocked outside of any announced call, or was replaced
        /// and knows it, or is to learn it at its next step.
        Running = 0,
        /// Its thread is in an announced system call, which may block.
        InCall = 1,
        /// Is in the displaced list of its virtual processor, with its thread.
        Displaced = 2,
        /// Was replaced while it was blocked outside of any announced call, and nobody has told it: is in that list of its
        /// virtual processor, with its thread.
        Unsettled = 3,
        /// Waits, runnable, for the owner of its virtual processor to block.
        Standby = 4,
        /// Is in the pool: sleeps or polls.
        Spare = 5,
        /// Sleeps. Somebody has taken it, and is about to give it something to do.
        Reserved = 6,
        /// Waits, sleeps or polls as the idle owner of its virtual processor, or was that and is to learn it at its next step.
        Resting = 7,
    }
}

/// Activations linked through themselves. An activation is in one such list at a time.
pub(crate) type ActivationList<K> = Stack<Activation<K>>;

/// Bytes of an activation's own stack, guard included.
pub(crate) const ACTIVATION_STACK: usize = 64 << 10;

/// An address that is written once, before anybody else knows of the activation. It is no atomic, so that a look at it
/// that is not needed costs nothing.
pub(crate) struct Fixed(UnsafeCell<*const ()>);

// SAFETY: not written while several know of it.
unsafe impl Send for Fixed {}
// SAFETY: the same.
unsafe impl Sync for Fixed {}

impl Fixed {
    /// # Safety
    ///
    /// Nobody else knows of the activation.
    pub(crate) unsafe fn set(&self, address: *const ()) {
        // SAFETY: the caller's promise.
        unsafe { *self.0.get() = address };
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> *const () {
        // SAFETY: nobody writes it any more.
        unsafe { *self.0.get() }
    }
}

/// An activation. The first words are read through a segment register by the backend.
#[repr(C, align(64))]
pub struct Activation<K: Machine> {
    /// Its own address.
    pub(crate) this: AtomicPtr<Activation<K>>,
    /// 1 while it is inside the runtime: events are deferred. See [`Vessels::set_inside`](crate::kernel::Vessels::set_inside).
    pub(crate) inside: AtomicU32,
    /// Bits of [`Activation::RESCHEDULE`] and [`Activation::DEFERRED`] that wait for it to leave.
    pub(crate) attention: AtomicU32,
    /// The thread it runs.
    pub(crate) thread: Slot<Thread<K>>,
    pub(crate) vp: Slot<Vp<K>>,
    /// Where its own stack begins: the runtime runs there whenever no thread does.
    pub(crate) stack: AtomicUsize,
    /// The processor's [`arch::Control`] while no thread runs: that of the last one.
    pub(crate) control: AtomicU64,
    /// The runtime it belongs to: see [`Activation::runtime`](Activation#method.runtime).
    pub(crate) runtime: Fixed,

    /// Counts wake-ups; it sleeps on this word.
    pub(crate) wake: AtomicU32,
    activity: AtomicEnum<Activity>,
    /// How many have replaced it while it was blocked, or are about to try. The mark of the one that has is
    /// there until it comes back.
    pub(crate) marks: AtomicU32,
    /// It never ends: the kernel keeps something with its kernel thread that would go with it.
    pub(crate) stays: AtomicBool,
    /// Link in the one list that holds it (displaced, unsettled, spares, ended, free).
    pub(crate) next: Slot<Activation<K>>,
    /// Of an heir: the owner whose virtual processor it was given, until one of the two arrives.
    pub(crate) bequest: Slot<Activation<K>>,
    /// Link in the list of all activations, which only grows.
    pub(crate) next_known: Slot<Activation<K>>,

    /// What the backend keeps with the activation.
    pub kernel: K::ActivationState,
}

impl<K: Machine> Activation<K> {
    /// Offset of the word that holds the activation's own address.
    pub const OFFSET_THIS: usize = core::mem::offset_of!(Activation<K>, this);
    /// Offset of the 32-bit word that is 1 while the activation is inside the runtime.
    pub const OFFSET_INSIDE: usize = core::mem::offset_of!(Activation<K>, inside);
    /// Offset of the pointer to the thread that the activation runs.
    pub const OFFSET_THREAD: usize = core::mem::offset_of!(Activation<K>, thread);
    /// Offset of the 32-bit word of events that wait for it to leave the runtime.
    pub const OFFSET_ATTENTION: usize = core::mem::offset_of!(Activation<K>, attention);
    /// Offset of the pointer to its virtual processor.
    pub const OFFSET_VP: usize = core::mem::offset_of!(Activation<K>, vp);
    /// Offset of the 32-bit word with the number of its [`Activity`].
    pub const OFFSET_ACTIVITY: usize = core::mem::offset_of!(Activation<K>, activity);
    /// Offset of the 32-bit word that is not 0 from when it was replaced while blocked until it comes back.
    pub const OFFSET_MARKS: usize = core::mem::offset_of!(Activation<K>, marks);

    /// Attention: the time slice ended or the processor was taken.
    pub const RESCHEDULE: u32 = 1;
    /// Attention: the backend deferred events of its own.
    pub const DEFERRED: u32 = 2;

    /// The thread it carries, if any.
    #[inline]
    pub fn thread(&self) -> Option<&'static Thread<K>> {
        self.thread.get(Ordering::Relaxed)
    }

    /// The virtual processor it belongs to. Not of one that was never started.
    #[inline]
    pub fn vp(&self) -> &'static Vp<K> {
        let vp = self.vp.get(Ordering::Relaxed);
        // SAFETY: the caller that starts an activation gives it a virtual processor before; it gets others later, never
        // none. A caller that reaches one has it from its kernel thread, or from what started ones are put into.
        unsafe { vp.unwrap_unchecked() }
    }

    /// What it is doing now.
    #[inline]
    pub fn activity(&self) -> Activity {
        self.activity.load(Ordering::Acquire)
    }

    /// Changes what it is doing from exactly `from`. Returns whether it did. SeqCst: an idle owner rests
    /// before it looks whether it was replaced; its successor looks afterwards whether it rests.
    pub(crate) fn change_activity(&self, from: Activity, to: Activity) -> bool {
        self.activity
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    pub(crate) fn set_activity(&self, activity: Activity) {
        // Release: pairs with the Acquire in `activity`.
        self.activity.store(activity, Ordering::Release);
    }

    /// The top of its own stack.
    pub fn stack_top(&self) -> usize {
        self.stack.load(Ordering::Relaxed)
    }

    /// Its own stack, without the guard. Nothing is kept there while a thread runs.
    pub fn own_stack(&self) -> Range<usize> {
        let top = self.stack_top();
        top - (ACTIVATION_STACK - stack::PAGE)..top
    }

    /// The count that [`Vessels::sleep`](crate::kernel::Vessels::sleep) compares.
    pub fn wake_word(&self) -> &AtomicU32 {
        &self.wake
    }

    /// Returns true if it is inside the runtime now. Only its own event handlers may rely on the answer, and who has made it
    /// pass a barrier ([`Machine::pass_barriers`]).
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Relaxed) != 0
    }

    /// Takes the notes that were left.
    #[inline]
    pub(crate) fn take_attention(&self) -> u32 {
        if self.attention.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.attention.swap(0, Ordering::SeqCst)
    }

    /// Returns true if it was asked to choose again.
    #[inline]
    pub(crate) fn is_to_choose(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & Self::RESCHEDULE != 0
    }

    /// Leaves a note for the moment when the activation leaves the runtime.
    pub fn attend(&self, what: u32) {
        self.attention.fetch_or(what, Ordering::SeqCst);
    }

    /// Returns true if there are notes that it has not attended to.
    pub fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::SeqCst) != 0
    }

    /// Returns true if it owns its virtual processor and is in a system call of its thread. Also true for
    /// one that was replaced while it was in one, because it has not looked since.
    pub fn is_in_call(&self) -> bool {
        self.activity.load(Ordering::Relaxed) == Activity::InCall
    }

    /// Returns true if it was replaced while blocked and has not come back yet, or somebody is about to replace it.
    pub fn is_absent(&self) -> bool {
        self.marks.load(Ordering::Acquire) != 0
    }

    /// Returns true if it was replaced outside of any announced call, and the activation that runs instead
    /// has not told it yet.
    pub fn is_unsettled(&'static self) -> bool {
        self.activity() == Activity::Unsettled
            || self
                .vp()
                .word()
                .owner()
                .bequest
                .holds(self, Ordering::Relaxed)
    }

    /// Keeps it from ending although it may be superfluous.
    pub fn stay(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    /// Returns true if it never ends.
    pub(crate) fn stays(&self) -> bool {
        self.stays.load(Ordering::Relaxed)
    }
}

impl<K: Machine> Linked for Activation<K> {
    #[inline(always)]
    fn after(&self) -> &Slot<Self> {
        &self.next
    }
}

impl<K: Machine> Recycled for Activation<K> {
    fn map<Any: Machine>(kernel: &Any, length: usize) -> Result<NonNull<u8>, Errno> {
        kernel.map_activations(length)
    }

    fn initial() -> Self {
        Activation {
            this: AtomicPtr::new(core::ptr::null_mut()),
            inside: AtomicU32::new(1),
            attention: AtomicU32::new(0),
            thread: Slot::empty(),
            vp: Slot::empty(),
            stack: AtomicUsize::new(0),
            control: AtomicU64::new(0),
            runtime: Fixed(UnsafeCell::new(core::ptr::null())),
            wake: AtomicU32::new(0),
            activity: AtomicEnum::new(Activity::Reserved),
            marks: AtomicU32::new(0),
            stays: AtomicBool::new(false),
            next: Slot::empty(),
            bequest: Slot::empty(),
            next_known: Slot::empty(),
            kernel: K::ActivationState::default(),
        }
    }
}
