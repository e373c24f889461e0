//! Signal actions: what the program wants done about each signal, and what the kernel is told instead (rt_sigaction(2)).

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use upcall_linux::{Runtime, Thread, preempt};

use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::mask::{ALL, bit};
use crate::ground::state::GUEST;
use crate::ground::{access, arch};
use crate::signal::{masks, settled};

pub(super) const SA_RESTORER: u64 = 0x0400_0000;
pub(super) const SIG_DFL: usize = 0;
pub(super) const SIG_IGN: usize = 1;
/// The flags that the kernel itself must know.
pub(super) const KERNEL_FLAGS: u64 = (libc::SA_NOCLDSTOP
    | libc::SA_NOCLDWAIT
    | libc::SA_ONSTACK
    | libc::SA_RESTART
    | libc::SA_NODEFER) as u64;
/// All flags that the kernel knows. It removes others from an action, so that a program can learn which flags there are
/// (SA_UNSUPPORTED, sigaction(2)).
const KNOWN_FLAGS: u64 =
    KERNEL_FLAGS | SA_RESTORER | libc::SA_SIGINFO as u64 | SA_RESETHAND | SA_EXPOSE_TAGBITS;
pub(super) const SA_RESETHAND: u64 = libc::SA_RESETHAND as u32 as u64;
const SA_EXPOSE_TAGBITS: u64 = 0x800;
pub(super) const SIGNALS: usize = 65;
/// The code of a SIGSYS that a filter of the program asked for (seccomp(2)), and the offset in its siginfo_t of the address
/// of the instruction.
pub(super) const SYS_SECCOMP: i32 = 1;
pub(super) const CALL_ADDRESS: usize = 16;
/// The offset of the call's number.
pub(super) const CALL_NUMBER: usize = 24;

/// The kernel's struct sigaction.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct KernelAction {
    pub(super) handler: usize,
    pub(super) flags: u64,
    pub(super) restorer: usize,
    pub(super) mask: u64,
}

