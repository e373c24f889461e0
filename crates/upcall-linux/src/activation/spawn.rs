//! Starts kernel threads for activations. It uses clone(2) without libc, so that libc allocates nothing.

use core::sync::atomic::Ordering;

use upcall_core::kernel::Vessels;
use upcall_core::{Errno, SpinLock};

use crate::activation::preempt;
use crate::state::{Activation, Runtime, base, kernel_slices};
use crate::sys::clone::Start;
use crate::sys::{self, error};

static ALL_SIGNALS: u64 = !0;
/// What is blocked while a kernel thread begins. The kernel ends a process in which a filter traps a call while
/// SIGSYS is blocked.
pub const BLOCKED: u64 = !(1 << (libc::SIGSYS - 1));

/// Held while a kernel thread is started: a new one inherits what its creator has at that moment.
pub static STARTS: SpinLock<()> = SpinLock::new(());

/// Starts the kernel thread of `activation` on its own stack.
pub(crate) fn spawn(activation: &'static Activation) -> Result<(), Errno> {
    let argument = core::ptr::from_ref(activation) as usize;
    let new = Start {
        stack: activation.stack_top(),
        tid: activation.kernel.tid.as_ptr() as usize,
        thread_pointer: argument,
        begin,
        argument,
    };
    // SAFETY: the stack is the activation's own and free; the id word lives as long as the activation.
    unsafe {
        start(activation.runtime(), &new, || {
            preempt::note_call(activation)
        })
    }
}

/// Starts a kernel thread with the signals in [`BLOCKED`] blocked, and with what the kernel keeps with activations: if the
/// caller is none, [`Hooks::starter`](crate::Hooks::starter) may name another that does it. `prepare` is called when none
/// other is being started.
///
/// # Errors
///
/// The kernel's.
///
/// # Safety
///
/// As [`Start::make`].
#[cfg_attr(feature = "inject", track_caller)]
pub unsafe fn start(
    runtime: &'static Runtime,
    new: &Start,
    prepare: impl FnOnce(),
) -> Result<(), Errno> {
    kernel_slices::pass_none_on();
    // Before the signals are blocked: the thread that holds the lock may wait for this activation's handler.
    let guard = STARTS.lock(runtime.kernel());
    prepare();
    // SAFETY: the caller's conditions.
    let answer = unsafe { start_alone(runtime, new) };
    drop(guard);
    match error(answer) {
        Some(number) => Err(Errno(number)),
        None => Ok(()),
    }
}

/// As [`start`], when none other is being started.
///
/// # Safety
///
/// As [`Start::make`].
#[cfg_attr(feature = "inject", track_caller)]
unsafe fn start_alone(runtime: &'static Runtime, new: &Start) -> isize {
    #[cfg(feature = "inject")]
    if let Some(answer) = crate::sys::inject::answer(
        libc::SYS_clone,
        &[
            crate::sys::clone::FLAGS as usize,
            new.stack,
            new.tid,
            new.tid,
            0,
            0,
        ],
    ) {
        return answer;
    }
    if let Some(starter) = (runtime.kernel().settings.hooks.starter)() {
        // SAFETY: the caller's conditions.
        return unsafe { starter(new) };
    }
    // The child starts with the signals blocked: its pseudo-register is not set yet.
    let before = sys::set_signal_mask(BLOCKED);
    // SAFETY: the caller's conditions.
    let answer = unsafe { new.make() };
    sys::set_signal_mask(before);
    answer
}

extern "C" fn begin(activation: usize) -> ! {
    // SAFETY: `spawn` passes its activation.
    let activation = unsafe { &*(activation as *const Activation) };
    base::rest(activation);
    base::set(Some(activation));
    let kernel = activation.runtime().kernel();
    let state = &activation.kernel;
    state.forget_kernel_state(base::thread_pointer());
    kernel.set_inside();
    if state.sentinel.load(Ordering::Relaxed) {
        become_sentinel();
    }
    kernel.begin(activation);
    kernel.set_mask(activation, ALL_SIGNALS);
    // SAFETY: this is its kernel thread, on its stack.
    unsafe { activation.main() }
}

/// Moves the calling kernel thread to the idle scheduling class, which needs no privilege.
pub(crate) fn become_sentinel() {
    const SYS_SCHED_SETSCHEDULER: i64 = libc::SYS_sched_setscheduler;
    let parameter = 0i32;
    // SAFETY: reads one word.
    unsafe {
        sys!(
            SYS_SCHED_SETSCHEDULER,
            0,
            libc::SCHED_IDLE,
            &raw const parameter
        )
    };
}
