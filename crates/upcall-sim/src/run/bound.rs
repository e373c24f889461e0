//! Ends a loop inside the runtime that reaches no point, which the machine cannot count.
//!
//! A timer on the processor time of the test's kernel thread looks whether the run has reached points since the last look.
//! If not, the handler ends the run from where the vessel stands, as `stepping` leaves the middle of the runtime. The
//! vessel is never resumed. Vessels in the simulated kernel and the machine itself are left alone: `MOST_POINTS` bounds
//! them.

use std::cell::Cell;

use crate::machine::Machine;

/// Processor time between two looks, in seconds; points take microseconds.
const LOOK_EVERY: i64 = 2;

thread_local! {
    /// The machine that is watched, and its points at the last look.
    static WATCHED: Cell<(*const Machine, u64)> = const { Cell::new((std::ptr::null(), 0)) };
    static STARTED: Cell<bool> = const { Cell::new(false) };
}

/// Watches a machine on the calling kernel thread until [`end`].
pub(super) fn begin(machine: &Machine) {
    WATCHED.set((machine, u64::MAX));
    if STARTED.replace(true) {
        return;
    }
    // SAFETY: valid structures; the handler touches no more than the machine of its own kernel thread.
    // Not deferred and on the vessel's stack: the handler does not return if the run ends in it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = looks as *const () as usize;
        action.sa_flags = libc::SA_NODEFER | libc::SA_RESTART;
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGVTALRM;
        event.sigev_notify_thread_id = libc::gettid();
        let every = libc::timespec {
            tv_sec: LOOK_EVERY,
            tv_nsec: 0,
        };
        let setting = libc::itimerspec {
            it_interval: every,
            it_value: every,
        };
        let mut timer: libc::timer_t = std::mem::zeroed();
        let answers = [
            libc::sigaction(libc::SIGVTALRM, &raw const action, std::ptr::null_mut()),
            libc::timer_create(
                libc::CLOCK_THREAD_CPUTIME_ID,
                &raw mut event,
                &raw mut timer,
            ),
            libc::timer_settime(timer, 0, &raw const setting, std::ptr::null_mut()),
        ];
        assert_eq!(answers, [0; 3], "no timer");
    }
}

/// The run is over.
pub(super) fn end() {
    WATCHED.set((std::ptr::null(), 0));
}

extern "C" fn looks(_: i32) {
    let (machine, before) = WATCHED.get();
    // SAFETY: null, or the machine of the run that is under way on this kernel thread.
    let Some(machine) = (unsafe { machine.as_ref() }) else {
        return;
    };
    let now = machine.reached.get();
    WATCHED.set((machine, now));
    if now == before && machine.is_in_vessel() && !machine.is_quiet() {
        machine.fail(format!(
            "no point in {LOOK_EVERY} seconds of processor time: an endless loop in the runtime"
        ));
    }
}