pub(super) struct Action {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

/// What the program asked for, by signal number.
pub(super) static ACTIONS: [Action; SIGNALS] = [const {
    Action {
        handler: AtomicUsize::new(SIG_DFL),
        flags: AtomicU64::new(0),
        restorer: AtomicUsize::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];

impl Action {
    pub(super) fn get(&self) -> KernelAction {
        KernelAction {
            handler: self.handler.load(Ordering::Acquire),
            flags: self.flags.load(Ordering::Relaxed),
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    pub(super) fn set(&self, action: &KernelAction) {
        self.flags.store(action.flags, Ordering::Relaxed);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        // Release: pairs with the Acquire in `get`.
        self.handler.store(action.handler, Ordering::Release);
    }
}

/// Signals that the runtime itself must see, whatever the program does with them.
pub(super) fn is_ours(signal: i32) -> bool {
    signal == preempt::SIGNAL || matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGSYS)
}

pub(super) fn is_fault(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP
    )
}

/// Returns true if the thread itself caused the signal, by an instruction or a filtered call. Such a signal can be neither
/// blocked nor ignored.
pub(super) fn is_forced(signal: i32, code: i32) -> bool {
    code > 0 && (is_fault(signal) || signal == libc::SIGSYS)
}

/// Returns true if the default action ends the process for a signal that somebody sends.
pub(super) fn ends_by_default(signal: i32) -> bool {
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

/// Returns true if the user has the threads shown at this signal. The program's action is noted, and not taken.
pub(super) fn shows_stacks(signal: i32) -> bool {
    signal == GUEST.stacks()
}

/// Returns true if the kernel calls `on_signal` for an action of the program. With a runtime that includes signals that
/// would end the process: a sleeping activation may have taken one for threads that block it by now.
pub(super) fn is_caught(signal: i32, handler: usize) -> bool {
    handler > SIG_IGN
        || is_ours(signal)
        || shows_stacks(signal)
        || handler == SIG_DFL && ends_by_default(signal) && GUEST.runtime().is_some()
}

/// Returns true if the kernel calls `on_signal` for what the program wants done about the signal now.
pub fn is_seen(signal: i32) -> bool {
    is_caught(
        signal,
        ACTIONS[signal as usize].handler.load(Ordering::Acquire),
    )
}

/// Returns true if glibc uses the signal itself (cancellation, set*id).
pub(super) fn is_libcs(signal: i32) -> bool {
    matches!(
        signal,
        super::everywhere::CANCEL | super::everywhere::SETXID
    )
}

/// What a signal would do if it were delivered now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// Nothing.
    Ignored,
    /// The kernel's default action, which ends or stops the process.
    Default,
    /// The program's handler.
    Handled,
}

/// Returns what `signal` would do if it were delivered now.
pub fn disposition(signal: i32) -> Disposition {
    if shows_stacks(signal) {
        return Disposition::Handled;
    }
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

/// Returns true if the program has a handler for any signal that may come from outside.
pub fn has_handlers() -> bool {
    (1..ACTIONS.len() as i32).any(|signal| {
        !is_fault(signal)
            && !is_libcs(signal)
            && !is_ours(signal)
            && !shows_stacks(signal)
            && disposition(signal) == Disposition::Handled
    })
}

/// Returns what the kernel is told for an action of the program.
pub(super) fn kernel_action(signal: i32, action: &KernelAction) -> KernelAction {
    if signal == preempt::SIGNAL && GUEST.runtime().is_some() {
        return own_action();
    }
    if !is_caught(signal, action.handler) {
        return *action;
    }
    let (flags, mask) = if GUEST.runtime().is_some() {
        // `place` finds the stack. A fault and a dispatched call are the thread's that has made them.
        let flags = match signal {
            libc::SIGSYS => libc::SA_NODEFER,
            _ if is_fault(signal) => 0,
            _ => libc::SA_ONSTACK,
        };
        // `on_signal` sets the mask of the handler or of a dispatched call. Until then no other signal may be delivered,
        // since the thread could migrate by it.
        (flags as u64, ALL)
    } else if signal == libc::SIGSYS {
        // A dispatched call goes on under the thread's mask; `on_signal` sets that of a handler.
        (libc::SA_NODEFER as u64, 0)
    } else {
        (0, action.mask)
    };
    let flags = if shows_stacks(signal) {
        // The call that it interrupts goes on, where the kernel knows how.
        flags | libc::SA_RESTART as u64
    } else if signal == libc::SIGSEGV && REPORTS_OVERFLOWS.load(Ordering::Relaxed) {
        flags | libc::SA_ONSTACK as u64
    } else {
        flags
    };
    KernelAction {
        handler: entry(),
        flags: action.flags & KERNEL_FLAGS | flags | libc::SA_SIGINFO as u64 | SA_RESTORER,
        // Not the program's restorer: a handler ends with all signals blocked, when no call may be dispatched. Unwinders
        // recognise both by the same bytes.
        restorer: arch::signal_return().0,
        mask,
    }
}

static REPORTS_OVERFLOWS: AtomicBool = AtomicBool::new(false);

/// Lets faults be handled from now on although the thread has no stack for a handler.
pub fn report_overflows() {
    REPORTS_OVERFLOWS.store(true, Ordering::Relaxed);
    take_over(libc::SIGSEGV);
}

/// Lets the kernel call `on_signal` for a signal whatever the program's action is.
pub fn take_over(signal: i32) {
    let action = ACTIONS[signal as usize].get();
    set_kernel_action(signal, &kernel_action(signal, &action));
}

/// Returns the action of the runtime's own signal, which `place` puts where the thread has room for it.
pub(super) fn own_action() -> KernelAction {
    let flags = (libc::SA_NODEFER | libc::SA_ONSTACK) as u64;
    KernelAction {
        handler: entry(),
        flags: flags | libc::SA_SIGINFO as u64 | SA_RESTORER,
        restorer: arch::signal_return().0,
        // As in `kernel_action`; `own_signal` opens it.
        mask: ALL,
    }
}

pub(super) fn set_kernel_action(signal: i32, action: &KernelAction) -> i64 {
    // SAFETY: reads the structure, whose handler is the kernel's constant or our entry.
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

fn kernel_action_of(signal: i32) -> KernelAction {
    let mut action = KernelAction::default();
    // SAFETY: writes the structure.
    unsafe {
        raw_syscall(
            libc::SYS_rt_sigaction,
            [signal as u64, 0, (&raw mut action) as u64, 8, 0, 0],
        )
    };
    action
}

/// The signals whose actions are in [`ACTIONS`]. Of the others the kernel alone knows whether they are ignored.
static INHERITED: AtomicU64 = AtomicU64::new(0);

/// Takes over the actions that the process was started with (ignored signals are inherited) as far as they matter before
/// the program asks or is made ready for threads: those of faults. With `all`, every one, those of constructors and of a
/// program that ran before among them.
pub fn inherit_actions(all: bool) {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGSYS, GUEST.stacks()] {
        if signal != 0 {
            inherit(signal);
        }
    }
    if all {
        inherit_rest();
    }
}

/// Takes over all actions that were not yet.
pub fn inherit_rest() {
    for signal in 1..SIGNALS as i32 {
        inherit(signal);
    }
}

/// Takes over the action for one signal, unless that was done.
fn inherit(signal: i32) {
    if INHERITED.fetch_or(bit(signal), Ordering::Relaxed) & bit(signal) != 0 {
        return;
    }
    let action = kernel_action_of(signal);
    ACTIONS[signal as usize].set(&action);
    let handled = action.handler > SIG_IGN || shows_stacks(signal);
    masks::handles(signal, handled);
    let fault = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGSYS);
    if handled || fault {
        take_over(signal);
    }
}

/// Installs the handler of the runtime's own signal, and catches what would end the process. The
/// runtime is there from now on.
pub fn install_own() {
    set_kernel_action(preempt::SIGNAL, &own_action());
    for signal in (1..SIGNALS as i32).filter(|&signal| signal != preempt::SIGNAL) {
        let action = ACTIONS[signal as usize].get();
        if action.handler > SIG_IGN {
            set_kernel_action(signal, &kernel_action(signal, &action));
        } else if shows_stacks(signal) || action.handler == SIG_DFL && ends_by_default(signal) {
            set_kernel_action(signal, &kernel_action(signal, &action));
            masks::handles(signal, true);
        }
    }
}

/// Called in the child of a fork, which has no runtime: the masks of handlers are the kernel's again.
pub fn forget_own() {
    for signal in 1..SIGNALS as i32 {
        let action = ACTIONS[signal as usize].get();
        if action.handler > SIG_IGN || shows_stacks(signal) {
            set_kernel_action(signal, &kernel_action(signal, &action));
        }
    }
}

/// Returns true if the kernel has taken all handlers away, in a child that was asked for so (CLONE_CLEAR_SIGHAND, clone(2)).
/// One is always there.
pub fn are_cleared() -> bool {
    kernel_action_of(libc::SIGSEGV).handler <= SIG_IGN
}

/// Called in such a child, without a runtime. The program's handlers are gone, what it ignores stays ignored, and what the
/// runtime must see comes to it again.
pub fn clear_actions() {
    let known = INHERITED.load(Ordering::Relaxed);
    for signal in (1..SIGNALS as i32).filter(|&signal| known & bit(signal) != 0) {
        let handler = match ACTIONS[signal as usize].get().handler {
            SIG_IGN => SIG_IGN,
            _ => SIG_DFL,
        };
        ACTIONS[signal as usize].set(&KernelAction {
            handler,
            ..KernelAction::default()
        });
        masks::handles(signal, is_caught(signal, handler));
        if matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGSYS) || shows_stacks(signal) {
            take_over(signal);
        }
    }
}

/// Called when the calling process, which has no runtime, asks to be traced: what ends it by default is the kernel's to do again, as a
/// tracer would see what the runtime's handler does. Its parent, which has a runtime, may have left them to that.
pub fn give_defaults_back() {
    for signal in 1..SIGNALS as i32 {
        let action = ACTIONS[signal as usize].get();
        if action.handler == SIG_DFL && ends_by_default(signal) && !is_caught(signal, SIG_DFL) {
            set_kernel_action(signal, &action);
        }
    }
}

/// rt_sigaction(2) of a thread on an activation. What the process has been sent before meets the handler that is taken away. Faults are
/// not sent, whoever aborts waits for nobody, and what activations never block cannot be closed to them.
pub fn sigaction_of_thread(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
) -> i64 {
    let (signal, new) = (frame.rdi as i32, frame.rsi as usize);
    let takes_away = new != 0
        && (1..SIGNALS as i32).contains(&signal)
        && !is_fault(signal)
        && signal != libc::SIGABRT
        && preempt::OWN & bit(signal) == 0
        && disposition(signal) == Disposition::Handled
        && access::load_u64(new) == Ok(SIG_DFL as u64);
    if takes_away {
        settled::meeting_handler(runtime, thread, bit(signal), || sigaction(frame))
    } else {
        sigaction(frame)
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
    inherit(signal);
    let before = ACTIONS[signal as usize].get();
    if new != 0 {
        let word = |index: usize| access::load_u64(new + 8 * index);
        let (Ok(handler), Ok(flags), Ok(restorer), Ok(mask)) = (word(0), word(1), word(2), word(3))
        else {
            return -i64::from(libc::EFAULT);
        };
        let action = KernelAction {
            handler: handler as usize,
            flags: flags & KNOWN_FLAGS,
            restorer: restorer as usize,
            mask: mask & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP)),
        };
        // A handler is noted before the kernel can call it; a default action after that.
        if action.handler > SIG_IGN {
            ACTIONS[signal as usize].set(&action);
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

/// The kernel's default action for a signal, although the runtime wants to see it: the process is
/// about to end by it.
pub fn take_default(signal: i32) {
    set_kernel_action(signal, &KernelAction::default());
}

/// Returns the mask of a handler that interrupts a thread with the mask `before`.
pub(super) fn action_mask(signal: i32, before: u64) -> u64 {
    let action = ACTIONS[signal as usize].get();
    let own = if action.flags & libc::SA_NODEFER as u64 == 0 {
        bit(signal)
    } else {
        0
    };
    before | action.mask | own
}

/// Returns the handler that the kernel calls for every signal.
fn entry() -> usize {
    arch::signal_entry(super::place, super::on_signal)
}
