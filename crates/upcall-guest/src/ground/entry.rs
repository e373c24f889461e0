//! What a handler sees of a system call: the frame, and the hooks that are called with it.
//!
//! The protocol of one system call:
//! 1. The stub enters with a [`Frame`] of the registers as they were at the site.
//! 2. The handler runs on the program's own stack, below the red zone. It leaves the result in `rax`, and in `mode` how to
//!    go on.
//! 3. [`mode::CONTINUE`] returns through the stub. [`mode::RELOAD`] loads every register, the stack pointer and `resume`
//!    included, from the frame. [`mode::AT_SITE`] makes the real system call with the site's own registers and stack, and
//!    then calls the `after` hook, in the parent and in the child.
//!
//! The hooks may switch to another thread and come back on another activation. They must use well under 16 KiB of stack:
//! libc gives back the unused part of a dying thread's stack (`madvise`) from 16 KiB below its own frame on, and small
//! stacks are legal.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, Ordering};

pub use crate::ground::arch::{
    NEVER, Progress, give_up, pass_through, program_call, progress, raw_syscall, resume,
};

/// What an entry does after the hook.
pub mod mode {
    /// Return to the site with the frame's registers. The default.
    pub const CONTINUE: u64 = 0;
    /// Make the real system call at the site, on its stack, then call the `after` hook. Valid
    /// only if `at_site` is not zero, and only in the handler.
    pub const AT_SITE: u64 = 1;
    /// Load everything from the frame, `rsp` and `resume` included.
    pub const RELOAD: u64 = 2;
}

/// The registers at a system call. The kernel keeps all but rax, rcx and r11, so they are here.
///
/// Unwinders, debuggers and signal code that need "the thread at its system call" use `rip`
/// (the address after the instruction), `rsp` and the rest as they stand.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub struct Frame {
    /// The system-call number at entry, the result at exit.
    pub rax: u64,
    /// First argument.
    pub rdi: u64,
    /// Second argument.
    pub rsi: u64,
    /// Third argument.
    pub rdx: u64,
    /// Fourth argument.
    pub r10: u64,
    /// Fifth argument.
    pub r8: u64,
    /// Sixth argument.
    pub r9: u64,
    /// Kept register.
    pub rbx: u64,
    /// Kept register.
    pub rbp: u64,
    /// Kept register.
    pub r12: u64,
    /// Kept register.
    pub r13: u64,
    /// Kept register.
    pub r14: u64,
    /// Kept register.
    pub r15: u64,
    /// The flags.
    pub rflags: u64,
    /// The stack pointer at the site.
    pub rsp: u64,
    /// The original address just after the system-call instruction.
    pub rip: u64,
    /// Where execution continues: in the stub, or `rip` itself for a trapped call.
    pub resume: u64,
    /// The stub's own system-call instruction, or 0 if the site has none.
    pub at_site: u64,
    /// One of [`mode`].
    pub mode: u64,
    /// The entry's own: where the stub's return address lies.
    pub return_slot: u64,
    /// The complete vector state (XSAVE format), or null if xmm is all there is. A copy of the
    /// frame that outlives the entry must copy that area too, or set this to null.
    pub wide: *mut u8,
    /// Not 0 once the call has left something behind: it will not be made again.
    pub made: Cell<u64>,
    /// xmm0 to xmm15.
    pub xmm: [[u64; 2]; 16],
}

impl Frame {
    /// Writes into a signal frame's registers what a call leaves as it found it: arguments, those
    /// that a function must preserve, and the stack pointer.
    pub fn show(&self, registers: &mut [i64; 23]) {
        let values = [
            (libc::REG_RDI, self.rdi),
            (libc::REG_RSI, self.rsi),
            (libc::REG_RDX, self.rdx),
            (libc::REG_R10, self.r10),
            (libc::REG_R8, self.r8),
            (libc::REG_R9, self.r9),
            (libc::REG_RBX, self.rbx),
            (libc::REG_RBP, self.rbp),
            (libc::REG_R12, self.r12),
            (libc::REG_R13, self.r13),
            (libc::REG_R14, self.r14),
            (libc::REG_R15, self.r15),
            (libc::REG_RSP, self.rsp),
        ];
        for (register, value) in values {
            registers[register as usize] = value as i64;
        }
    }

