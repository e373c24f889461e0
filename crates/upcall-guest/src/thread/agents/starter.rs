//! The starter: an agent of no thread, which starts kernel threads for those that are no activations.
//!
//! A kernel thread inherits what the kernel keeps with its creator: identity, filters, nice value, policy and the rest (ADR
//! 21). Activations carry any thread, so they must have what the process has. But it may be a bound thread's kernel thread,
//! or a helper, that makes a thread ready and finds that an activation is needed. So before the first of these comes there
//! is a starter, which has what the activations have and keeps it, as any agent.
//!
//! Orders are given one at a time: while [`STARTS`](upcall_linux::spawn::STARTS) is held. A process that shares the memory, made by vfork, makes no
//! starter come; without one it is refused.

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use upcall_core::Errno;
use upcall_linux::{Runtime, base, clone};

use crate::ground::state::GUEST;
use crate::ground::{caller, kernel_futex};

use super::{ASKED, Agent, IDLE, begin};

static STARTER: AtomicPtr<Agent> = AtomicPtr::new(core::ptr::null_mut());

/// Whether the program has started something outside, perhaps before there was a runtime.
static EXPECTED: AtomicBool = AtomicBool::new(false);

/// Returns it, if there is one.
fn get() -> Option<&'static Agent> {
    // SAFETY: null, or an agent, whose memory is there for ever.
    unsafe { STARTER.load(Ordering::Acquire).as_ref() }
}

/// Called in the child of a fork: it is its parent's.
pub fn forget() {
    STARTER.store(core::ptr::null_mut(), Ordering::Relaxed);
    EXPECTED.store(false, Ordering::Relaxed);
}

/// Makes sure that there is a starter. Called by an activation inside the runtime; by others only when there is one.
///
/// # Errors
///
/// The kernel's error when it gives no memory or no kernel thread.
pub fn need_starter(runtime: &'static Runtime) -> Result<(), Errno> {
    if get().is_some() {
        return Ok(());
    }
    let agent = begin(runtime)?;
    let address = core::ptr::from_ref(agent).cast_mut();
    // Release: pairs with the Acquire in `get`.
    let (set, get) = (Ordering::Release, Ordering::Relaxed);
    let none = core::ptr::null_mut();
    if STARTER.compare_exchange(none, address, set, get).is_err() {
        // Another thread was quicker.
        agent.end(runtime);
    }
    Ok(())
}

/// As [`need_starter`], before the program starts a kernel thread that is no activation, or a process that shares the
/// memory and does not keep its parent waiting. Both may wake threads of this process.
///
/// # Errors
///
/// As [`need_starter`].
pub fn expect_outsider() -> Result<(), Errno> {
    EXPECTED.store(true, Ordering::Relaxed);
    // What is outside already has had a starter made. Without a runtime that follows in `need_first_starter`.
    let Some(runtime) = caller::runtime() else {
        return Ok(());
    };
    let inside = runtime.enter();
    let result = need_starter(runtime);
    inside.leave();
    result
}

/// As [`need_starter`], before the first activation, for what the program has started before.
///
/// # Errors
///
/// As [`need_starter`].
pub fn need_first_starter(runtime: &'static Runtime) -> Result<(), Errno> {
    match EXPECTED.load(Ordering::Relaxed) {
        true => need_starter(runtime),
        false => Ok(()),
    }
}

/// Who starts a kernel thread in place of the calling one. See [`upcall_linux::Hooks::starter`].
pub fn starter() -> Option<clone::Starter> {
    let is_activation = GUEST.runtime().is_none()
        || (base::is_set() && {
            // SAFETY: the pseudo-register is set.
            let own = unsafe { base::current() };
            !caller::is_mark(own) && !caller::is_outside()
        });
    (!is_activation).then_some(order)
}

/// Has the starter start a kernel thread, while nobody else starts one. Returns its id, or the kernel's negative error.
///
/// # Safety
///
/// As [`clone::Start::make`].
unsafe fn order(new: &clone::Start) -> isize {
    let Some(agent) = get() else {
        return -(libc::EAGAIN as isize);
    };
    let words = [
        new.stack,
        new.tid,
        new.thread_pointer,
        new.begin as usize,
        new.argument,
    ];
    let [stack, tid, pointer, begin, argument] = words.map(|word| word as u64);
    agent.put([
        libc::SYS_clone as u64,
        stack,
        tid,
        pointer,
        begin,
        argument,
        0,
    ]);
    // Acquire: pairs with the Release in `serve`.
    while agent.state.load(Ordering::Acquire) == ASKED {
        kernel_futex::wait_kernel(&agent.state, ASKED);
    }
    let answer = agent.answer.load(Ordering::Relaxed);
    agent.state.store(IDLE, Ordering::Relaxed);
    answer as isize
}

/// On the starter: does what [`order`] has left.
///
/// # Safety
///
/// The words are an order's.
pub unsafe fn obey(words: [u64; 6]) -> i64 {
    let [stack, tid, thread_pointer, begin, argument, _] = words.map(|word| word as usize);
    // SAFETY: `order` made a word of this function.
    let begin = unsafe { core::mem::transmute::<usize, extern "C" fn(usize) -> !>(begin) };
    let new = clone::Start {
        stack,
        tid,
        thread_pointer,
        begin,
        argument,
    };
    // SAFETY: the caller of `order` has promised it.
    unsafe { new.make() as i64 }
}
