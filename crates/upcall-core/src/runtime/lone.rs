//! Waiting alone: the only thread that waits for a word hangs in the word itself.
//!
//! What waits for a word hangs in a bucket (`futex.rs`), because a word has no room for a queue. It has room for one
//! thread, and mostly there is one. Then the word says to the thread that changes it whom it has to wake: it hands over by
//! one compare-and-swap what the other one waits for, which has nothing to look at when it runs again. A second one that
//! comes to wait moves the first one into the bucket, and both go on as ever.
//!
//! The word belongs to the layer above. Its contents with [`LONE`] are made here, and have the address of the thread that
//! hangs there. Who changes the word from such a content by a compare-and-swap has that thread: nobody else makes it ready.
//! It is `Queued`, which [`Thread::claim`] leaves alone.
//!
//! The word may be gone as soon as the thread runs again. So a caller that interrupts the thread, and does not come from the
//! word, *pins* it first:
//! 1. It counts itself in `pins`, and looks then if the thread hangs in a word.
//! 2. Who has taken the thread notes in the thread that it does not hang there any more, before it makes it ready.
//! 3. The thread looks at `pins` when it runs again, and goes on when there are none.
//!
//! So the one that interrupts sees the note, or the thread waits for it.
//!
//! Approach rejected: one word in the thread that decides, so that nobody has to look at the other word from the thread.
//! It takes a locked instruction more.

use core::sync::atomic::Ordering;

use crate::kernel::Kernel;
use crate::lock::spin;
use crate::machine::Machine;
use crate::runtime::{Runtime, Transition};
use crate::state::inside::{Entered, Inside};
use crate::state::ready::By;
use crate::state::thread::{Claim, Phase, Thread};
use crate::state::vp::Vp;
use crate::state::wait::Wait;
use crate::sync::{AtomicU64, fence_after_locked};

/// Set in a word in which a thread hangs. What else a word may be is below it.
pub const LONE: u64 = 1 << 63;

/// The mask of a thread that hangs in a word, or was taken from there by who hands over. None that hangs in a bucket has it.
const IN_WORD: u32 = 0;
/// The mask of one that was taken from there for another reason, or did not get there.
const AGAIN: u32 = 1;
/// The mask of one that was moved into a bucket.
pub(super) const MOVED: u32 = u32::MAX;

/// How a wait alone ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lone {
    /// Somebody has handed over what the thread waited for.
    Handed,
    /// A second one came to wait, and has moved the thread into the bucket. There it was woken, or something for itself came.
    /// The word is as that one has left it.
    Moved,
    /// Something for the thread itself came, or the word was another one when the thread was about to hang there. It does not.
    Again,
}

fn content<K: Machine>(thread: &'static Thread<K>) -> u64 {
    core::ptr::from_ref(thread) as u64 | LONE
}

/// # Safety
///
/// The address of a word for a wait alone, which is there now.
unsafe fn word_at(address: usize) -> &'static AtomicU64 {
    // SAFETY: the caller's promise. It is not used for longer.
    unsafe { &*(address as *const AtomicU64) }
}

/// Takes the thread that hangs in the word with this content, and changes the word. The thread is the caller's then.
///
/// # Safety
///
/// `content` was found in the word, and has [`LONE`].
unsafe fn take<K: Machine>(
    word: &AtomicU64,
    content: u64,
    becomes: u64,
) -> Option<&'static Thread<K>> {
    // Acquire: the thread is saved, or what the one that was faster has done before. Release: what is handed over. SeqCst:
    // the one that waits looks for a signal afterwards.
    word.compare_exchange(content, becomes, Ordering::SeqCst, Ordering::Acquire)
        .ok()?;
    // SAFETY: made by `content`; memory of threads is there for ever.
    Some(unsafe { &*((content & !LONE) as usize as *const Thread<K>) })
}

/// Called by who has taken the thread, and makes it ready afterwards.
#[inline]
fn released<K: Machine>(thread: &'static Thread<K>, mask: u32) {
    if mask != IN_WORD {
        thread.wait_mask.store(mask, Ordering::Relaxed);
    }
    // Before it is made ready, which takes a locked instruction: see `Thread::await_pins`.
    thread.wait.store(Wait::Nothing, Ordering::Relaxed);
}

