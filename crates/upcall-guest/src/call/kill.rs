//! Signals that a thread sends to its own process: kill(2), rt_sigqueueinfo(2), pidfd_send_signal(2).
//!
//! The kernel gives such a signal to the first thread if that accepts it, else to another that does. If the sender gets it,
//! it is delivered before the call returns (kill(3p)). To the kernel the sender is just an activation, and any activation
//! that accepts the signal may take it, perhaps later. So:
//!
//! - A signal for the process alone that the first thread or the sender accepts is sent to that thread here. The sender
//!   sees it when it leaves the runtime. If neither does, and another thread does, it is sent to that one here, too: in the
//!   kernel that thread does nothing more of its own before its handler.
//! - A signal for a group of processes is sent by the kernel. If the sender is the only thread to accept it, the sender
//!   blocks it meanwhile and closes it to all activations ([`settled`]). The signal then waits in the kernel, which
//!   delivers it when the sender opens its mask again. Otherwise the sender takes the signal of its own process afterwards,
//!   if no other activation has it already, and sends it as above.
//! - The kernel also sends signals that nobody accepts, or only bound threads, and those that the runtime does not see
//!   (SIGKILL, SIGTSTP by default). Before that they are closed to all activations, none of which then takes one, to give it
//!   back behind those that were sent later.

use core::sync::atomic::Ordering;

use upcall_linux::{Inside, Runtime, Thread};

use crate::call::ids;
use crate::ground::access;
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::file::read_file;
use crate::ground::mask::{self, bit};
use crate::ground::state::GUEST;
use crate::ground::text::{after, leading_number, put_number};
use crate::signal::pending::{self, Information, Sent};
use crate::signal::queued::SI_USER;
use crate::signal::send::{is_privileged, read};
use crate::signal::{self, queued, receivers, settled};

/// The number that names the caller's process in place of a descriptor.
const PIDFD_SELF_PROCESS: i32 = -10001;
/// A flag that names the process, as does no flag at all.
const PIDFD_SIGNAL_PROCESS: u64 = 2;
const EAGAIN: i64 = -(libc::EAGAIN as i64);
const EFAULT: i64 = -(libc::EFAULT as i64);
const EPERM: i64 = -(libc::EPERM as i64);

/// kill(2).
pub fn kill(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let (whom, signal) = (ids::process_of(frame.rdi as i32), frame.rsi as i32);
    let own = GUEST.pid.load(Ordering::Relaxed) as i32;
    let make = || ids::serve(runtime, frame);
    if !may_be_ours(signal) {
        return make();
    }
    if whom == own {
        let information = pending::from_self(signal, SI_USER);
        return send(runtime, thread, signal, &information).unwrap_or_else(make);
    }
    if !is_own_group(whom) {
        return make();
    }
    if is_only_one(thread, signal) {
        let before = thread.kernel.mask.load(Ordering::Relaxed);
        // No handler may run before the signal is there: it would see this mask, and may leave the call.
        signal::set_thread_mask(runtime, thread, !mask::UNBLOCKABLE);
        settled::settle_for_call(runtime, bit(signal));
        let answer = make();
        signal::set_thread_mask(runtime, thread, before);
        return answer;
    }
    let answer = make();
    if answer == 0 {
        take_own(runtime, thread, signal);
    }
    answer
}

/// Returns true if the sender accepts the signal and no other thread does.
fn is_only_one(sender: &'static Thread, signal: i32) -> bool {
    let mut others = false;
    GUEST.identities.each(|thread| {
        let lives = thread.guest().tid.load(Ordering::SeqCst) != 0;
        others = lives && !core::ptr::eq(thread, sender) && receivers::accepts(thread, signal);
        !others
    });
    !others && signal::blocked_by(sender) & bit(signal) == 0
}

/// rt_sigqueueinfo(2).
pub fn queue(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let (whom, signal) = (ids::process_of(frame.rdi as i32), frame.rsi as i32);
    if whom != GUEST.pid.load(Ordering::Relaxed) as i32 || !(1..=64).contains(&signal) {
        return ids::serve(runtime, frame);
    }
    let Ok(information) = read(frame.rdx as usize, signal) else {
        return EFAULT;
    };
    queue_to_process(runtime, thread, signal, &information)
}

/// pidfd_send_signal(2). Returns `None` if the kernel must serve it.
pub fn send_by_descriptor(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
) -> Option<i64> {
    let signal = frame.rsi as i32;
    if !may_be_ours(signal)
        || frame.r10 & !PIDFD_SIGNAL_PROCESS != 0
        || !is_own_process(frame.rdi as i32)
    {
        return None;
    }
    if frame.rdx == 0 {
        return send(
            runtime,
            thread,
            signal,
            &pending::from_self(signal, SI_USER),
        );
    }
    let Ok(information) = read(frame.rdx as usize, signal) else {
        return Some(EFAULT);
    };
    // Both must name the same signal.
    if access::load_u32(frame.rdx as usize) != Ok(signal as u32) {
        return None;
    }
    Some(queue_to_process(runtime, thread, signal, &information))
}

