//! The runtime's services for a program that links the crate, without a system call.

use core::slice;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use upcall_core::Machine;
use upcall_core::kernel::Vessels;
pub use upcall_core::{LONE, Lone};
use upcall_linux::poller::{Kind, Readiness, Wants, Watch};
use upcall_linux::{Runtime, Thread, base, descriptors};

use crate::call::futex_calls;
use crate::call::io;
use crate::ground::attributes::GuestAttributes;
use crate::ground::caller;
use crate::ground::state::GUEST;
use crate::signal::seen::UNSEEN;

pub use crate::ground::caller::{own_thread, runtime};
pub use crate::ground::hooks::before_barriers_end;

/// Waits until the word is woken, if it holds `expected`, or until `deadline`, in nanoseconds of CLOCK_MONOTONIC. Returns 0
/// if it was woken, else the error number of futex(2).
#[inline]
pub fn wait(
    runtime: &'static Runtime,
    word: &AtomicU32,
    expected: u32,
    deadline: Option<u64>,
) -> i32 {
    let address = word.as_ptr() as usize;
    // The lock under which waiters are woken orders this load with changes of the word.
    let read = || Ok(word.load(Ordering::Relaxed));
    -(futex_calls::wait_for(runtime, address, read, expected, u32::MAX, deadline) as i32)
}

/// The threads that may run while a thread looks at a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Company {
    /// None: there is one virtual processor.
    Alone,
    /// Other threads are, or become, ready on this thread's virtual processor.
    Behind,
    /// None are ready here, but there are other virtual processors.
    Elsewhere,
}

/// Returns which other threads may run meanwhile.
#[inline]
pub fn company(runtime: &'static Runtime) -> Company {
    if runtime.vps().len() == 1 {
        Company::Alone
    } else if runtime.kernel().current().vp().has_ready() {
        // It may belong to another thread by now. Activations and virtual processors are never freed.
        Company::Behind
    } else {
        Company::Elsewhere
    }
}

/// Returns true if other threads are ready on this thread's virtual processor.
#[inline]
pub fn has_company(runtime: &'static Runtime) -> bool {
    // A hint, as in `company`.
    runtime.kernel().current().vp().has_ready()
}

/// Makes every other kernel thread of the process pass a full barrier, as membarrier(2) does. Returns false if the kernel
/// cannot be asked for that: without the runtime, or once the program may have a filter (seccomp(2)).
pub fn pass_barriers() -> bool {
    GUEST
        .runtime()
        .is_some_and(|runtime| runtime.kernel().pass_barriers())
}

/// Returns a word that is not 0 while this thread is bound: it has left the virtual processors for a kernel thread of its
/// own, and perhaps with attributes that other threads have not.
pub fn bound_word(thread: &'static Thread) -> &'static AtomicI32 {
    &thread.guest().outside_tid
}

/// Returns the signal mask of a thread, as a set of 64 signals.
#[inline]
pub fn mask(thread: &'static Thread) -> u64 {
    thread.kernel.mask.load(Ordering::Relaxed)
}

/// Wakes at most `count` waiters of the word, kernel threads among them. Returns how many.
#[inline]
pub fn wake(runtime: &'static Runtime, word: &AtomicU32, count: u32) -> u32 {
    futex_calls::wake(runtime, word.as_ptr() as usize, count, u32::MAX) as u32
}

/// Changes a word and wakes one of its waiters. `change` gets true if a thread of the runtime waits: that thread is woken,
/// or gives up at this moment. `change` returns true if it has changed the word, and this function returns the same. The
/// change may be the last use of the word: nothing reads it afterwards.
#[inline]
pub fn change_and_wake(
    runtime: &'static Runtime,
    word: *const AtomicU32,
    change: impl FnOnce(bool) -> bool,
) -> bool {
    futex_calls::change_and_wake(runtime, word as usize, change)
}

/// Waits in a word that is 0. See [`Entered::wait_alone`](upcall_linux::Entered), also for `then`, which may use no
/// thread-local storage and make no call.
///
/// # Safety
///
/// Those who use the word change it as said there.
#[inline]
pub unsafe fn wait_alone(
    runtime: &'static Runtime,
    word: &AtomicU64,
    then: impl FnOnce(bool) -> bool + Copy,
) -> Lone {
    let inside = runtime.enter();
    // SAFETY: the caller's promise; the word is borrowed.
    let (inside, lone) = unsafe { inside.wait_alone(word.as_ptr() as usize, then) };
    inside.leave();
    lone
}

/// Wakes the thread that waits in the word with this content, and makes the word 0. Returns false if the word was another
/// one. `runtime` is that of the process; the caller may be any kernel thread.
///
/// # Safety
///
/// `content` was found in the word, and has [`LONE`].
#[inline]
pub unsafe fn hand_over(runtime: &'static Runtime, word: &AtomicU64, content: u64) -> bool {
    if caller::is_outside() {
        // SAFETY: the caller's promise.
        return caller::outside_with(|| unsafe { runtime.hand_over_from_outside(word, content) });
    }
    let inside = runtime.enter();
    // SAFETY: the caller's promise.
    let handed = unsafe { inside.hand_over(word, content) };
    inside.leave();
    handed
}

/// Lets the thread that waits in the word with this content wait as [`wait`] does, for the word at `key`. Changes the word.
/// Returns false if it was another one.
///
/// # Safety
///
/// As [`hand_over`].
pub unsafe fn move_lone(
    runtime: &'static Runtime,
    word: &AtomicU64,
    content: u64,
    becomes: u64,
    key: &AtomicU32,
) -> bool {
    let key = key.as_ptr() as usize;
    if caller::is_outside() {
        // SAFETY: the caller's promise.
        return caller::outside_with(|| unsafe {
            runtime.move_lone_from_outside(word, content, becomes, key)
        });
    }
    let inside = runtime.enter();
    // SAFETY: the caller's promise.
    let moved = unsafe { inside.move_lone(word, content, becomes, key) };
    inside.leave();
    moved
}

/// Returns the runtime of the process, if it has one.
pub fn runtime_of_process() -> Option<&'static Runtime> {
    GUEST.runtime()
}

