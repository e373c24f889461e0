//! Makes a process ready for threads: with the first one, or before something after which that could not be done.
//!
//! At start only the sites of *early* calls are rewritten ([`is_early`](crate::call::table::is_early)), so that a program
//! that never makes a thread pays nearly nothing. All else that only threads need waits until one of these calls:
//!
//! - clone(2) for a thread, or for a process that shares the memory;
//! - a filter, another root or namespace, sealed memory, less memory: what was left at start could not be done afterwards.
//!   It needs no right, so a process may drop any;
//! - one for which the runtime is started;
//! - one of many that dispatch has trapped at the sites that are left.
//!
//! There is one kernel thread, and all its signals are blocked meanwhile. But it may be in handlers of the program, and
//! what each of them has interrupted may be the middle of a window: a signal that ends a system call stops the thread right
//! behind the instruction, or at it if the call is made again. So when such a handler returns, its frame is made to go on in
//! the stub (`rewrite::patch::replaced`). A frame that the program keeps or makes itself (setjmp, ucontext) is at a call of a
//! function, which is in no window. See docs/adr/0032.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::ground::state::{self, GUEST};
use crate::ground::{caller, heap, mask};
use crate::process::loads;
use crate::signal::{self, dispatch};
use crate::thread::{agents, lifetime, spin};

/// Makes it ready, once.
pub fn make() {
    if state::become_ready() {
        // A SIGSYS, which `mask::ALL` leaves open for calls that a filter traps, waits meanwhile if somebody sends it.
        GUEST.starting.store(true, Ordering::Relaxed);
        let before = mask::change_kernel_mask(mask::ALL);
        dispatch::without(|| loads::on_stack(rest));
        GUEST.starting.store(false, Ordering::Relaxed);
        mask::set_kernel_mask(before);
        // Dispatch may only be on while SIGSYS is open.
        dispatch::refused(REFUSED.load(Ordering::Relaxed));
    }
}

/// Sites that the rewriter has refused in [`rest`].
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// True until the best probe was looked for: before the program can be without procfs, or under a filter.
static LOOKS_FOR_PROBE: AtomicBool = AtomicBool::new(false);

/// Has the best probe looked for when the process is made ready.
pub fn look_for_probe() {
    LOOKS_FOR_PROBE.store(true, Ordering::Relaxed);
}

extern "C" fn rest() {
    // SAFETY: the calling thread's own errno.
    let errno = unsafe { *libc::__errno_location() };
    if LOOKS_FOR_PROBE.swap(false, Ordering::Relaxed) {
        GUEST.probe.store(super::best_probe(), Ordering::Relaxed);
    }
    signal::inherit_rest();
    caller::prepare();
    lifetime::note_libc();
    spin::prepare();
    agents::imports::look();
    REFUSED.store(loads::patch_rest(), Ordering::Relaxed);
    heap::trim();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
