//! Starts kernel threads, by clone(2) without libc.

use crate::sys::arch;

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

/// A kernel thread of the process that is to be started: at `begin(argument)`.
#[derive(Clone, Copy)]
pub struct Start {
    /// The end of its stack.
    pub stack: usize,
    /// The address of the word that has its id from the start to its end.
    pub tid: usize,
    /// What its thread pointer is. None of the program's code uses that before a thread has its own.
    pub thread_pointer: usize,
    /// Its first function, which does not return.
    pub begin: extern "C" fn(usize) -> !,
    /// That function's argument.
    pub argument: usize,
}

/// Has another kernel thread start one, as [`Start::make`].
pub type Starter = unsafe fn(&Start) -> isize;

impl Start {
    /// Starts it. All signals but SIGSYS should be blocked. Returns its id, or the kernel's negative error.
    ///
    /// # Safety
    ///
    /// The stack is writable and free; the id's word is there as long as the kernel thread.
    pub unsafe fn make(&self) -> isize {
        let flags = FLAGS as usize;
        // SAFETY: the caller's conditions; `begin` does not return.
        unsafe {
            raw(
                flags,
                self.stack,
                self.tid,
                self.tid,
                self.thread_pointer,
                self.begin,
                self.argument,
            )
        }
    }
}

/// Starts a kernel thread that is no activation: at `begin(argument)` on the stack that ends at
/// `stack`. Returns its id, or the kernel's negative error.
///
/// # Safety
///
/// The stack is writable and free; `begin` does not return; the id addresses are the caller's.
pub unsafe fn raw(
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
