//! Signals, per thread: actions, delivery, masks.
//!
//! The kernel delivers to kernel threads; the program thinks of threads. Each activation's kernel
//! mask is that of the thread it runs, and every handler of the program is entered through
//! `on_signal`:
//!
//! 1. Outside the runtime, the activation's thread is the receiver: its handler is called in the
//!    kernel's own frame. If it was in a system call, the activation first gets its virtual
//!    processor back, and the frame shows the thread at libc's own system-call instruction, where
//!    unwinders and cancellation expect it: at the instruction while the call has left nothing
//!    behind and may be made again, after it otherwise.
//! 2. Inside the runtime nothing may be delivered. The signal is kept with the activation, which
//!    from there on blocks all of the program's signals, so there is never a second one; when it
//!    leaves the runtime the signal is queued to it again, and then the mask is opened.
//! 3. An activation without a thread sleeps with a mask that lets through what some thread accepts
//!    (`masks.rs`), so that signals for the process wake somebody although all threads are parked.
//!    It passes each to a thread that accepts it (`pending.rs`).
//!
//! While the kernel's mask and the one that is noted for the activation differ (at the entry of a
//! handler, and at its end until the kernel has opened the mask), the runtime's own signal is
//! blocked, so that the thread does not migrate.
//!
//! Faults (SIGSEGV and the like) always hit the thread that made them. Approach rejected: the
//! program's handlers as kernel handlers, which would run in the middle of the runtime.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use upcall_core::{Kernel, Role};
use upcall_linux::{Activation, Runtime, Thread, gs, preempt, sys};

use crate::entry::{Frame, Progress, give_up, progress, raw_syscall};
use crate::guest::GUEST;
use crate::{access, alone, arch, dispatch, masks, pending, process, sud, table, timers};

const SA_RESTORER: u64 = 0x0400_0000;
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;
/// The flags that the kernel itself must know.
const KERNEL_FLAGS: u64 = (libc::SA_NOCLDSTOP
    | libc::SA_NOCLDWAIT
    | libc::SA_ONSTACK
    | libc::SA_RESTART
    | libc::SA_NODEFER) as u64;
const SIGNALS: usize = 65;
/// The code of a SIGSYS that a filter of the program asked for (seccomp(2)), and where its
/// siginfo_t says after which instruction.
const SYS_SECCOMP: i32 = 1;
const CALL_ADDRESS: usize = 16;

/// The kernel's struct sigaction.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

