//! Decides when Syscall User Dispatch ([`sud`]) is on: from the moment at which the process may hold system-call
//! instructions that are not rewritten, and never before. See docs/adr/0020.
//!
//! - At start, if the rewriter refused a site ([`crate::rewrite::patch`]).
//! - Before the program gets an executable mapping that nobody can rewrite (code made at run time), and after a library was
//!   loaded with a refused site ([`crate::process::loads`]).
//!
//! A process that is not ready for threads has its late sites trapped, too. That is cheaper for few calls than to make it ready,
//! and after [`MANY`] of them it is made so. See docs/adr/0032.
//!
//! Only a child that asks to be traced switches it off again ([`end`]). Invariant: while [`is_on`], every kernel thread
//! that runs code of the program has it on and does not block SIGSYS meanwhile ([`preempt::OWN`],
//! [`mod@crate::signal::alone`]). The kernel gives it to no new kernel thread and to no child of fork, so:
//!
//! | kernel thread | switches it on |
//! |---|---|
//! | the one that asks | [`turn_on`] |
//! | activations that exist | in the handler of the runtime's own signal, before `turn_on` returns |
//! | activations that begin later | [`begin`], if their creator [`may_start`] them |
//! | the child of fork; a process that was made ready | [`again`] |
//! | helpers | as activations; not those that exist already |
//! | the child of vfork, posix_spawn | never: it is about to exec, which switches it off |
//!
//! Where the kernel lacks it or a filter forbids it, the program goes on without, and `--stats` and `doctor` tell so. A
//! filter that comes later than dispatch applies to kernel threads that begin afterwards. One of them without dispatch
//! would end for ever with the first thread that calls exit(2) on it, unseen. So the creator asks first, for itself: the
//! new one has its filters.
//!
//! Rejected: to start it and wait for its result, because the creator holds locks of the runtime. Rejected: to switch
//! dispatch on with the runtime, at the first thread. Until then only rt_sigaction(2) and clone(2) must be seen, but a
//! program without a C library under its own threads makes just these.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use upcall_core::{Errno, Machine};
use upcall_linux::preempt;

use crate::ground::state::{self, GUEST};
use crate::ground::{caller, mask};
use crate::rewrite::sud;
use crate::signal::{self, alone, everywhere};

/// So many trapped calls cost half of what it costs to make a process ready, or less: its late sites are rewritten then.
const MANY: u64 = 128;

static ON: AtomicBool = AtomicBool::new(false);
/// The error number that keeps it off although it should be on.
static FAILED: AtomicI32 = AtomicI32::new(0);
/// Sites that the rewriter refused.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// Returns true if system calls outside the rewritten sites are caught.
#[inline]
pub fn is_on() -> bool {
    // Acquire: pairs with the Release in `turn_on`.
    ON.load(Ordering::Acquire)
}

/// Returns the number of refused sites and, if dispatch should be on but cannot, the error number.
pub fn state() -> (u32, Option<i32>) {
    let failed = FAILED.load(Ordering::Relaxed);
    (
        REFUSED.load(Ordering::Relaxed),
        (failed != 0).then_some(failed),
    )
}

/// Called when the rewriter has refused this many sites that can make a system call.
///
/// # Upcall safety
///
/// As [`turn_on`].
pub fn refused(sites: usize) {
    if sites > 0 {
        REFUSED.fetch_add(sites as u32, Ordering::Relaxed);
        turn_on();
    }
}

/// Switches dispatch on for the process. Afterwards every activation has it.
///
/// # Upcall safety
///
/// In program context: it waits until each activation has answered a signal.
pub fn turn_on() {
    if is_on() || FAILED.load(Ordering::Relaxed) != 0 {
        return;
    }
    // The loader comes here, too, with the program's register.
    let entered = caller::enter();
    signal::take_over(libc::SIGSYS);
    // Release: pairs with the Acquire in `is_on`. From here on new activations do it themselves.
    ON.store(true, Ordering::Release);
    alone::begin();
    // Here first: if it does not work here, it works nowhere.
    let done = match GUEST.runtime() {
        Some(runtime) => sud::outcome(everywhere::everywhere(runtime, sud::request()) as isize),
        None => sud::enable(),
    };
    if let Err(unavailable) = done {
        give_up(unavailable);
    }
    caller::leave(entered);
}

/// Lets the process go on without it.
fn give_up(sud::Unavailable { errno }: sud::Unavailable) {
    FAILED.store(errno, Ordering::Relaxed);
    ON.store(false, Ordering::Release);
    alone::end();
}

/// Called when the calling process, which has no runtime, asks to be traced. Its tracer would meet a SIGSYS at each call.
/// It is the child of a fork and about to exec.
pub fn end() {
    if sud::disable().is_ok() {
        ON.store(false, Ordering::Release);
    }
}

/// Called before the caller starts a kernel thread that will run code of the program.
///
/// # Errors
///
/// EAGAIN: that one could not have its system calls dispatched.
pub fn may_start() -> Result<(), Errno> {
    if is_on() && sud::enable().is_err() {
        return Err(Errno(libc::EAGAIN));
    }
    Ok(())
}

/// Called when a kernel thread begins that will run code of the program; its creator [`may_start`] it.
pub fn begin() {
    if is_on()
        && sud::enable_as_creator().is_err()
        && let Some(runtime) = GUEST.runtime()
    {
        let kernel = runtime.kernel();
        kernel.broken("a kernel thread cannot have dispatched what its creator can");
    }
}

/// Returns true if calls are trapped in a process that is not ready for threads, and were so often that it pays to make it so.
#[inline]
pub fn traps_often() -> bool {
    is_on() && !state::is_ready() && sud::trapped() >= MANY
}

/// Makes calls of libc by the runtime, in a process without a runtime, which must not be dispatched.
pub fn without(act: impl FnOnce()) {
    if !is_on() {
        return act();
    }
    let _ = sud::disable();
    act();
    again();
}

/// Called in the child of fork, and where it was off for a while. A filter may forbid by now what was allowed.
pub fn again() {
    if is_on()
        && let Err(unavailable) = sud::enable()
    {
        give_up(unavailable);
    }
}

/// Returns what a kernel thread without a runtime's mask may block: everything, but SIGSYS while dispatch is on.
pub fn blockable(mask: u64) -> u64 {
    if is_on() {
        mask & !mask::MASK_BIT
    } else {
        mask
    }
}

// The masks of activations leave SIGSYS out by this.
const _: () = assert!(preempt::OWN & mask::MASK_BIT != 0);
