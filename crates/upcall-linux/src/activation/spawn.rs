//! Starts kernel threads for activations. It uses clone(2) without libc, so that libc allocates nothing.

use core::sync::atomic::{AtomicI32, Ordering};

use upcall_core::kernel::Vessels;
use upcall_core::{Errno, SpinLock};

use crate::activation::preempt;
use crate::state::{Activation, Inside, Runtime, base};
use crate::sys::{self, arch, error};

/// Exactly what the C library asks for: there are filters that let nothing else through.
pub const FLAGS: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID;

static ALL_SIGNALS: u64 = !0;
/// What is blocked while a kernel thread begins. The kernel ends a process in which a filter traps a call while
/// SIGSYS is blocked.
pub const BLOCKED: u64 = !(1 << (libc::SIGSYS - 1));

/// Held while a kernel thread is started: a new one inherits what its creator has at that moment.
pub static STARTS: SpinLock<()> = SpinLock::new(());

/// Starts the kernel thread of `activation` on its own stack.
pub(crate) fn spawn(activation: &'static Activation) -> Result<(), Errno> {
    // SAFETY: the stack is the activation's own and free; the id word lives as long as the
    // activation; `begin` does not return.
    unsafe {
        start(
            activation.runtime(),
            (activation.stack_top(), &activation.kernel.tid),
            (begin, core::ptr::from_ref(activation) as usize),
            || preempt::note_call(activation),
        )
    }
}

/// Starts a kernel thread of the runtime's own that is no activation: at `begin(argument)`, with the signals in [`BLOCKED`] blocked. Its
/// id is in `tid` when this returns, and until it is gone.
///
/// # Errors
///
/// The kernel's.
///
/// # Safety
///
/// The stack that ends at `stack` is writable and free; `begin` does not return; `tid` is there for as long.
pub unsafe fn start_aside(
    inside: &Inside,
    stack: usize,
    tid: &AtomicI32,
    begin: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<(), Errno> {
    // SAFETY: the caller's conditions.
    unsafe { start(inside.runtime(), (stack, tid), (begin, argument), || {}) }
}

/// Starts a kernel thread; `prepare` is called when none other is being started.
///
/// # Safety
///
/// As [`start_aside`].
unsafe fn start(
    runtime: &'static Runtime,
    (stack, tid): (usize, &AtomicI32),
    (begin, argument): (extern "C" fn(usize) -> !, usize),
    prepare: impl FnOnce(),
) -> Result<(), Errno> {
    // Before the signals are blocked: the thread that holds the lock may wait for this activation's handler.
    let guard = STARTS.lock(runtime.kernel());
    prepare();
    // The child starts with the signals blocked: its pseudo-register is not set yet.
    let before = sys::set_signal_mask(BLOCKED);
    let tid = tid.as_ptr() as usize;
    // SAFETY: the caller's conditions.
    let answer = unsafe { start_kernel_thread(FLAGS as usize, stack, tid, begin, argument) };
    sys::set_signal_mask(before);
    drop(guard);
    match error(answer) {
        Some(number) => Err(Errno(number)),
        None => Ok(()),
    }
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

/// Starts a kernel thread that is no activation: at `begin(argument)` on the stack that ends at
/// `stack`. Returns its id, or the kernel's negative error.
///
/// # Safety
///
/// The stack is writable and free; `begin` does not return; the id addresses are the caller's.
pub unsafe fn clone_raw(
    flags: usize,
    stack: usize,
    parent_tid: usize,
    child_tid: usize,
    tls: usize,
    begin: extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    let words = [parent_tid, child_tid, tls, begin as usize, argument];
    // SAFETY: the caller's conditions.
    unsafe { arch::clone(flags, stack & !15, &words) }
}

/// [`clone_raw`] on behalf of the runtime. The thread pointer, which no code uses before a thread has its own, leads
/// to the activation: it is no thread's.
///
/// # Safety
///
/// As [`clone_raw`].
#[cfg_attr(feature = "inject", track_caller)]
unsafe fn start_kernel_thread(
    flags: usize,
    stack: usize,
    tid: usize,
    begin: extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    #[cfg(feature = "inject")]
    if let Some(answer) =
        crate::sys::inject::answer(libc::SYS_clone, &[flags, stack, tid, tid, 0, 0])
    {
        return answer;
    }
    // SAFETY: the caller's conditions.
    unsafe { clone_raw(flags, stack, tid, tid, argument, begin, argument) }
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
