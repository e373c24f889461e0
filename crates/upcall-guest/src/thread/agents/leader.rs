//! The leader becomes the first thread's agent.
//!
//! Its id is the process's id, which is the first thread's, and the kernel has had that thread's robust list since before
//! the runtime started. So another kernel thread takes the leader's place before the runtime starts. clone(2) without a
//! stack of its own continues on the caller's stack, with the caller's registers, and the caller leaves that stack at the
//! next instruction. *Rejected:* to make the first thread's calls by a signal on the leader. As an activation it might
//! carry the very thread that holds the mutex.
//!
//! Signals that are pending for the leader alone move along, and so do its alternate stack and its dispatch.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use upcall_core::Errno;
use upcall_linux::{Runtime, Thread, base, clone, own_pending, own_syscall, spawn};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::raw_syscall;
use crate::ground::mask;
use crate::ground::state::GUEST;
use crate::signal::dispatch;

use super::{Agent, USED, appoint, imports, map, serve};

/// The first thread's agent, once the caller of [`give_way`] has become it.
static LEADER: AtomicPtr<Agent> = AtomicPtr::new(core::ptr::null_mut());

/// The id of the kernel thread that took its place. Nobody reads it: clone(2) is asked for exactly what libc asks for,
/// since there are filters that let nothing else through.
static SUCCESSOR: AtomicI32 = AtomicI32::new(0);

/// Returns true if this is the first thread's agent.
pub fn is_leader(agent: &'static Agent) -> bool {
    core::ptr::eq(agent, LEADER.load(Ordering::Relaxed))
}

/// Called before the runtime starts. In programs that need agents the leader becomes one, and another kernel thread goes on
/// from here.
///
/// Rings of io_uring(7) belong to the kernel thread that has made them, so programs that have some keep it.
///
/// # Errors
///
/// The kernel's error when it gives no memory or no kernel thread.
pub fn give_way(runtime: &'static Runtime) -> Result<(), Errno> {
    if !imports::found() || GUEST.uses_io_uring.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: asks only.
    let [pid, tid] = [libc::SYS_getpid, libc::SYS_gettid]
        .map(|number| unsafe { raw_syscall(number, [0; 6]) } as i32);
    if pid != tid {
        // A child of fork is always its own first kernel thread; this one has given way in a start that failed.
        USED.store(!LEADER.load(Ordering::Relaxed).is_null(), Ordering::Relaxed);
        return Ok(());
    }
    if dispatch::may_start().is_err() {
        // A filter forbids what the new kernel thread would need.
        return Ok(());
    }
    let agent = map(runtime)?;
    agent.tid.store(pid, Ordering::Relaxed);
    let mask = mask::kernel_mask();
    mask::set_kernel_mask(spawn::BLOCKED);
    let mut stack = [0u64; 3];
    // SAFETY: writes 24 bytes.
    unsafe {
        raw_syscall(
            libc::SYS_sigaltstack,
            [0, stack.as_mut_ptr() as u64, 0, 0, 0, 0],
        )
    };
    let mut kept = [[0u64; 16]; 32];
    let nr_kept = take_pending(mask, &mut kept);
    // SAFETY: the new kernel thread has this stack alone from here on.
    let answer = unsafe {
        swap(
            agent.stack_top(),
            lead,
            core::ptr::from_ref(agent) as usize,
            base::thread_pointer(),
            SUCCESSOR.as_ptr(),
        )
    };
    if answer == 0 {
        LEADER.store(core::ptr::from_ref(agent).cast_mut(), Ordering::Relaxed);
        USED.store(true, Ordering::Relaxed);
        // SAFETY: the alternate stack of the thread that goes on here.
        unsafe {
            raw_syscall(
                libc::SYS_sigaltstack,
                [stack.as_ptr() as u64, 0, 0, 0, 0, 0],
            )
        };
        dispatch::begin();
    }
    give_back(pid, &kept[..nr_kept]);
    mask::set_kernel_mask(mask);
    match answer {
        0 => Ok(()),
        error => Err(Errno(-error as i32)),
    }
}