/// The thread, which is saved, hangs in the word if that is 0. Returns false if it does not, and goes on.
///
/// # Safety
///
/// The address of such a word, which is there until the thread goes on.
pub(super) unsafe fn hang<K: Kernel>(kernel: &K, thread: &'static Thread<K>, word: usize) -> bool {
    thread.wait_mask.store(IN_WORD, Ordering::Relaxed);
    thread.state.store(Phase::Queued, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    let word = unsafe { word_at(word) };
    // Release: the thread is saved. SeqCst: between the note of what it waits for and the look for a signal.
    let hangs = word
        .compare_exchange(0, content(thread), Ordering::SeqCst, Ordering::Relaxed)
        .is_ok();
    // From here on it may be another one's, and the word gone.
    let hangs = hangs
        && (!kernel.is_interrupted(thread) || interrupt(kernel, thread) != Some(Claim::Ready));
    if !hangs {
        thread.state.store(Phase::Running, Ordering::Relaxed);
        released(thread, AGAIN);
    }
    hangs
}

/// Something has come for a thread that perhaps hangs in a word. `None`: it was moved into a bucket.
#[cold]
pub(super) fn interrupt<K: Machine>(kernel: &K, thread: &'static Thread<K>) -> Option<Claim> {
    let withdrawn = looks(kernel, thread, |address| {
        // SAFETY: the thread does not go on.
        let taken = unsafe { take::<K>(word_at(address), content(thread), 0) };
        taken.is_some()
    });
    if withdrawn == Some(true) {
        released(thread, AGAIN);
        thread.state.store(Phase::Ready, Ordering::Relaxed);
        return Some(Claim::Ready);
    }
    // Who has moved it into a bucket after the look looks for a signal afterwards.
    let is_moved =
        withdrawn.is_none() && matches!(thread.wait.load(Ordering::SeqCst), Wait::Word(_));
    (!is_moved).then_some(Claim::Lost)
}

/// Calls `look` with the address of the word in which the thread hangs, or is about to, if any. The thread does not go on
/// meanwhile.
pub(super) fn looks<K: Machine, R>(
    kernel: &K,
    thread: &'static Thread<K>,
    look: impl FnOnce(usize) -> R,
) -> Option<R> {
    thread.pins.fetch_add(1, Ordering::SeqCst);
    // Pairs with the one in `Thread::await_pins`: who has taken the thread may have used its ready list without the lock.
    if !kernel.pass_barriers() {
        fence_after_locked();
    }
    let result = match thread.wait.load(Ordering::SeqCst) {
        Wait::Alone(address) => Some(look(address)),
        _ => None,
    };
    // Release: the word was looked at before. Pairs with the Acquire in `await_pins`.
    thread.pins.fetch_sub(1, Ordering::Release);
    result
}

impl<K: Machine> Thread<K> {
    /// Called by the thread, which waits no longer.
    #[inline]
    pub(super) fn await_pins(&self, kernel: &K) {
        // It was taken out of a ready list, after it was noted that it does not hang in a word: by a locked instruction, or
        // where `looks` has all pass a barrier.
        fence_after_locked();
        let mut spins = 0;
        while self.pins.load(Ordering::Acquire) != 0 {
            spin(kernel, &mut spins);
        }
    }
}

impl<K: Kernel> Entered<K> {
    /// Parks the current thread in a word that is 0. `then` is called afterwards, on the activation's own stack: with true if
    /// the thread hangs there, which may be over already. If `then` returns false, the thread is not to hang there.
    ///
    /// # Safety
    ///
    /// `word` is the address of an `AtomicU64` that is there until this returns, and that those who use it change as the
    /// module's text says.
    #[inline(always)]
    pub unsafe fn wait_alone(
        self,
        word: usize,
        then: impl FnOnce(bool) -> bool + Copy,
    ) -> (Self, Lone) {
        let runtime = self.runtime();
        let thread = self.parks();
        thread.wait.store(Wait::Alone(word), Ordering::Relaxed);
        runtime.tell(self.vp(), thread, Transition::Blocked);
        let inside = self.park_as::<_, true>(
            thread,
            move |inside, thread, word| {
                let runtime = inside.runtime();
                // SAFETY: the caller's promise.
                let hangs = unsafe { hang(&runtime.kernel, thread, word) };
                let stays = then(hangs);
                if hangs && (stays || interrupt(&runtime.kernel, thread) != Some(Claim::Ready)) {
                    return None;
                }
                runtime.tell(inside.vp(), thread, Transition::Unblocked);
                Some(thread)
            },
            word,
        );
        thread.await_pins(&runtime.kernel);
        let lone = match thread.wait_mask.load(Ordering::Relaxed) {
            IN_WORD => Lone::Handed,
            AGAIN => Lone::Again,
            _ => Lone::Moved,
        };
        (inside, lone)
    }
}

impl<K: Kernel> Inside<K> {
    /// Makes the thread ready that hangs in the word with this content, and the word 0. Returns false if the word was
    /// another one. It is the last access to the word.
    ///
    /// # Safety
    ///
    /// `content` was found in the word, and has [`LONE`].
    #[inline]
    pub unsafe fn hand_over(&self, word: &AtomicU64, content: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            self.runtime()
                .hand_over_on(self.vp(), self.user_of_list(), word, content)
        }
    }

    /// Moves the thread that hangs in the word with this content into the bucket of `key`, and changes the word. Returns
    /// false if the word was another one.
    ///
    /// # Safety
    ///
    /// As [`Inside::hand_over`].
    pub unsafe fn move_lone(
        &self,
        word: &AtomicU64,
        content: u64,
        becomes: u64,
        key: usize,
    ) -> bool {
        let runtime = self.runtime();
        // SAFETY: the caller's promise.
        runtime.hang_taken(self.vp(), key, || unsafe { take(word, content, becomes) })
    }
}

impl<K: Kernel> Runtime<K> {
    #[inline(always)]
    unsafe fn hand_over_on(
        &'static self,
        vp: &'static Vp<K>,
        by: By,
        word: &AtomicU64,
        content: u64,
    ) -> bool {
        // SAFETY: the caller's promise.
        let Some(thread) = (unsafe { take(word, content, 0) }) else {
            return false;
        };
        released(thread, IN_WORD);
        self.make_ready_on(vp, by, thread);
        true
    }

    /// As [`Inside::hand_over`], for a kernel thread that is no activation.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn hand_over_from_outside(&'static self, word: &AtomicU64, content: u64) -> bool {
        let Some(first) = self.vps().first() else {
            return false;
        };
        let vp = self.with_processor(first);
        // SAFETY: the caller's promise.
        let handed = unsafe { self.hand_over_on(vp, By::Others, word, content) };
        if handed {
            self.choose_again(vp, true);
        }
        handed
    }

    /// As [`Inside::move_lone`], for a kernel thread that is no activation.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn move_lone_from_outside(
        &'static self,
        word: &AtomicU64,
        content: u64,
        becomes: u64,
        key: usize,
    ) -> bool {
        let Some(first) = self.vps().first() else {
            return false;
        };
        let vp = self.with_processor(first);
        // SAFETY: the caller's promise.
        self.hang_taken(vp, key, || unsafe { take(word, content, becomes) })
    }
}