fn queue_to_process(
    runtime: &'static Runtime,
    thread: &'static Thread,
    signal: i32,
    information: &Information,
) -> i64 {
    // To the kernel the process's id is that of the first thread.
    let id = thread.guest().tid.load(Ordering::Relaxed);
    if is_privileged(information) && id != GUEST.pid.load(Ordering::Relaxed) as i32 {
        return EPERM;
    }
    if may_be_ours(signal) {
        if let Some(answer) = send(runtime, thread, signal, information) {
            return answer;
        }
    } else {
        settled::settle_for_call(runtime, bit(signal));
    }
    let inside = runtime.enter();
    let has_room = queued::queue_to_process(&inside, signal, information);
    inside.leave();
    if has_room { 0 } else { EAGAIN }
}

/// Returns true if the runtime sees this signal from every sender.
fn may_be_ours(signal: i32) -> bool {
    (1..=64).contains(&signal) && signal::is_seen(signal)
}

/// Returns the thread to which the kernel would give a signal for the process, if that is the first one or the sender.
fn receiver(sender: &'static Thread, signal: i32) -> Option<(&'static Thread, i32)> {
    let accepts = |thread: &&'static Thread| {
        receivers::awaits(thread, signal) || signal::blocked_by(thread) & bit(signal) == 0
    };
    let thread = GUEST
        .identities
        .first()
        .filter(accepts)
        .or_else(|| Some(sender).filter(accepts))?;
    Some((thread, thread.guest().tid.load(Ordering::SeqCst)))
}

/// Sends a signal for the process to the thread that must get it. Returns `None` if the kernel must send it: nobody accepts it,
/// and no activation takes it.
fn send(
    runtime: &'static Runtime,
    sender: &'static Thread,
    signal: i32,
    information: &Information,
) -> Option<i64> {
    let inside = runtime.enter();
    let mut sent = deliver(&inside, sender, signal, information);
    if !sent {
        settled::settle(&inside, bit(signal));
        // That takes its time, in which a thread may have come to accept it.
        sent = deliver(&inside, sender, signal, information);
    }
    inside.leave();
    sent.then_some(0)
}

fn deliver(
    inside: &Inside,
    sender: &'static Thread,
    signal: i32,
    information: &Information,
) -> bool {
    match receiver(sender, signal) {
        Some(to) => pending::send_shared(inside, to, signal, information) == Sent::Yes,
        None if receivers::first_of_all(signal).is_some() => {
            pending::pass(inside, signal, information);
            true
        }
        None => false,
    }
}

/// Called when the kernel has sent the signal to this process, too. The sender takes it, if it is still pending.
fn take_own(runtime: &'static Runtime, sender: &'static Thread, signal: i32) {
    let inside = runtime.enter();
    if receiver(sender, signal).is_some()
        && let Some((signal, information)) = queued::take(bit(signal))
        && !deliver(&inside, sender, signal, &information)
    {
        pending::pass(&inside, signal, &information);
    }
    inside.leave();
}

/// Returns true if kill(2) with this first word signals a group to which the process belongs.
fn is_own_group(whom: i32) -> bool {
    // SAFETY: asks only.
    let own = || unsafe { raw_syscall(libc::SYS_getpgid, [0; 6]) } as i32;
    whom == 0 || whom < -1 && whom == -own()
}

/// Returns true if the descriptor names this process, as procfs tells.
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
fn is_own_process(descriptor: i32) -> bool {
    if descriptor == PIDFD_SELF_PROCESS {
        return true;
    }
    let own = GUEST.pid.load(Ordering::Relaxed);
    let mut text = [0u8; 512];
    let mut path = *b"/proc/self/fdinfo/\0\0\0\0\0\0\0\0\0\0\0\0";
    let Ok(number) = u32::try_from(descriptor) else {
        return false;
    };
    put_number(&mut path[18..], number);
    let length = read_file(libc::AT_FDCWD, &path, &mut text);
    let pid = match after(&text[..length], b"Pid:\t") {
        Some(pid) => Some(pid),
        // It is not from pidfd_open(2), but may be a directory of procfs.
        None => {
            let length = read_file(descriptor, b"stat\0", &mut text);
            is_procfs(descriptor).then(|| &text[..length])
        }
    };
    pid.is_some_and(|text| leading_number(text) == Some(own))
}

/// Returns true if the file is one of procfs.
fn is_procfs(descriptor: i32) -> bool {
    const PROCFS: u64 = 0x9fa0;
    let mut status = [0u64; 15];
    let at = status.as_mut_ptr() as u64;
    // SAFETY: writes 120 bytes.
    let answer = unsafe { raw_syscall(libc::SYS_fstatfs, [descriptor as u64, at, 0, 0, 0, 0]) };
    answer == 0 && status[0] == PROCFS
}