struct Action {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

/// What the program asked for, by signal number.
static ACTIONS: [Action; SIGNALS] = [const {
    Action {
        handler: AtomicUsize::new(SIG_DFL),
        flags: AtomicU64::new(0),
        restorer: AtomicUsize::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];

impl Action {
    fn get(&self) -> KernelAction {
        KernelAction {
            handler: self.handler.load(Ordering::Acquire),
            flags: self.flags.load(Ordering::Relaxed),
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    fn set(&self, action: &KernelAction) {
        self.flags.store(action.flags, Ordering::Relaxed);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        // Release: pairs with the Acquire in `get`.
        self.handler.store(action.handler, Ordering::Release);
    }
}

/// The bit of a signal in a mask.
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// What no mask blocks.
pub const UNBLOCKABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);

/// Signals that the runtime itself must see, whatever the program does with them.
fn is_ours(signal: i32) -> bool {
    signal == preempt::SIGNAL || matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGSYS)
}

fn is_fault(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP
    )
}

/// Whether the default action ends the process for a signal that somebody sends.
fn ends_by_default(signal: i32) -> bool {
    let stops_or_nothing = matches!(
        signal,
        libc::SIGSTOP
            | libc::SIGTSTP
            | libc::SIGTTIN
            | libc::SIGTTOU
            | libc::SIGCHLD
            | libc::SIGURG
            | libc::SIGWINCH
            | libc::SIGCONT
    );
    !stops_or_nothing && !is_fault(signal) && !matches!(signal, libc::SIGKILL | libc::SIGSYS)
}

/// Whether the kernel calls `on_signal` for an action of the program. With a runtime a signal
/// that would end the process is looked at first: an activation that sleeps may have taken it
/// for threads that block it by now.
fn is_caught(signal: i32, handler: usize) -> bool {
    handler > SIG_IGN
        || is_ours(signal)
        || handler == SIG_DFL && ends_by_default(signal) && GUEST.runtime().is_some()
}

/// Whether glibc keeps the signal for itself (cancellation, set*id).
fn is_libcs(signal: i32) -> bool {
    matches!(signal, 32 | 33)
}

/// What a signal would do if delivered now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// Nothing.
    Ignored,
    /// The kernel's default action, which ends or stops the process.
    Default,
    /// The program's handler.
    Handled,
}

/// What `signal` would do if delivered now.
pub fn disposition(signal: i32) -> Disposition {
    match ACTIONS[signal as usize].handler.load(Ordering::Acquire) {
        SIG_IGN => Disposition::Ignored,
        SIG_DFL
            if matches!(
                signal,
                libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT
            ) =>
        {
            Disposition::Ignored
        }
        SIG_DFL => Disposition::Default,
        _ => Disposition::Handled,
    }
}

/// What the kernel is told for an action of the program.
fn kernel_action(signal: i32, action: &KernelAction) -> KernelAction {
    if signal == preempt::SIGNAL {
        return own_action(libc::SA_NODEFER as u64);
    }
    if !is_caught(signal, action.handler) {
        return *action;
    }
    // A dispatched call goes on under the thread's mask; `on_signal` sets that of a handler.
    let (flags, mask) = if signal == libc::SIGSYS {
        (libc::SA_NODEFER as u64, 0)
    } else {
        // The thread must not migrate before the handler has noted its mask.
        (0, action.mask | preempt::OWN)
    };
    KernelAction {
        handler: on_signal as *const () as usize,
        flags: action.flags & KERNEL_FLAGS | flags | libc::SA_SIGINFO as u64 | SA_RESTORER,
        // Not the program's: a handler ends with all signals blocked, when no call may be
        // dispatched. Unwinders know both by the same bytes.
        restorer: arch::signal_return().0,
        mask,
    }
}

/// Lets the kernel call `on_signal` for a signal whatever the program's action is.
pub fn take_over(signal: i32) {
    let action = ACTIONS[signal as usize].get();
    set_kernel_action(signal, &kernel_action(signal, &action));
}

fn own_action(mut flags: u64) -> KernelAction {
    if preempt::uses_altstack() {
        flags |= libc::SA_ONSTACK as u64;
    }
    KernelAction {
        handler: on_signal as *const () as usize,
        flags: flags | libc::SA_SIGINFO as u64 | SA_RESTORER,
        restorer: arch::signal_return().0,
        mask: 0,
    }
}

fn set_kernel_action(signal: i32, action: &KernelAction) -> i64 {
    // SAFETY: reads the structure, whose handler is the kernel's constant or `on_signal`.
    (unsafe {
        raw_syscall(
            libc::SYS_rt_sigaction,
            [
                signal as u64,
                core::ptr::from_ref(action) as u64,
                0,
                8,
                0,
                0,
            ],
        )
    }) as i64
}

/// Takes over the actions that the process was started with (ignored signals are inherited), and
/// those of constructors that ran before.
pub fn inherit_actions() {
    for signal in 1..SIGNALS as i32 {
        let mut action = KernelAction::default();
        // SAFETY: writes the structure.
        unsafe {
            raw_syscall(
                libc::SYS_rt_sigaction,
                [signal as u64, 0, (&raw mut action) as u64, 8, 0, 0],
            )
        };
        ACTIONS[signal as usize].set(&action);
        let handled = action.handler > SIG_IGN;
        masks::handles(signal, handled);
        let fault = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGSYS);
        if handled || action.handler == SIG_DFL && fault {
            take_over(signal);
        }
    }
}

/// Installs the handler of the runtime's own signal, and catches what would end the process. The
/// runtime is there from now on.
pub fn install_own() {
    set_kernel_action(preempt::SIGNAL, &own_action(libc::SA_NODEFER as u64));
    for signal in (1..SIGNALS as i32).filter(|&signal| ends_by_default(signal)) {
        let action = ACTIONS[signal as usize].get();
        if action.handler == SIG_DFL {
            set_kernel_action(signal, &kernel_action(signal, &action));
            masks::handles(signal, true);
        }
    }
}

/// The stack for the runtime's own signal may be another one now.
fn install_own_again() {
    if GUEST.runtime().is_some() {
        set_kernel_action(preempt::SIGNAL, &own_action(libc::SA_NODEFER as u64));
    }
}

