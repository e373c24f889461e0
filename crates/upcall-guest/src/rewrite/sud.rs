//! Syscall User Dispatch: for the system-call instructions that are not rewritten. See docs/adr/0020.
//!
//! While it is on for a kernel thread, a `syscall` instruction anywhere outside our own text raises SIGSYS there. The
//! handler makes a [`Frame`] of the interrupted registers and calls the same hook as a stub does. A trapped call costs
//! microseconds, for the delivery of a signal and the return from it; a stub costs ten nanoseconds; and every call that is
//! let through costs some nanoseconds more. So it is switched on only when there may be such instructions
//! (`signal::dispatch`).
//!
//! The kernel lets one contiguous range of program counters through, and consults a selector byte elsewhere. The range is
//! the executable segment that holds this crate: raw calls wherever they are inlined, signal return, and the stubs near us,
//! whose area is part of it. The byte is a constant BLOCK.
//!
//! A call that traps while SIGSYS is blocked kills the process. So while dispatch is on, code that serves the program's
//! calls leaves `mask::MASK_BIT` out of every mask that it sets (`upcall_linux::preempt::OWN`, `signal::alone`), and
//! handlers return through our own restorer (libc's would trap under the handler's mask).
//!
//! 1. An ordinary trapped call: the hook runs inside the signal handler, on the program's stack. SIGSYS is not blocked
//!    meanwhile, so the hook may switch to another thread. Afterwards the frame gets the mask that the call left
//!    (`signal::on_signal`).
//! 2. `rt_sigreturn` of libc's own restorer traps too: it is made again from our text, from the frame that the program's
//!    stack pointer names. It never reaches the hook.
//! 3. [`mode::AT_SITE`]: the signal returns into the site's stub copy, whose call is in our text. Code that was made at run
//!    time has none, and `at_site` is 0: fork is then made in the hook, and the child returns through its copy of the
//!    handler.
//! 4. A new kernel thread and a forked process start without dispatch: they call [`enable`].

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::{fmt, ptr};

use crate::ground::arch;
use crate::ground::entry::{self, Frame, mode, pass_through, raw_syscall};
use crate::rewrite::object::{Object, Role};
use crate::rewrite::patch;
use crate::rewrite::site::SYSCALL_LENGTH;

const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const OFF: u64 = 0;
const ON: u64 = 1;
/// The code of such a signal.
pub const SYS_USER_DISPATCH: i32 = 2;
/// What is no error number, in the siginfo_t of one that `signal::user_dispatch` has made.
pub const MARK: u32 = 0x5550_4341;
/// In the signal frame's vector state: XSAVE format, not only FXSAVE.
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const MAGIC_OFFSET: usize = 464;

/// The selector byte: everything outside the range is dispatched.
static BLOCK: u8 = 1;

/// Our own text.
static RANGE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Calls that were dispatched.
static TRAPPED: AtomicU64 = AtomicU64::new(0);

/// Notes where our own text is: the executable segment that holds this crate. Before [`enable`].
pub fn note_range(objects: &[Object]) {
    let own = objects
        .iter()
        .filter(|o| o.role == Role::Runtime)
        .flat_map(|o| &o.segments)
        .find(|s| s.is_executable() && s.range.contains(&arch::anchor()));
    if let Some(own) = own {
        RANGE[0].store(own.range.start, Ordering::Relaxed);
        RANGE[1].store(own.range.end, Ordering::Relaxed);
    }
}

/// Returns the text whose system calls the kernel lets through.
pub fn range() -> Range<usize> {
    RANGE[0].load(Ordering::Relaxed)..RANGE[1].load(Ordering::Relaxed)
}

/// Returns how many calls were dispatched so far.
pub fn trapped() -> u64 {
    TRAPPED.load(Ordering::Relaxed)
}

/// Why dispatch cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The error number of `prctl`.
    pub errno: i32,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = self.errno;
        writeln!(f, "Syscall User Dispatch is not available")?;
        writeln!(
            f,
            "  prctl(PR_SET_SYSCALL_USER_DISPATCH) fails with errno {errno}"
        )?;
        match errno {
            libc::EPERM | libc::ENOSYS | libc::EACCES => write!(
                f,
                "  a seccomp filter forbids it: allow prctl option 59 in the container's profile"
            ),
            _ => write!(
                f,
                "  it needs Linux 5.11 or newer, built with GENERIC_ENTRY on x86-64"
            ),
        }
    }
}