    /// The reverse of [`Frame::show`], but for the stack pointer.
    pub fn take(&mut self, registers: &[i64; 23]) {
        let fields = [
            (libc::REG_RDI, &mut self.rdi),
            (libc::REG_RSI, &mut self.rsi),
            (libc::REG_RDX, &mut self.rdx),
            (libc::REG_R10, &mut self.r10),
            (libc::REG_R8, &mut self.r8),
            (libc::REG_R9, &mut self.r9),
            (libc::REG_RBX, &mut self.rbx),
            (libc::REG_RBP, &mut self.rbp),
            (libc::REG_R12, &mut self.r12),
            (libc::REG_R13, &mut self.r13),
            (libc::REG_R14, &mut self.r14),
            (libc::REG_R15, &mut self.r15),
        ];
        for (register, field) in fields {
            *field = registers[register as usize] as u64;
        }
    }

    /// All zero: to build a frame by hand.
    pub const fn empty() -> Self {
        Self {
            rax: 0,
            rdi: 0,
            rsi: 0,
            rdx: 0,
            r10: 0,
            r8: 0,
            r9: 0,
            rbx: 0,
            rbp: 0,
            r12: 0,
            r13: 0,
            r14: 0,
            r15: 0,
            rflags: 0,
            rsp: 0,
            rip: 0,
            resume: 0,
            at_site: 0,
            mode: mode::CONTINUE,
            return_slot: 0,
            wide: core::ptr::null_mut(),
            made: Cell::new(0),
            xmm: [[0; 2]; 16],
        }
    }
}

/// A hook. It runs on the program's stack and may change the frame.
pub type Hook = unsafe extern "C" fn(frame: &mut Frame);

/// The handler that every stub enters. A plain word that the assembly calls through.
pub(crate) static HANDLER: AtomicPtr<()> = AtomicPtr::new(native as Hook as *mut ());
/// The hook after a system call at its site.
pub(crate) static AFTER: AtomicPtr<()> = AtomicPtr::new(nothing as Hook as *mut ());

/// Sets the two hooks. Until then the handler is [`native`] and `after` does nothing.
///
/// # Safety
/// The hooks obey the module's rules, and live as long as any stub can run.
pub unsafe fn install(handler: Hook, after: Hook) {
    // Release: pairs with the entry's plain load, which the processor does not reorder with
    // what it then reads through the hook.
    HANDLER.store(handler as *mut (), Ordering::Release);
    AFTER.store(after as *mut (), Ordering::Release);
}

/// Returns the hooks now installed.
pub(crate) fn hooks() -> (Hook, Hook) {
    (hook_in(&HANDLER), hook_in(&AFTER))
}

pub(crate) fn handler() -> Hook {
    hook_in(&HANDLER)
}

fn hook_in(hook: &AtomicPtr<()>) -> Hook {
    // Acquire: pairs with the Release in `install`.
    let hook = hook.load(Ordering::Acquire);
    // SAFETY: the statics only ever hold a `Hook`: their initial values and `install` see to it.
    unsafe { core::mem::transmute::<*mut (), Hook>(hook) }
}

/// Returns true if the kernel must be called at the site itself: the child starts there, or the frame of a signal is
/// found by the stack pointer.
pub fn needs_site(number: u64) -> bool {
    matches!(
        number as i64,
        libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_fork
            | libc::SYS_vfork
            | libc::SYS_rt_sigreturn
    )
}

/// A handler that does what the kernel does: every call passes unchanged. At a site without a
/// stub (`at_site` is 0) `vfork` becomes `fork`, which is made here and followed by the `after`
/// hook, and a child that shares the memory is refused with ENOSYS: it would run on the parent's
/// handler.
///
/// # Safety
/// `frame` comes from an entry.
///
/// # Upcall safety
/// Everywhere.
pub unsafe extern "C" fn native(frame: &mut Frame) {
    let forks = needs_site(frame.rax);
    if forks {
        if frame.at_site != 0 {
            frame.mode = mode::AT_SITE;
            return;
        }
        match frame.rax as i64 {
            libc::SYS_vfork => frame.rax = libc::SYS_fork as u64,
            libc::SYS_clone if frame.rdi & libc::CLONE_VM as u64 == 0 => {}
            libc::SYS_fork => {}
            _ => {
                frame.rax = -i64::from(libc::ENOSYS) as u64;
                return;
            }
        }
    }
    // SAFETY: the program made this call with these arguments.
    frame.rax = unsafe { frame.raw() } as u64;
    if forks {
        // SAFETY: the frame of a call that needs its site, in the parent and in the child.
        unsafe { hook_in(&AFTER)(frame) };
    }
}

/// An `after` hook that does nothing.
///
/// # Safety
/// None.
///
/// # Upcall safety
/// Everywhere.
pub unsafe extern "C" fn nothing(_frame: &mut Frame) {}