/// rt_sigaction(2).
pub fn sigaction(frame: &Frame) -> i64 {
    let (signal, new, old) = (frame.rdi as i32, frame.rsi as usize, frame.rdx as usize);
    if frame.r10 != 8
        || !(1..SIGNALS as i32).contains(&signal)
        || new != 0 && matches!(signal, libc::SIGKILL | libc::SIGSTOP)
    {
        return -i64::from(libc::EINVAL);
    }
    let before = ACTIONS[signal as usize].get();
    if new != 0 {
        let word = |index: usize| access::load_u64(new + 8 * index);
        let (Ok(handler), Ok(flags), Ok(restorer), Ok(mask)) = (word(0), word(1), word(2), word(3))
        else {
            return -i64::from(libc::EFAULT);
        };
        let action = KernelAction {
            handler: handler as usize,
            flags,
            restorer: restorer as usize,
            mask: mask & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP)),
        };
        // A handler must be known before the kernel can call it; a default only after.
        if action.handler > SIG_IGN {
            ACTIONS[signal as usize].set(&action);
        }
        if action.handler > SIG_IGN
            && action.flags & libc::SA_ONSTACK as u64 != 0
            && !is_fault(signal)
            && !is_libcs(signal)
        {
            preempt::want_altstack();
            install_own_again();
        }
        let answer = set_kernel_action(signal, &kernel_action(signal, &action));
        if answer != 0 {
            ACTIONS[signal as usize].set(&before);
            return answer;
        }
        ACTIONS[signal as usize].set(&action);
        masks::handles(signal, is_caught(signal, action.handler));
    }
    if old != 0 {
        let words = [
            before.handler as u64,
            before.flags,
            before.restorer as u64,
            before.mask,
        ];
        for (index, word) in words.into_iter().enumerate() {
            if access::store_u64(old + 8 * index, word).is_err() {
                return -i64::from(libc::EFAULT);
            }
        }
    }
    0
}

/// The signal mask of the calling kernel thread, as the kernel has it.
pub fn kernel_mask() -> u64 {
    let mut mask = 0u64;
    // SAFETY: writes eight bytes.
    unsafe {
        raw_syscall(
            libc::SYS_rt_sigprocmask,
            [0, 0, (&raw mut mask) as u64, 8, 0, 0],
        )
    };
    mask
}

/// Sets the signal mask of the calling kernel thread.
pub fn set_kernel_mask(mask: u64) {
    // SAFETY: reads eight bytes.
    unsafe {
        raw_syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as u64,
                (&raw const mask) as u64,
                0,
                8,
                0,
                0,
            ],
        )
    };
}