impl std::error::Error for Unavailable {}

/// Returns an error if the kernel lacks it, for `doctor`. Changes nothing, except that dispatch is off afterwards for this
/// kernel thread.
pub fn probe() -> Result<(), Unavailable> {
    disable()
}

/// Switches dispatch on for the current kernel thread. The handler must be in place
/// ([`install`], or a handler that calls [`handle`]).
///
/// # Upcall safety
/// Everywhere.
pub fn enable() -> Result<(), Unavailable> {
    let [number, words @ ..] = request();
    // SAFETY: the call that the document describes.
    outcome(unsafe { raw_syscall(number as i64, words) })
}

/// As [`enable`], for a kernel thread whose creator was just answered the same call: both have the same
/// filters.
///
/// # Upcall safety
/// Everywhere.
pub fn enable_as_creator() -> Result<(), Unavailable> {
    let [number, words @ ..] = request();
    // SAFETY: as in `enable`.
    outcome(unsafe { pass_through(number as i64, words) })
}

/// Returns the system call that [`enable`] makes: its number and words.
pub fn request() -> [u64; 7] {
    let range = range();
    [
        libc::SYS_prctl as u64,
        PR_SET_SYSCALL_USER_DISPATCH,
        ON,
        range.start as u64,
        range.len() as u64,
        (&raw const BLOCK) as u64,
        0,
    ]
}

/// Switches dispatch off for the current kernel thread.
///
/// # Upcall safety
/// Everywhere.
pub fn disable() -> Result<(), Unavailable> {
    let words = [PR_SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, 0, 0];
    // SAFETY: changes nothing else.
    outcome(unsafe { raw_syscall(libc::SYS_prctl, words) })
}

/// What the answer to [`request`] means.
pub fn outcome(result: isize) -> Result<(), Unavailable> {
    match result {
        0 => Ok(()),
        error => Err(Unavailable {
            errno: -error as i32,
        }),
    }
}

/// The kernel's own `struct sigaction`.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Makes [`on_signal`] the handler of SIGSYS. The error is an error number.
///
/// # Safety
/// The program's own SIGSYS action, if it has one, is kept elsewhere.
pub unsafe fn install() -> Result<(), i32> {
    const SA_RESTORER: u64 = 0x0400_0000;
    let action = KernelAction {
        handler: on_signal as *const () as usize,
        flags: libc::SA_SIGINFO as u64 | libc::SA_NODEFER as u64 | SA_RESTORER,
        restorer: arch::signal_return().0,
        mask: 0,
    };
    let args = [
        libc::SIGSYS as u64,
        (&raw const action) as u64,
        0,
        size_of::<u64>() as u64,
        0,
        0,
    ];
    // SAFETY: the action is valid and its code lives as long as this library.
    match unsafe { raw_syscall(libc::SYS_rt_sigaction, args) } {
        0 => Ok(()),
        error => Err(-error as i32),
    }
}