/// Takes the first steps of the first thread's agent. When it ends the kernel clears the agent's own word, and not the
/// thread's in libc's control block.
extern "C" fn lead(agent: usize) -> ! {
    // SAFETY: `give_way` passes an agent, which is there for ever.
    unsafe {
        let word = (*(agent as *const Agent)).tid.as_ptr() as u64;
        raw_syscall(libc::SYS_set_tid_address, [word, 0, 0, 0, 0, 0]);
    }
    serve(agent)
}

/// Takes the signals that are pending for the calling kernel thread alone. `mask` blocks them.
fn take_pending(mask: u64, kept: &mut [[u64; 16]]) -> usize {
    let mut nr_kept = 0;
    while nr_kept < kept.len() {
        let set = own_pending() & mask;
        let now = [0u64; 2];
        let information = kept[nr_kept].as_mut_ptr() as u64;
        let words = [
            (&raw const set) as u64,
            information,
            now.as_ptr() as u64,
            8,
            0,
            0,
        ];
        // SAFETY: reads the set and the time, writes 128 bytes.
        if set == 0 || unsafe { raw_syscall(libc::SYS_rt_sigtimedwait, words) } <= 0 {
            break;
        }
        nr_kept += 1;
    }
    nr_kept
}

/// Queues signals to the calling kernel thread.
fn give_back(pid: i32, kept: &[[u64; 16]]) {
    for information in kept {
        // SAFETY: reads 128 bytes.
        unsafe {
            let tid = raw_syscall(libc::SYS_gettid, [0; 6]) as u64;
            let signal = information[0] & 0xffff_ffff;
            let words = [pid as u64, tid, signal, information.as_ptr() as u64, 0, 0];
            raw_syscall(libc::SYS_rt_tgsigqueueinfo, words);
        }
    }
}

/// Called when an activation has adopted the first thread, which keeps the process's id and has its agent.
pub fn adopt_leader(thread: &'static Thread) {
    // SAFETY: null, or an agent, whose memory is there for ever.
    let leader = unsafe { LEADER.load(Ordering::Relaxed).as_ref() };
    let leader = leader.filter(|_| super::are_used());
    if leader.is_some() {
        let pid = GUEST.pid.load(Ordering::Relaxed) as i32;
        thread.guest().tid.store(pid, Ordering::SeqCst);
    }
    appoint(thread, leader);
}

/// Starts a kernel thread that returns from here with 0, with this thread pointer, and its id in `tid`. The caller goes on
/// at `begin(argument)`, on `stack`, and does not come back, unless the kernel's answer is an error.
///
/// # Safety
///
/// Nothing that belongs to the kernel thread alone is needed any more; `begin` does not return. The signals in
/// [`spawn::BLOCKED`] are blocked.
#[unsafe(naked)]
unsafe extern "C" fn swap(
    stack: usize,
    begin: extern "C" fn(usize) -> !,
    argument: usize,
    thread_pointer: usize,
    tid: *mut i32,
) -> i64 {
    naked_asm!(
        "push rbx",
        "push r12",
        "push r13",
        "mov r12, rdi",
        "mov r13, rsi",
        "mov rbx, rdx",
        "mov edi, {flags}",
        "xor esi, esi",
        "mov rdx, r8",
        "mov r10, r8",
        "mov r8, rcx",
        "mov eax, 56",
        own_syscall!(),
        "test rax, rax",
        "jg 2f",
        "pop r13",
        "pop r12",
        "pop rbx",
        "ret",
        // The new kernel thread may be using the old stack by now.
        "2:",
        "mov rsp, r12",
        "mov rdi, rbx",
        "xor ebp, ebp",
        "call r13",
        "ud2",
        flags = const clone::FLAGS,
    )
}
