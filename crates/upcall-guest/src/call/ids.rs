//! Calls for which the id of any thread stands for its process: kill(2), getpgid(2), process_vm_readv(2) and others.
//!
//! The kernel does not know the ids of threads without an agent. Such a call is made with the id of a bound thread's kernel
//! thread, or with that of the process.
//!
//! *Not done:* calls that need a kernel thread of the thread's own: ptrace(2), pidfd_open(2), and F_OWNER_TID except for
//! the first thread and bound ones.

use core::sync::atomic::Ordering;

use upcall_linux::Runtime;

use crate::ground::entry::{Frame, NEVER, pass_through, program_call, raw_syscall};
use crate::ground::identity::FIRST;
use crate::ground::state::GUEST;
use crate::ground::{access, record};

/// Returns true if the fcntl(2) or ioctl(2) gives a descriptor an owner by a number, which may be a thread's id.
pub fn names_owner(frame: &Frame) -> bool {
    const FIOSETOWN: u64 = 0x8901;
    const SIOCSPGRP: u64 = 0x8902;
    match frame.rax as i64 {
        libc::SYS_fcntl => frame.rsi as i32 == libc::F_SETOWN,
        libc::SYS_ioctl => matches!(frame.rsi, FIOSETOWN | SIOCSPGRP),
        _ => false,
    }
}

/// Makes a call of [`names_owner`]. It names the process in place of a thread.
// Not inlined, as below.
#[inline(never)]
pub fn name_owner(frame: &Frame) -> i64 {
    let mut words = [frame.rdi, frame.rsi, frame.rdx, 0, 0, 0];
    let process;
    if frame.rax as i64 == libc::SYS_fcntl {
        words[2] = process_of(frame.rdx as i32) as u64;
    } else if let Ok(id) = access::load_u32(frame.rdx as usize) {
        process = process_of(id as i32);
        words[2] = (&raw const process) as u64;
    }
    // SAFETY: the program's own call; the kernel reads one word where the program says, or here.
    (unsafe { pass_through(frame.rax as i64, words) }) as i64
}

/// Returns true if fcntl(2) with this command makes the calling kernel thread the owner of a descriptor that has none. The
/// descriptor's signals then go to the process, and end when that kernel thread ends.
pub fn takes_ownership(command: i32) -> bool {
    matches!(command, libc::F_SETLEASE | libc::F_NOTIFY)
}

/// Makes such a call. The process becomes the owner first, because the activation may end while the thread lives.
// Not inlined, as below.
#[inline(never)]
pub fn own_by_process(frame: &Frame, make: impl FnOnce() -> i64) -> i64 {
    let owner = |command: i32, who: u64| {
        let words = [frame.rdi, command as u64, who, 0, 0, 0];
        // SAFETY: the call reads and writes no memory of the program's.
        (unsafe { raw_syscall(libc::SYS_fcntl, words) }) as i64
    };
    if owner(libc::F_GETOWN, 0) != 0 {
        return make();
    }
    owner(libc::F_SETOWN, u64::from(GUEST.pid.load(Ordering::Relaxed)));
    let answer = make();
    if answer != 0 {
        owner(libc::F_SETOWN, 0);
    }
    answer
}

/// The command of [`set_owner`].
pub const F_SETOWN_EX: i32 = 15;

/// Returns the id of this process if `id` is that of a thread which the kernel does not know; else `id`.
pub fn process_of(id: i32) -> i32 {
    match id >= FIRST && GUEST.identities.find(id).is_some() {
        true => GUEST.pid.load(Ordering::Relaxed) as i32,
        false => id,
    }
}

/// Returns an id that the kernel knows in place of that of a thread which it does not know; else `id`.
pub fn known_for(id: i32) -> i32 {
    match (id >= FIRST).then(|| GUEST.identities.find(id)).flatten() {
        Some(thread) => match record::kernel_id(thread) {
            Some(kernel_id) => kernel_id,
            None => GUEST.pid.load(Ordering::Relaxed) as i32,
        },
        None => id,
    }
}

/// Makes the call, and names the process where the program names a thread.
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
pub fn serve(runtime: &'static Runtime, frame: &Frame) -> i64 {
    match words(frame) {
        Ok(words) => {
            // SAFETY: the program's own call.
            let make = || unsafe { program_call(&words, &frame.made, &NEVER) };
            runtime.blocking(make) as i64
        }
        Err(error) => error,
    }
}

pub fn serve_outside(frame: &Frame) -> i64 {
    match words(frame) {
        // SAFETY: the program's own call.
        Ok(words) => (unsafe { program_call(&words, &frame.made, &NEVER) }) as i64,
        Err(error) => error,
    }
}

/// Returns the call as [`serve`] makes it, or its error.
fn words(frame: &Frame) -> Result<[u64; 7], i64> {
    const WHO_PROCESS: u64 = 1;
    let mut words = frame.words();
    let number = frame.rax as i64;
    let named = match number {
        libc::SYS_ioprio_get | libc::SYS_ioprio_set if frame.rdi == WHO_PROCESS => 2..3,
        libc::SYS_ioprio_get | libc::SYS_ioprio_set => 0..0,
        libc::SYS_kcmp => 1..3,
        _ => 1..2,
    };
    for word in &mut words[named] {
        let id = *word as i32;
        let known = known_for(id);
        if known != id {
            if number == libc::SYS_setpgid {
                // The thread is not the leader of its process.
                return Err(-i64::from(libc::EINVAL));
            }
            *word = known as u64;
        }
    }
    Ok(words)
}

/// fcntl(2) with F_SETOWN_EX. The kernel can signal a bound thread by the id of its kernel thread, and the first thread as
/// the process. For any other thread the answer is ESRCH; agents see no signals.
// Not inlined, as above.
#[inline(never)]
pub fn set_owner(frame: &Frame) -> i64 {
    const F_OWNER_TID: u32 = 0;
    const F_OWNER_PID: u32 = 1;
    let mut owner = [F_OWNER_TID, 0];
    let mut words = [frame.rdi, frame.rsi, frame.rdx, 0, 0, 0];
    let at = frame.rdx as usize;
    if let (Ok(F_OWNER_TID), Ok(id)) = (access::load_u32(at), access::load_u32(at.wrapping_add(4)))
        && id != 0
        && let Some(thread) = GUEST.identities.find(id as i32)
    {
        owner[1] = match record::kernel_id(thread) {
            Some(kernel_id) => kernel_id as u32,
            None if id == GUEST.pid.load(Ordering::Relaxed) => {
                owner[0] = F_OWNER_PID;
                id
            }
            None => return -i64::from(libc::ESRCH),
        };
        words[2] = owner.as_ptr() as u64;
    }
    // SAFETY: the program's own call; the kernel reads two words where the program says, or here.
    (unsafe { pass_through(libc::SYS_fcntl, words) }) as i64
}