/// The signal handler. A SIGSYS that is not a dispatched call takes its default action.
///
/// # Safety
/// Called by the kernel with a signal frame.
///
/// # Upcall safety
/// It runs in program context; see [`handle`].
pub unsafe extern "C" fn on_signal(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the kernel passes a valid frame.
    if unsafe { handle(info, context) } {
        return;
    }
    let default = KernelAction {
        handler: libc::SIG_DFL,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    let action = [signal as u64, (&raw const default) as u64, 0, 8, 0, 0];
    // SAFETY: plain calls on our own process; the signal then ends it.
    unsafe {
        raw_syscall(libc::SYS_rt_sigaction, action);
        let thread = raw_syscall(libc::SYS_gettid, [0; 6]) as u64;
        let process = raw_syscall(libc::SYS_getpid, [0; 6]) as u64;
        raw_syscall(libc::SYS_tgkill, [process, thread, signal as u64, 0, 0, 0]);
    }
}

/// Returns true if a signal is a dispatched system call.
///
/// # Safety
/// `info` is what the kernel passed to a handler.
///
/// # Upcall safety
/// Everywhere.
pub unsafe fn is_call(info: *const libc::siginfo_t) -> bool {
    // SAFETY: the caller's promise.
    let info = unsafe { &*info };
    info.si_signo == libc::SIGSYS
        && info.si_code == SYS_USER_DISPATCH
        && info.si_errno as u32 != MARK
}

/// Serves a dispatched system call: calls the installed handler on the interrupted registers and
/// writes them back. Says `false`, and does nothing, if the signal is something else.
///
/// Vector registers stay as they were interrupted, whatever the hook writes to the frame.
///
/// # Safety
/// `info` and `context` are what the kernel passed to a handler that runs under the thread's mask, and on
/// its memory.
///
/// # Upcall safety
/// No TLS, no allocation; the hook may do what it does in a stub.
pub unsafe fn handle(info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) -> bool {
    // SAFETY: the caller's promise.
    if !unsafe { is_call(info) } {
        return false;
    }
    // SAFETY: the caller's promise.
    let context = unsafe { &mut *context };
    let registers = &mut context.uc_mcontext.gregs;
    let number = registers[libc::REG_RAX as usize];
    if number == libc::SYS_rt_sigreturn {
        let (_, signal_return) = arch::signal_return();
        // SAFETY: the program was about to return from the signal frame at its stack pointer.
        unsafe { signal_return(registers[libc::REG_RSP as usize] as u64) };
    }
    TRAPPED.fetch_add(1, Ordering::Relaxed);
    let site = registers[libc::REG_RIP as usize] as usize - SYSCALL_LENGTH;
    // SAFETY: the kernel's pointer to its own vector state, valid while the handler runs.
    let mut frame = unsafe { frame_of(context) };
    frame.at_site = patch::trapped_site(site)
        .filter(|&stub| range().contains(&stub))
        .unwrap_or(0) as u64;
    let handler = entry::handler();
    // SAFETY: the frame is complete, as the hook's contract asks.
    unsafe { handler(&mut frame) };
    write_back(&frame, context);
    true
}

/// # Safety
/// `context` is a signal frame of the kernel.
unsafe fn frame_of(context: &libc::ucontext_t) -> Frame {
    let register = |r: i32| context.uc_mcontext.gregs[r as usize] as u64;
    let vectors = context.uc_mcontext.fpregs;
    let mut frame = Frame {
        rax: register(libc::REG_RAX),
        rdi: register(libc::REG_RDI),
        rsi: register(libc::REG_RSI),
        rdx: register(libc::REG_RDX),
        r10: register(libc::REG_R10),
        r8: register(libc::REG_R8),
        r9: register(libc::REG_R9),
        rbx: register(libc::REG_RBX),
        rbp: register(libc::REG_RBP),
        r12: register(libc::REG_R12),
        r13: register(libc::REG_R13),
        r14: register(libc::REG_R14),
        r15: register(libc::REG_R15),
        rflags: register(libc::REG_EFL),
        rsp: register(libc::REG_RSP),
        rip: register(libc::REG_RIP),
        resume: register(libc::REG_RIP),
        ..Frame::empty()
    };
    if !vectors.is_null() {
        // SAFETY: the kernel's FXSAVE image: 16 registers, and the magic in its reserved bytes.
        unsafe {
            for (to, from) in frame.xmm.iter_mut().zip(&(*vectors)._xmm) {
                *to = ptr::from_ref(from).cast::<[u64; 2]>().read_unaligned();
            }
            if has_xsave(vectors.cast()) {
                frame.wide = vectors.cast();
            }
        }
    }
    frame
}

/// Returns true if a signal frame's vector state is XSAVE's, not only FXSAVE's.
///
/// # Safety
/// The kernel's pointer to it.
pub unsafe fn has_xsave(vectors: *const u8) -> bool {
    // SAFETY: the caller's promise.
    (unsafe { vectors.add(MAGIC_OFFSET).cast::<u32>().read_unaligned() }) == FP_XSTATE_MAGIC1
}

fn write_back(frame: &Frame, context: &mut libc::ucontext_t) {
    let target = if frame.mode == mode::AT_SITE && frame.at_site != 0 {
        frame.at_site
    } else {
        frame.resume
    };
    let registers = &mut context.uc_mcontext.gregs;
    frame.show(registers);
    registers[libc::REG_RAX as usize] = frame.rax as i64;
    registers[libc::REG_EFL as usize] = frame.rflags as i64;
    registers[libc::REG_RIP as usize] = target as i64;
}
