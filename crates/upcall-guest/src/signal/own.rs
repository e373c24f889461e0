//! The runtime's own signal ([`preempt`]), in the handler. Also what a frame needs before it continues a thread that was
//! about to wait, and the runtime's own calls that a filter of the program's traps.
//!
//! Where this signal has stopped a thread in its own code, the kernel's frame is the thread's state, which a handler of the
//! program must see. So no handler runs above this frame:
//!
//! 1. The thread is marked `stopped`. It looks at the signals that have come, and may be parked and go on elsewhere.
//! 2. Signals that come for it meanwhile are kept with it (`deferred`, `on_signal`).
//! 3. At the end all signals are blocked, and the first waiting one is queued to the kernel thread that carries the thread
//!    by now. The kernel delivers it when this frame returns, at the very instruction, on the stack and with the mask that
//!    the program wants. The end of that handler brings the next one.
//!
//! A signal that was queued so, and was overtaken by the runtime's own, is first taken back: it must follow the thread.
//!
//! Rejected: calling the program's handler from here with the frame of the runtime's signal. Its mask, its stack and the
//! order of nested handlers would have to be made as the kernel makes them.

use core::sync::atomic::Ordering;

use upcall_core::kernel::Vessels;
use upcall_linux::arch::own_syscalls;
use upcall_linux::{Activation, Runtime, Thread, base, critical_code, preempt};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, Progress, give_up, progress, raw_syscall};
use crate::ground::hooks::hooks;
use crate::ground::mask::{self, bit, set_kernel_mask};
use crate::ground::record;
use crate::ground::state::GUEST;
use crate::rewrite::sud;
use crate::signal::{caused, dispatch, masks, pending, queued, timers};

use super::actions::{CALL_NUMBER, SYS_SECCOMP};
use super::frame::{frame_mask, note_progress, set_frame_mask};
use super::place::is_at_entry;
use super::{blocked_by, show_own_mask};

/// The runtime's own signal: a time slice is over, or the activation was interrupted.
///
/// # Safety
///
/// `context` is the frame that the kernel passed.
#[inline(never)]
pub(super) unsafe fn own_signal(
    activation: &Activation,
    meaning: preempt::Meaning,
    context: *mut libc::ucontext_t,
) {
    let Some(thread) = activation.thread().filter(|_| !activation.is_inside()) else {
        critical_code::rest(activation);
        preempt::handle(activation, meaning);
        return;
    };
    let runtime = activation.runtime();
    if is_at_entry(activation, context) {
        // There is no room to park it. It parks when it is in the runtime the next time, or has room.
        activation.attend(Activation::RESCHEDULE);
        // SAFETY: the kernel's frame.
        give_up_wait(thread, unsafe { &mut (*context).uc_mcontext.gregs });
        return;
    }
    caused::take_at_stop(activation, thread);
    if activation.is_in_call() {
        critical_code::rest(activation);
        // SAFETY: the kernel's frame.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        let frame = thread.guest().frame.load(Ordering::Relaxed) as *const Frame;
        // SAFETY: as in `on_signal`.
        if let Some(frame) = unsafe { frame.as_ref() } {
            note_progress(frame, registers);
        }
        if activation.wants_attention() {
            let taken = queued::take_back(activation);
            // Not that of the call, which may have one of its own: somebody else may run here.
            let mask = activation.kernel.mask.load(Ordering::Relaxed);
            take_up(runtime, mask, meaning);
            show_own_mask(context);
            if let Some((signal, information)) = taken {
                // SAFETY: on an activation.
                let activation = unsafe { base::current() };
                queued::queue_to_kernel(activation, signal, &information);
            }
        }
        give_up_wait(thread, registers);
        return;
    }
    // One that stops it again in this handler leaves everything to this one.
    let is_first = !thread.guest().stopped.load(Ordering::Relaxed);
    let (mut taken, mut meaning) = (None, meaning);
    if is_first {
        taken = queued::take_back(activation).or_else(|| take_expired(thread));
        thread.guest().stopped.store(true, Ordering::Relaxed);
        if critical_code::stopped_at(activation, thread, place(context)) {
            meaning = preempt::Meaning::Tick;
        }
    }
    let mask = activation.kernel.mask.load(Ordering::Relaxed);
    take_up(runtime, mask, meaning);
    if is_first && is_in_program(thread, context) && goes_to_own(runtime, thread, &mut taken) {
        let mask = thread.kernel.mask.load(Ordering::Relaxed);
        set_frame_mask(context, dispatch::blockable(mask));
        thread.guest().stopped.store(false, Ordering::Relaxed);
        return;
    }
    // From here to the end the thread stays on its activation, perhaps another one by now.
    show_own_mask(context);
    if is_first {
        // What the thread has is what goes on: the activation may have had everything blocked.
        let mask = thread.kernel.mask.load(Ordering::Relaxed);
        set_frame_mask(context, mask & !preempt::OWN);
        thread.guest().stopped.store(false, Ordering::Relaxed);
        // SAFETY: on an activation.
        critical_code::goes_on(unsafe { base::current() }, thread);
        deliver_at_end(runtime, thread, taken, mask);
    }
}