/// A wait for a descriptor that is in non-blocking mode, before the call on it is tried.
pub struct Wait {
    runtime: &'static Runtime,
    watch: Watch,
}

impl Wait {
    /// Waits for something to read, or with `out` for room to write.
    #[inline]
    pub fn new(runtime: &'static Runtime, descriptor: i32, out: bool) -> Self {
        let wants = if out { Wants::OUT } else { Wants::IN };
        let watch = runtime.kernel().poller().watch(descriptor, wants);
        Wait { runtime, watch }
    }

    /// Returns how many edges the descriptor had seen, if all of them meant only that there is something to read or room to
    /// write, and no socket of the program has a protocol on top of its own (TCP_ULP).
    #[inline]
    pub fn plain_edges(&self) -> Option<u32> {
        let poller = self.runtime.kernel().poller();
        let are_plain = poller.is_plain(&self.watch) && !io::is_layered();
        are_plain.then_some(self.watch.seen())
    }

    /// Called when the call would have blocked. Parks until there is something new, the deadline (nanoseconds of
    /// CLOCK_MONOTONIC) has passed, or a handler ran. Returns false, without a wait, where the thread cannot park or had
    /// better block.
    pub fn park(mut self, deadline: Option<u64>) -> bool {
        let Wait { runtime, .. } = self;
        // A hint: the thread may be on another activation next.
        // SAFETY: on an activation.
        let blocks = unsafe { base::current() }.prefers_blocking();
        let Some(thread) = caller::current_thread().filter(|_| !blocks) else {
            return false;
        };
        let poller = runtime.kernel().poller();
        // As for a system call: the wait ends for a handler that began before it, and for one in which it is.
        let seen = &thread.kernel.seen;
        let before = seen.swap(UNSEEN, Ordering::Relaxed);
        // Lets a pipe's writers in this process find the thread that waits for it.
        poller.kind(runtime, self.watch.descriptor);
        let ended = poller.wait(runtime, slice::from_mut(&mut self.watch), deadline);
        if before != UNSEEN {
            seen.fetch_max(before, Ordering::Relaxed);
        }
        if let Some(moved) = self.watch.moved {
            descriptors::give_back(moved);
        }
        ended != Readiness::NotPollable
    }
}

/// Called when the caller has written to a pipe. Makes the threads that wait for it here ready at once.
#[inline]
pub fn written(runtime: &'static Runtime, descriptor: i32) {
    let poller = runtime.kernel().poller();
    poller.count_write();
    if poller.kind(runtime, descriptor) == Kind::Pipe {
        poller.written(runtime, descriptor);
    }
}

/// Lets all threads that wait for the descriptor look again.
pub fn end_waits(runtime: &'static Runtime, descriptor: i32) {
    let poller = runtime.kernel().poller();
    if caller::is_outside() {
        poller.disturb_from_outside();
    } else {
        poller.disturb(runtime, descriptor);
    }
}
