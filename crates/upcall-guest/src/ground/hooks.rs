//! What lower floors ask of higher ones. [`crate::start`] sets these functions before code of the program runs.

use core::ops::Range;
use std::sync::OnceLock;

use upcall_core::Errno;
use upcall_linux::{Inside, Runtime, Thread};

/// The functions of the higher floors.
pub struct Hooks {
    /// Makes a process without threads ready for them, once: rewrites what was left at start.
    pub make_ready: fn(),
    /// Starts the runtime, with the caller as its first thread.
    pub start: fn() -> Result<&'static Runtime, Errno>,
    /// The process is about to end.
    pub at_exit: fn(),
    /// The process is the child of a fork.
    pub in_child: fn(),
    /// A time slice is over.
    pub tick: fn(&Inside, &'static Thread),
    /// Takes a thread that was stopped in the program's code to its own kernel thread, if it is bound. Returns true if it
    /// went.
    pub go_stopped: fn(&'static Runtime, &'static Thread) -> bool,
    /// A call of the program's is just back that has perhaps caused a signal for the kernel thread.
    pub caused: fn(),
    /// The agents make the call that every kernel thread must make.
    pub call_of_agents: fn(&'static Runtime),
    /// Returns the stack that the thread began on; none if that is not known.
    pub stack: fn(&'static Thread) -> Range<usize>,
    /// Returns true if the address is in the guard of the thread's stack.
    pub is_in_guard: fn(&'static Thread, usize) -> bool,
    /// Returns true if a frame may begin at the second address that goes below the first, a stack pointer of the thread's.
    pub has_room: fn(&'static Thread, usize, usize) -> bool,
    /// Reports that a thread has overflowed its stack, if the address says so. Returns true then.
    pub report_overflow: fn(&'static Thread, usize) -> bool,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the functions, once.
pub fn set(hooks: Hooks) {
    let _ = HOOKS.set(hooks);
}

/// Returns the functions that were set.
pub fn hooks() -> &'static Hooks {
    HOOKS.get().expect("they are set at start")
}

static BARRIERS_END: OnceLock<fn()> = OnceLock::new();

/// Sets what is called before the process may pass no barriers any more, outside of the runtime. Only the first function counts.
pub fn before_barriers_end(end: fn()) {
    let _ = BARRIERS_END.set(end);
}

/// Calls it, if there is one.
pub fn barriers_end() {
    if let Some(end) = BARRIERS_END.get() {
        end();
    }
}