/// Takes a signal about processor time that waits for the process, if the thread accepts it. Called with all signals
/// blocked. A timer of processor time often expires at the same tick as a time slice. The kernel then delivers the
/// runtime's own signal first, and wakes another activation for the program's, which is meant for the thread that ran.
fn take_expired(thread: &'static Thread) -> Option<(i32, pending::Information)> {
    let held = thread.kernel.mask.load(Ordering::Relaxed) | blocked_by(thread);
    let set = timers::about_processor_time() & masks::passable() & !held;
    (set != 0).then(|| queued::take(set)).flatten()
}

/// Where the thread was stopped.
fn place(context: *const libc::ucontext_t) -> usize {
    // SAFETY: the kernel's frame.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize }
}

/// Returns true if the thread was stopped in code of the program's, with nothing of the runtime's below that.
fn is_in_program(thread: &'static Thread, context: *const libc::ucontext_t) -> bool {
    let is_outside_call = thread.guest().frame.load(Ordering::Relaxed) == 0;
    is_outside_call && !sud::range().contains(&place(context))
}

/// Moves a stopped thread that another one has bound to its kernel thread, with the signals that were taken back for it.
/// Returns true if it did: all signals are then blocked, and the frame continues the thread there.
fn goes_to_own(
    runtime: &'static Runtime,
    thread: &'static Thread,
    taken: &mut Option<(i32, pending::Information)>,
) -> bool {
    if thread.guest().bound.load(Ordering::Relaxed) == 0 || !(hooks().go_stopped)(runtime, thread) {
        return false;
    }
    if let (Some((signal, information)), Some(own)) = (taken.take(), record::kernel_id(thread)) {
        queued::queue_to(own, signal, &information);
    }
    true
}

/// Called with all signals blocked; the kernel's frame is the thread's state. Queues what waits for the thread to its
/// kernel thread, which delivers it when the frame returns, where the thread was stopped.
#[inline(never)]
fn deliver_at_end(
    runtime: &'static Runtime,
    thread: &'static Thread,
    taken: Option<(i32, pending::Information)>,
    mask: u64,
) {
    // SAFETY: on an activation.
    let activation = unsafe { base::current() };
    // A call with a mask of its own may hold back more.
    let held = mask | blocked_by(thread);
    if taken.is_some()
        || !activation.kernel.inbox.is_empty()
        || pending::for_thread(thread) & !held != 0
    {
        runtime.kernel().set_inside();
        while let Some((signal, information)) = activation.kernel.inbox.take() {
            pending::hold(activation, thread, signal, &information);
        }
        activation.kernel.at_hand.store(0, Ordering::SeqCst);
        pending::queue_first(activation, thread, taken, held);
        runtime.kernel().clear_inside();
    }
    activation
        .kernel
        .mask
        .store(mask & !preempt::OWN, Ordering::Relaxed);
}