/// The first thread keeps the alternate stack that it has set before there was a runtime.
pub fn adopt_altstack(activation: &'static Activation, thread: &'static Thread) {
    let mut stack = libc::stack_t {
        ss_sp: core::ptr::null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    // SAFETY: writes the structure.
    unsafe {
        raw_syscall(
            libc::SYS_sigaltstack,
            [0, (&raw mut stack) as u64, 0, 0, 0, 0],
        )
    };
    if stack.ss_flags & libc::SS_DISABLE == 0 {
        if stack.ss_size < preempt::ALTSTACK_ROOM {
            preempt::refuse_altstack();
            install_own_again();
        }
        let words = [stack.ss_sp as usize, stack.ss_size, 0];
        for (slot, word) in thread.kernel.altstack.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        activation
            .kernel
            .altstack
            .store(stack.ss_sp as usize, Ordering::Relaxed);
    }
}

/// rt_sigprocmask(2).
pub fn sigprocmask(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let before = thread.kernel.mask.load(Ordering::Relaxed);
    match next_mask(frame, before) {
        Err(error) => error,
        Ok(mask) => {
            if mask != before {
                set_thread_mask(runtime, thread, mask);
            }
            answer_mask(frame, before)
        }
    }
}

/// The mask that rt_sigprocmask(2) asks for where it was `before`, or the call's error.
pub fn next_mask(frame: &Frame, before: u64) -> Result<u64, i64> {
    let (how, new) = (frame.rdi as i32, frame.rsi as usize);
    if frame.r10 != 8 {
        return Err(-i64::from(libc::EINVAL));
    }
    if new == 0 {
        return Ok(before);
    }
    let set = access::load_u64(new).map_err(|_| -i64::from(libc::EFAULT))?;
    let set = set & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
    match how {
        libc::SIG_BLOCK => Ok(before | set),
        libc::SIG_UNBLOCK => Ok(before & !set),
        libc::SIG_SETMASK => Ok(set),
        _ => Err(-i64::from(libc::EINVAL)),
    }
}

/// Stores what the mask was, where rt_sigprocmask(2) asks for it, and returns the call's answer.
pub fn answer_mask(frame: &Frame, before: u64) -> i64 {
    let old = frame.rdx as usize;
    if old != 0 && access::store_u64(old, before).is_err() {
        return -i64::from(libc::EFAULT);
    }
    0
}

/// Stores the siginfo_t that rt_sigtimedwait(2) found, and returns the call's answer.
pub fn answer_wait(frame: &Frame, signal: i32, information: &pending::Information) -> i64 {
    frame.made.set(1);
    let to = frame.rsi as usize;
    if to != 0 {
        for (index, word) in information.iter().enumerate() {
            if access::store_u64(to + 8 * index, *word).is_err() {
                return -i64::from(libc::EFAULT);
            }
        }
    }
    i64::from(signal)
}

/// Changes the current thread's mask; what it unblocks is delivered before this returns.
pub fn set_thread_mask(runtime: &'static Runtime, thread: &'static Thread, mask: u64) {
    let activation = runtime.enter();
    thread.kernel.mask.store(mask, Ordering::SeqCst);
    runtime.kernel().set_mask(activation, mask);
    // After its own: what was pending for the process is this thread's.
    masks::opens(mask);
    if thread.kernel.pending.load(Ordering::SeqCst) & !mask != 0 {
        activation.attend(Activation::DEFERRED);
    }
    runtime.leave(activation);
}

/// sigaltstack(2).
pub fn sigaltstack(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let activation = runtime.enter();
    // The activation's kernel thread has this thread's stack installed: the kernel checks, and
    // answers, for the thread.
    // SAFETY: the program's own arguments.
    let answer = unsafe { frame.raw() } as i64;
    if answer == 0 && frame.rdi != 0 {
        adopt_none(thread);
        adopt_altstack(activation, thread);
        let now = thread.kernel.altstack[0].load(Ordering::Relaxed);
        activation.kernel.altstack.store(now, Ordering::Relaxed);
    }
    runtime.leave(activation);
    answer
}

fn adopt_none(thread: &'static Thread) {
    thread.kernel.altstack[0].store(0, Ordering::Relaxed);
}

/// Where the kernel delivers every signal that the program or the runtime handles.
///
/// # Safety
///
/// Called by the kernel.
unsafe extern "C" fn on_signal(
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the kernel passes its own frame.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    if is_fault(signal)
        && let Some(exit) = access::recover(registers[libc::REG_RIP as usize] as usize)
    {
        registers[libc::REG_RIP as usize] = exit as i64;
        return;
    }
    if signal == libc::SIGSYS {
        let number = registers[libc::REG_RAX as usize];
        // SAFETY: as the kernel passed them.
        if unsafe { sud::handle(information, context) } {
            settle(number, context);
            return;
        }
        // What the kernel does for the other signals (`kernel_action`).
        set_kernel_mask(frame_mask(context) | preempt::OWN);
    }
    let runtime = GUEST.runtime().filter(|_| !table::is_outside());
    let Some(runtime) = runtime else {
        // SAFETY: as the kernel passed them.
        unsafe { alone(signal, information, context) };
        return;
    };
    // SAFETY: on an activation.
    let activation = unsafe { gs::current() };
    if signal == preempt::SIGNAL {
        // SAFETY: as the kernel passed it.
        let meaning = unsafe { preempt::meaning(information) };
        process::make_requested_call(activation);
        match meaning {
            preempt::Meaning::Call => return,
            preempt::Meaning::Timer(number) => {
                timers::note(number);
                activation.attend(Activation::DEFERRED);
                activation.wake_word().fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
        if meaning != preempt::Meaning::Foreign {
            // SAFETY: as the kernel passed it.
            unsafe { own_signal(runtime, activation, meaning, context) };
            return;
        }
    }
    // SAFETY: as the kernel passed it.
    let filtered = signal == libc::SIGSYS && unsafe { (*information).si_code } == SYS_SECCOMP;
    if activation.is_inside() {
        if filtered {
            // The program's filter met a call of the runtime's, which can do without.
            registers[libc::REG_RAX as usize] = -i64::from(libc::ENOSYS);
            return;
        }
        // SAFETY: as the kernel passed them.
        unsafe { defer(activation, signal, information, context) };
        return;
    }
    let Some(thread) = table::current_thread() else {
        return;
    };
    // SAFETY: as the kernel passed it.
    unsafe { pending::complete(activation, signal, information) };
    if thread.kernel.mask.load(Ordering::Relaxed) & preempt::OWN & bit(signal) != 0 {
        // SAFETY: as the kernel passed it.
        unsafe { blocked(runtime, thread, signal, information) };
        return;
    }
    if disposition(signal) == Disposition::Default {
        // SAFETY: as the kernel passed them; when this frame returns the process ends.
        unsafe { call_handler(signal, information, context) };
        return;
    }
    show_mask(thread, context);
    let mask = handler_mask(thread, signal, context);
    note_mask(activation, thread, mask);
    let frame = thread.kernel.frame.swap(0, Ordering::Relaxed) as *const Frame;
    // SAFETY: null, or the frame of the system call that the thread is in, on its own stack.
    let frame = unsafe { frame.as_ref() };
    let Some(frame) = frame else {
        // SAFETY: outside the runtime, with a virtual processor, in the kernel's frame.
        unsafe { deliver(runtime, thread, signal, information, context) };
        return;
    };
    let saved = *registers;
    note_progress(frame, registers);
    show_site(frame, registers);
    if filtered {
        // SAFETY: as the kernel passed it; of this signal it holds an address at that offset.
        unsafe {
            let address = information.cast::<u8>().add(CALL_ADDRESS).cast::<u64>();
            address.write(registers[libc::REG_RIP as usize] as u64);
        }
    }
    let shown = *registers;
    let interrupted = activation.is_in_call();
    if interrupted {
        runtime.interrupt_blocking();
    }
    // SAFETY: as above.
    unsafe { call(thread, signal, information, context) };
    let goes_elsewhere = [libc::REG_RIP, libc::REG_RSP]
        .iter()
        .any(|&register| registers[register as usize] != shown[register as usize]);
    if !goes_elsewhere {
        // The answer that a filter leaves to the handler.
        let answer = registers[libc::REG_RAX as usize];
        *registers = saved;
        if filtered {
            registers[libc::REG_RAX as usize] = answer;
        }
        thread
            .kernel
            .frame
            .store(core::ptr::from_ref(frame) as usize, Ordering::Relaxed);
        if interrupted {
            runtime.resume_blocking();
        }
    }
    finish(runtime, thread, context);
}

/// A signal that the thread blocks and its activation never does. One that somebody sent waits, as
/// in the kernel; a fault ends the process, as in the kernel.
///
/// # Safety
///
/// `information` is what the kernel passed.
unsafe fn blocked(
    runtime: &'static Runtime,
    thread: &'static Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
) {
    // SAFETY: the caller's promise; a siginfo_t is 128 bytes.
    let (code, words) = unsafe {
        (
            (*information).si_code,
            &*information.cast::<pending::Information>(),
        )
    };
    if code > 0 && (is_fault(signal) || signal == libc::SIGSYS) {
        end_by(signal, code);
        return;
    }
    let activation = runtime.enter();
    let id = thread.kernel.tid.load(Ordering::Relaxed);
    pending::send(runtime, activation, (thread, id), signal, words);
    runtime.leave(activation);
}

/// The kernel's default action for a signal, although the runtime wants to see it: the process is
/// about to end by it.
pub fn take_default(signal: i32) {
    set_kernel_action(signal, &KernelAction::default());
}

/// Ends or stops the process by a signal of this code, if that is its default action.
fn end_by(signal: i32, code: i32) {
    take_default(signal);
    if code > 0 && is_fault(signal) {
        // It happens again.
        return;
    }
    // SAFETY: ends the process, or stops it.
    unsafe {
        let pid = raw_syscall(libc::SYS_getpid, [0; 6]) as u64;
        let tid = raw_syscall(libc::SYS_gettid, [0; 6]) as u64;
        raw_syscall(libc::SYS_tgkill, [pid, tid, signal as u64, 0, 0, 0]);
    }
}

/// A dispatched call has been served. The kernel will set the mask and the alternate stack in the
/// frame: they become what they are now, after the call and perhaps on another activation.
fn settle(number: i64, context: *mut libc::ucontext_t) {
    let mask = match GUEST.runtime().filter(|_| !table::is_outside()) {
        // A call of the runtime's own, in a vDSO that is not rewritten: nothing has changed.
        // SAFETY: on an activation.
        Some(_) if unsafe { gs::is_inside() } => return,
        Some(_) => {
            // From here to the end the thread stays on its activation.
            set_kernel_mask(!0);
            // SAFETY: as above.
            unsafe { gs::current() }.kernel.mask.load(Ordering::Relaxed)
        }
        None => kernel_mask(),
    };
    set_frame_mask(context, mask);
    if number == libc::SYS_sigaltstack {
        // SAFETY: writes the structure in the frame.
        unsafe {
            let stack = &raw mut (*context).uc_stack;
            raw_syscall(libc::SYS_sigaltstack, [0, stack as u64, 0, 0, 0, 0])
        };
    }
}

/// A signal where there is no runtime: the kernel thread is the thread, and its mask what
/// sigaction(2) says.
///
/// # Safety
///
/// The arguments are what the kernel passed.
unsafe fn alone(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's siginfo_t; a siginfo_t is 128 bytes.
    let (code, words) = unsafe {
        (
            (*information).si_code,
            &*information.cast::<pending::Information>(),
        )
    };
    if alone::hidden() & bit(signal) != 0 && code > 0 {
        end_by(signal, code);
        return;
    }
    if alone::keep(signal, words) {
        return;
    }
    let before = frame_mask(context) | alone::hidden();
    set_frame_mask(context, before);
    alone::set_mask(action_mask(signal, before));
    // SAFETY: in the kernel's frame.
    unsafe { call_handler(signal, information, context) };
    let after = frame_mask(context);
    alone::note_mask(after);
    set_frame_mask(context, dispatch::blockable(after));
    alone::deliver_kept();
}

/// Makes the frame's mask the thread's, which may block what its activation does not.
fn show_mask(thread: &'static Thread, context: *mut libc::ucontext_t) {
    let hidden = thread.kernel.mask.load(Ordering::Relaxed) & preempt::OWN;
    set_frame_mask(context, frame_mask(context) | hidden);
}

/// The runtime's own signal: a time slice is over, or the activation was interrupted.
///
/// # Safety
///
/// `context` is the frame that the kernel passed.
unsafe fn own_signal(
    runtime: &'static Runtime,
    activation: &'static Activation,
    meaning: preempt::Meaning,
    context: *mut libc::ucontext_t,
) {
    if !activation.is_inside()
        && activation.is_in_call()
        && let Some(thread) = activation.thread()
    {
        // SAFETY: the kernel's frame.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        let frame = thread.kernel.frame.load(Ordering::Relaxed) as *const Frame;
        // SAFETY: as in `on_signal`.
        if let Some(frame) = unsafe { frame.as_ref() } {
            note_progress(frame, registers);
        }
        let waited_for = thread.kernel.waited_for.load(Ordering::SeqCst);
        if thread.kernel.pending.load(Ordering::SeqCst) & waited_for != 0 {
            // The call that waits for them looks before it waits; one that has looked gives up.
            thread.kernel.forbidden.store(1, Ordering::SeqCst);
            if let Some(pc) = give_up(registers[libc::REG_RIP as usize] as usize) {
                registers[libc::REG_RIP as usize] = pc as i64;
            }
        }
        if activation.wants_attention() {
            // The call may have a mask of its own, with which nobody else may run here.
            let mask = thread.kernel.mask.load(Ordering::Relaxed);
            set_kernel_mask(mask & !preempt::OWN);
        }
    }
    let parks = !activation.is_inside() && !activation.is_in_call();
    preempt::handle(runtime, activation, meaning);
    if parks {
        // Perhaps on another activation by now, and perhaps this one had everything blocked for
        // signals that it deferred: what it really has is what goes on.
        // SAFETY: on an activation; the frame's mask is set when the handler returns.
        unsafe {
            let mask = gs::current().kernel.mask.load(Ordering::Relaxed);
            *(&raw mut (*context).uc_sigmask).cast::<u64>() = mask;
        }
    }
}

/// Notes in the frame of a system call what the signal frame knows: whether it has left anything
/// behind.
fn note_progress(frame: &Frame, registers: &[i64; 23]) {
    let pc = registers[libc::REG_RIP as usize] as usize;
    if progress(pc, registers[libc::REG_RAX as usize]) == Progress::Made(true) {
        frame.made.set(1);
    }
}

/// Makes the frame show the thread at the system-call instruction of libc's.
fn show_site(frame: &Frame, registers: &mut [i64; 23]) {
    let again = frame.made.get() == 0;
    let values = [
        (libc::REG_RDI, frame.rdi),
        (libc::REG_RSI, frame.rsi),
        (libc::REG_RDX, frame.rdx),
        (libc::REG_R10, frame.r10),
        (libc::REG_R8, frame.r8),
        (libc::REG_R9, frame.r9),
        (libc::REG_RBX, frame.rbx),
        (libc::REG_RBP, frame.rbp),
        (libc::REG_R12, frame.r12),
        (libc::REG_R13, frame.r13),
        (libc::REG_R14, frame.r14),
        (libc::REG_R15, frame.r15),
        (libc::REG_RSP, frame.rsp),
        (libc::REG_RIP, frame.rip - if again { 2 } else { 0 }),
    ];
    for (register, value) in values {
        registers[register as usize] = value as i64;
    }
}

/// Inside the runtime: kept with the activation until it leaves.
///
/// # Safety
///
/// The arguments are what the kernel passed.
unsafe fn defer(
    activation: &'static Activation,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the kernel's siginfo_t; the code tells who made it.
    let code = unsafe { (*information).si_code };
    if is_fault(signal) && code > 0 {
        // A fault of the runtime itself. With the default action the fault repeats and ends the
        // process where it happened, with a core that shows it.
        sys::say(b"upcall: fault inside the runtime: this is a bug in upcall\n");
        set_kernel_action(signal, &KernelAction::default());
        return;
    }
    let all = !preempt::OWN;
    // What the kernel thread gets when the handler returns.
    set_frame_mask(context, all);
    activation.kernel.mask.store(all, Ordering::Relaxed);
    // SAFETY: a siginfo_t is 128 bytes.
    let words = unsafe { &*information.cast::<pending::Information>() };
    if !activation.kernel.inbox.put(signal, words) {
        // The mask was opened by a section that had not seen the first one yet.
        pending::give_back(activation, signal, words);
    }
    activation.attend(Activation::DEFERRED);
    // Whoever is about to sleep must look again; who has looked and is about to poll must be told.
    activation.wake_word().fetch_add(1, Ordering::SeqCst);
    if activation.thread().is_none() {
        activation.runtime().kernel().wake(activation);
    }
}

/// Sets the mask in a frame. The kernel's is eight bytes; in the place of what libc's has beyond
/// that is the signal's siginfo_t.
fn set_frame_mask(context: *mut libc::ucontext_t, mask: u64) {
    // SAFETY: the kernel's frame.
    unsafe { *(&raw mut (*context).uc_sigmask).cast::<u64>() = mask };
}

/// The mask in a frame.
fn frame_mask(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the kernel's frame; the mask's first word is the kernel's.
    unsafe { *(&raw const (*context).uc_sigmask).cast::<u64>() }
}

/// The mask of the current thread while its handler for `signal` runs.
fn handler_mask(thread: &'static Thread, signal: i32, context: *const libc::ucontext_t) -> u64 {
    // A handler that interrupts rt_sigsuspend(2) or a call like it runs under the call's mask.
    let waited_for = thread.kernel.waited_for.load(Ordering::Relaxed);
    let before = if thread.kernel.suspended.load(Ordering::Relaxed) {
        !waited_for
    } else {
        frame_mask(context)
    };
    action_mask(signal, before)
}

/// The mask of a handler that interrupts a thread with the mask `before`.
fn action_mask(signal: i32, before: u64) -> u64 {
    let action = ACTIONS[signal as usize].get();
    let own = if action.flags & libc::SA_NODEFER as u64 == 0 {
        bit(signal)
    } else {
        0
    };
    before | action.mask | own
}

/// The mask for the handler: noted, and set without the runtime's own signal, which has been
/// blocked up to here.
fn note_mask(activation: &'static Activation, thread: &'static Thread, mask: u64) {
    thread.kernel.mask.store(mask, Ordering::SeqCst);
    activation
        .kernel
        .mask
        .store(mask & !preempt::OWN, Ordering::Relaxed);
    set_kernel_mask(mask & !preempt::OWN);
}

/// Calls the program's handler for the current thread.
///
/// # Safety
///
/// Outside the runtime, in the kernel's frame for this signal.
unsafe fn call(
    thread: &'static Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let action = ACTIONS[signal as usize].get();
    if action.handler > SIG_IGN {
        let seen = if action.flags & libc::SA_RESTART as u64 != 0 {
            table::SEEN_RESTART
        } else {
            table::SEEN
        };
        thread.kernel.seen.fetch_max(seen, Ordering::Relaxed);
    }
    // SAFETY: the caller's conditions.
    unsafe { call_handler(signal, information, context) };
}

/// As [`call`], for a thread in its own code.
///
/// # Safety
///
/// As [`call`].
unsafe fn deliver(
    runtime: &'static Runtime,
    thread: &'static Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the caller's conditions.
    unsafe { call(thread, signal, information, context) };
    finish(runtime, thread, context);
}

/// The end of a handler: the kernel will set the mask in the frame, which the handler may have
/// changed. What that lets through is queued, so that it is delivered after this frame and not
/// inside it.
fn finish(runtime: &'static Runtime, thread: &'static Thread, context: *mut libc::ucontext_t) {
    // From here to the end the thread stays on its activation.
    set_kernel_mask(!0);
    // SAFETY: on an activation.
    let activation = unsafe { gs::current() };
    let mask = frame_mask(context);
    set_frame_mask(context, mask & !preempt::OWN);
    thread.kernel.mask.store(mask, Ordering::SeqCst);
    masks::opens(mask);
    if thread.kernel.pending.load(Ordering::SeqCst) & !mask != 0 {
        runtime.kernel().set_inside();
        pending::queue_one(runtime, activation, thread, mask);
        runtime.kernel().clear_inside();
    }
    activation
        .kernel
        .mask
        .store(mask & !preempt::OWN, Ordering::Relaxed);
}

/// # Safety
///
/// In the kernel's frame for this signal.
unsafe fn call_handler(
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let slot = &ACTIONS[signal as usize];
    let action = slot.get();
    match action.handler {
        SIG_IGN | SIG_DFL => {
            // SAFETY: the kernel's siginfo_t.
            let code = unsafe { (*information).si_code };
            // What the thread itself caused cannot be ignored.
            let forced = code > 0 && (is_fault(signal) || signal == libc::SIGSYS);
            if forced || disposition(signal) != Disposition::Ignored {
                // Only the runtime wanted it: the default action, at the same place.
                end_by(signal, code);
            }
        }
        handler => {
            if action.flags & libc::SA_RESETHAND as u64 != 0 {
                let default = KernelAction::default();
                slot.set(&default);
                masks::handles(signal, is_caught(signal, SIG_DFL));
                set_kernel_action(signal, &kernel_action(signal, &default));
            }
            // SAFETY: the program installed the function as a handler; all handlers accept the
            // three arguments in registers.
            unsafe {
                let handler = core::mem::transmute::<
                    usize,
                    extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t),
                >(handler);
                handler(signal, information, context);
            }
        }
    }
}

/// Signals were deferred on an activation: they are delivered to its thread, or passed on.
/// See [`upcall_core::Kernel::deferred`].
pub fn deferred(
    runtime: &'static Runtime,
    activation: &'static Activation,
    thread: Option<&'static Thread>,
) {
    timers::pass_on(runtime, activation);
    match thread {
        Some(thread) => {
            // Everything is blocked, the runtime's own signal too: the thread must not migrate
            // between here and the delivery.
            set_kernel_mask(!0);
            let mask = thread.kernel.mask.load(Ordering::Relaxed) & !preempt::OWN;
            if let Some((signal, information)) = activation.kernel.inbox.take() {
                pending::restore(runtime, activation, signal, &information, mask);
            } else {
                pending::queue_one(runtime, activation, thread, mask);
            }
            activation.kernel.mask.store(mask, Ordering::Relaxed);
            runtime.leave_quietly(activation);
            // Delivers it, on this kernel thread.
            set_kernel_mask(mask);
            let mask = thread.kernel.mask.load(Ordering::Relaxed);
            if thread.kernel.pending.load(Ordering::SeqCst) & !mask != 0 {
                // SAFETY: on an activation; one that installs the thread looks by itself.
                unsafe { gs::current() }.attend(Activation::DEFERRED);
            }
        }
        None => {
            runtime.kernel().set_mask(activation, !0);
            if let Some((signal, information)) = activation.kernel.inbox.take() {
                pending::pass(runtime, activation, signal, &information);
            }
            // A standby may not sleep for long, and takes signals for parked threads meanwhile.
            if activation.role() == Role::Standby {
                runtime.kernel().set_resting_mask(activation);
            }
        }
    }
}

/// The end of a time slice: signals for the process that the running threads block and a parked
/// one accepts. See [`upcall_linux::Hooks::tick`].
pub fn tick(runtime: &'static Runtime, activation: &'static Activation) {
    let wanted = masks::passable();
    if activation.kernel.mask.load(Ordering::Relaxed) & wanted == 0 {
        return;
    }
    let mut pending = 0u64;
    // SAFETY: writes eight bytes.
    unsafe {
        raw_syscall(
            libc::SYS_rt_sigpending,
            [(&raw mut pending) as u64, 8, 0, 0, 0, 0],
        )
    };
    if pending & wanted != 0 {
        pending::pass_pending(runtime, activation, pending & wanted);
    }
}

/// A thread has ended: what it did not see is gone, and nothing more reaches it.
pub fn close(runtime: &'static Runtime, thread: &'static Thread) {
    pending::close(runtime, thread);
}