/// Handles a SIGSYS that needs nothing else, in any state of the kernel thread. Either a filter of the program's has made
/// it of a call of ours, which fails. Or it was sent, and has met a moment in which all other signals are blocked: it waits
/// until they are not.
///
/// # Safety
///
/// As the kernel passed them.
pub(super) unsafe fn ends_at_once(
    information: *const libc::siginfo_t,
    context: *mut libc::ucontext_t,
) -> bool {
    // SAFETY: the caller's promise.
    let (code, registers) = unsafe { ((*information).si_code, &mut (*context).uc_mcontext.gregs) };
    if code == SYS_SECCOMP && is_own_call(registers[libc::REG_RIP as usize] as usize) {
        registers[libc::REG_RAX as usize] = -i64::from(libc::ENOSYS);
        return true;
    }
    let mask = frame_mask(context);
    let blocks_all = GUEST.runtime().is_some() && mask & bit(preempt::SIGNAL) != 0;
    // SAFETY: as the kernel passed it.
    let is_caused = code > 0 && unsafe { (*information).si_errno } as u32 != sud::MARK;
    if is_caused || !blocks_all && !GUEST.is_starting() {
        return false;
    }
    // Here, and when this returns.
    set_kernel_mask(!0);
    set_frame_mask(context, mask | mask::MASK_BIT);
    // SAFETY: reads 128 bytes.
    unsafe {
        let pid = raw_syscall(libc::SYS_getpid, [0; 6]) as u64;
        let tid = raw_syscall(libc::SYS_gettid, [0; 6]) as u64;
        let words = [pid, tid, libc::SIGSYS as u64, information as u64, 0, 0];
        raw_syscall(libc::SYS_rt_tgsigqueueinfo, words);
    }
    true
}

/// Returns true if a system call that ended at `pc` was made by the runtime for itself.
fn is_own_call(pc: usize) -> bool {
    const LENGTH: usize = 2;
    progress(pc, 0) == Progress::Elsewhere && own_syscalls().any(|call| call + LENGTH == pc)
}

/// Returns true if a filter of the program's has trapped a call that the runtime makes in place of the thread's own, to
/// try that without waiting.
///
/// # Safety
///
/// As the kernel passed it, for the thread that is in the call.
pub(super) unsafe fn is_stand_in(
    thread: &'static Thread,
    information: *const libc::siginfo_t,
) -> bool {
    let frame = thread.guest().frame.load(Ordering::Relaxed) as *const Frame;
    // SAFETY: null, or the frame of the thread's call; of this signal siginfo_t has the number at that offset.
    unsafe {
        let number = information.cast::<u8>().add(CALL_NUMBER).cast::<i32>();
        frame
            .as_ref()
            .is_some_and(|frame| frame.rax as i32 != number.read())
    }
}

/// Lets the interrupted thread look at what has come, with this kernel mask from here on. Enters the runtime before the
/// mask is set: a signal that comes then is not put on top of this frame, on a stack that may be small.
fn take_up(runtime: &'static Runtime, mask: u64, meaning: preempt::Meaning) {
    runtime.kernel().set_inside();
    set_kernel_mask(mask);
    runtime.interrupted(meaning == preempt::Meaning::Tick);
}

/// Called before a handler's frame continues the thread, with all signals blocked. If signals have come for which the
/// thread was about to wait, the wait does not begin. A call that has not looked yet will look itself.
pub(super) fn give_up_wait(thread: &'static Thread, registers: &mut [libc::greg_t]) {
    if pending::are_waited_for(thread)
        && let Some(pc) = give_up(registers[libc::REG_RIP as usize] as usize)
    {
        registers[libc::REG_RIP as usize] = pc as i64;
    }
}
