//! Calls about a thread or its descriptors that the kernel must not answer for the kernel thread below it: names, affinity,
//! ids, and closing.

use core::sync::atomic::Ordering;

use upcall_linux::poller::When;
use upcall_linux::{Runtime, Thread, descriptors, slack};

use crate::call::credentials;
use crate::call::of_bound::raw;
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, pass_through};
use crate::ground::identity::FIRST;
use crate::ground::state::GUEST;
use crate::ground::{access, caller};
use crate::rewrite::sud;
use crate::signal::send::{self, send};
use crate::signal::user_dispatch::{self, PR_SET_SYSCALL_USER_DISPATCH};
use crate::signal::{carried, dispatch, everywhere, pending, queued, settled};
use crate::thread::{agents, bound, lifetime, names};

const PR_SET_IO_FLUSHER: i32 = 57;
const EFAULT: i64 = -(libc::EFAULT as i64);
const EBADF: i64 = -(libc::EBADF as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);
const EPERM: i64 = -(libc::EPERM as i64);
const ESRCH: i64 = -(libc::ESRCH as i64);

/// get_robust_list(2), for the calling thread or by id.
pub fn get_robust_list(thread: &'static Thread, frame: &Frame) -> i64 {
    let whose = match frame.rdi as i32 {
        0 => Some(thread),
        id => GUEST.identities.find(id),
    };
    let Some(whose) = whose else {
        return raw(frame);
    };
    let head = whose.guest().robust_list.load(Ordering::Relaxed) as u64;
    let stored = access::store_u64(frame.rsi as usize, head)
        .and_then(|()| access::store_u64(frame.rdx as usize, 24));
    if stored.is_err() { EFAULT } else { 0 }
}

/// set_robust_list(2).
pub fn set_robust_list(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    /// The size of struct robust_list_head.
    const SIZE: u64 = 24;
    if frame.rsi != SIZE {
        return EINVAL;
    }
    thread
        .guest()
        .robust_list
        .store(frame.rdi as usize, Ordering::Relaxed);
    agents::register(runtime, thread, frame.rdi, SIZE)
}

/// rseq(2). A thread that migrates has no area of its own. libc ends a process in which a thread's registration fails, so
/// libc's call succeeds. It leaves RSEQ_CPU_ID_REGISTRATION_FAILED in cpu_id, and sched_getcpu(3) then asks the kernel. A
/// program that registers an area itself would believe what stands there, so it gets ENOSYS.
pub fn rseq(frame: &Frame) -> i64 {
    if !lifetime::is_libcs_call(frame.rip as usize) {
        return -i64::from(libc::ENOSYS);
    }
    const UNREGISTER: u64 = 1;
    /// Of the first struct rseq, and its alignment.
    const SIZE: u64 = 32;
    let (address, length, flags) = (frame.rdi, frame.rsi, frame.rdx);
    if flags & !UNREGISTER != 0 || !address.is_multiple_of(SIZE) || (length as u32) < SIZE as u32 {
        return EINVAL;
    }
    if flags == 0 && access::store_u32(frame.rdi as usize + 4, -2i32 as u32).is_err() {
        return EFAULT;
    }
    0
}

/// rt_sigpending(2).
pub fn sigpending(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    settled::settle_for_call(runtime, thread.kernel.mask.load(Ordering::Relaxed));
    let answer = raw(frame);
    if answer != 0 {
        return answer;
    }
    let at = frame.rdi as usize;
    let own = pending::for_thread(thread);
    match access::load_u64(at).and_then(|set| access::store_u64(at, set | own)) {
        Ok(()) => 0,
        Err(access::Fault) => EFAULT,
    }
}

/// tgkill(2) and tkill(2).
pub fn kill_thread(
    runtime: &'static Runtime,
    frame: &Frame,
    id: i32,
    signal: i32,
    group: Option<i32>,
) -> i64 {
    let ours = GUEST.pid.load(Ordering::Relaxed) as i32;
    if group.is_some_and(|group| group != ours) {
        return carried::send(frame).unwrap_or_else(|| raw(frame));
    }
    let Some(thread) = GUEST.identities.find(id) else {
        return if id >= FIRST { ESRCH } else { raw(frame) };
    };
    send(
        runtime,
        (thread, id),
        signal,
        &pending::from_self(signal, queued::SI_TKILL),
    )
}

/// rt_tgsigqueueinfo(2).
pub fn queue_signal(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let (process, id) = (frame.rdi as i32, frame.rsi as i32);
    if process != GUEST.pid.load(Ordering::Relaxed) as i32 {
        return carried::send(frame).unwrap_or_else(|| raw(frame));
    }
    let Some(thread) = GUEST.identities.find(id) else {
        return raw(frame);
    };
    let Ok(information) = send::read(frame.r10 as usize, frame.rdx as i32) else {
        return EFAULT;
    };
    let sender = caller::current_thread();
    if send::is_privileged(&information) && !sender.is_some_and(|own| core::ptr::eq(own, thread)) {
        return EPERM;
    }
    send(runtime, (thread, id), frame.rdx as i32, &information)
}

/// PR_GET_TID_ADDRESS: stores the address of the word that the thread's end clears.
fn get_cleared_word(thread: &'static Thread, at: usize) -> i64 {
    let clear = thread.guest().clear_tid.load(Ordering::Relaxed);
    match access::store_u64(at, clear as u64) {
        Ok(()) => 0,
        Err(access::Fault) => EFAULT,
    }
}

/// prctl(2) of a bound thread. The kernel knows its name and the rest, but clears another word when the kernel thread
/// ends.
pub fn prctl_of_bound(thread: &'static Thread, frame: &Frame) -> Option<i64> {
    let at = frame.rsi as usize;
    match frame.rdi as i32 {
        libc::PR_SET_NAME => Some(names::set_own(thread, at)).filter(|&error| error != 0),
        lifetime::PR_GET_TID_ADDRESS => Some(get_cleared_word(thread, at)),
        PR_SET_SYSCALL_USER_DISPATCH => {
            let answer = bound::visit(thread, |_| user_dispatch::set(thread, frame))?;
            // Its kernel thread may be older than the runtime's own use of it.
            Some(match dispatch::is_on().then(sud::enable) {
                Some(Err(unavailable)) if answer == 0 => -i64::from(unavailable.errno),
                _ => answer,
            })
        }
        _ => None,
    }
}

/// prctl(2). The name, the timer slack and the word to clear belong to the thread. A change of privileges binds the thread
/// ([`credentials`]).
pub fn prctl(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let at = frame.rsi as usize;
    match frame.rdi as i32 {
        libc::PR_SET_NAME => {
            let answer = names::set_own(thread, at);
            if GUEST.names_kernel_threads() {
                let inside = runtime.enter();
                names::follow(&inside, thread);
                inside.leave();
            }
            answer
        }
        libc::PR_GET_NAME => names::get_own(thread, at),
        libc::PR_SET_TIMERSLACK => {
            let inside = runtime.enter();
            slack::set(&inside, thread, frame.rsi as i64);
            inside.leave();
            0
        }
        libc::PR_GET_TIMERSLACK => thread.kernel.slack.ns() as i64,
        lifetime::PR_GET_TID_ADDRESS => get_cleared_word(thread, at),
        libc::PR_SET_PDEATHSIG => {
            let inside = runtime.enter();
            // The kernel forgets it when the kernel thread ends.
            inside.stay();
            let answer = raw(frame);
            inside.leave();
            answer
        }
        // As a rule a filter follows that is set for all threads, and that sets this for all of them too.
        libc::PR_SET_NO_NEW_PRIVS => everywhere::everywhere(runtime, frame.words()),
        libc::PR_SET_KEEPCAPS
        | libc::PR_SET_SECUREBITS
        | libc::PR_CAPBSET_DROP
        | libc::PR_CAP_AMBIENT
        | libc::PR_SET_SECCOMP
        | libc::PR_MCE_KILL
        | PR_SET_IO_FLUSHER
        | libc::PR_SET_SPECULATION_CTRL
        | libc::PR_SCHED_CORE
            if changes_own(frame) =>
        {
            credentials::change_own(runtime, thread, frame)
        }
        libc::PR_SET_TSC => {
            if frame.rsi as i32 == libc::PR_TSC_SIGSEGV {
                // The thread gets a kernel thread of its own, which enters the runtime now and then.
                upcall_linux::sys::read_clocks_by_call();
            }
            credentials::change_own(runtime, thread, frame)
        }
        _ => raw(frame),
    }
}

/// Returns true if one of the options of prctl(2) about what the kernel keeps with a thread asks for a change of the
/// caller's.
fn changes_own(frame: &Frame) -> bool {
    const SCHED_CORE_CREATE: i32 = 1;
    const SCHED_CORE_SHARE_FROM: i32 = 3;
    const OF_THREAD: u64 = 0;
    match frame.rdi as i32 {
        libc::PR_CAP_AMBIENT => frame.rsi as i32 != libc::PR_CAP_AMBIENT_IS_SET,
        libc::PR_SCHED_CORE => match frame.rsi as i32 {
            SCHED_CORE_CREATE => frame.rdx as i32 == 0 && frame.r10 == OF_THREAD,
            asked => asked == SCHED_CORE_SHARE_FROM,
        },
        _ => true,
    }
}

/// close(2).
pub fn close(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let descriptor = frame.rdi as i32;
    if descriptors::is_ours(descriptor) {
        return EBADF;
    }
    names::closes(runtime, descriptor as u32, descriptor as u32);
    let poller = runtime.kernel().poller();
    poller.forget(runtime, descriptor, When::Before);
    descriptors::wait_for_openings();
    let answer = runtime.blocking(|| raw(frame));
    // Another thread may have registered it in between, and the kernel has forgotten it now. A thread that waits for the
    // next file of this number tries again.
    poller.forget(runtime, descriptor, When::After);
    answer
}

/// dup2(2), dup3(2). The target is closed.
pub fn duplicate(runtime: &'static Runtime, frame: &Frame) -> i64 {
    if descriptors::is_ours(frame.rdi as i32) || descriptors::is_ours(frame.rsi as i32) {
        return EBADF;
    }
    let call = || descriptors::place(|| runtime.blocking(|| raw(frame)));
    if frame.rdi as i32 == frame.rsi as i32 {
        return call();
    }
    names::closes(runtime, frame.rsi as u32, frame.rsi as u32);
    let poller = runtime.kernel().poller();
    poller.forget(runtime, frame.rsi as i32, When::Before);
    let answer = call();
    // As for close(2).
    poller.forget(runtime, frame.rsi as i32, When::After);
    answer
}

/// Returns true if a close_range(2) closes descriptors of this process now.
pub fn is_closing(frame: &Frame) -> bool {
    const UNSHARE_OR_CLOEXEC: u64 = 2 | 4;
    frame.rdx & UNSHARE_OR_CLOEXEC == 0
}

/// close_range(2), around the runtime's own descriptors.
pub fn close_range(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let (first, last) = (frame.rdi as u32, frame.rsi as u32);
    let poller = runtime.kernel().poller();
    let closes = is_closing(frame);
    if closes {
        names::closes(runtime, first, last);
        poller.forget_range(runtime, first, last, When::Before);
    }
    let answer = close_ranges(frame);
    if closes {
        poller.forget_range(runtime, first, last, When::After);
    }
    answer
}

/// Makes the call, but leaves out the runtime's own descriptors.
pub fn close_ranges(frame: &Frame) -> i64 {
    let mut worst = 0;
    for &[number, words @ ..] in close_range_parts(frame).calls() {
        // SAFETY: the program's own call, or a part of it.
        worst = (unsafe { pass_through(number as i64, words) } as i64).min(worst);
    }
    worst
}

/// The calls that together do what a close_range(2) asks for, without the runtime's own descriptors.
pub struct Parts {
    calls: [[u64; 7]; 2],
    count: usize,
}

impl Parts {
    pub fn calls(&self) -> &[[u64; 7]] {
        &self.calls[..self.count]
    }
}

/// Returns the parts of a close_range(2). If its arguments are wrong, the only part is the call itself.
pub fn close_range_parts(frame: &Frame) -> Parts {
    let (first, last) = (frame.rdi as u32, frame.rsi as u32);
    let whole = frame.words();
    let mut parts = Parts {
        calls: [whole; 2],
        count: 1,
    };
    if let Some((low, high)) =
        descriptors::range().filter(|&(low, high)| first <= last && first < high && low <= last)
    {
        parts.count = 0;
        for (from, to) in [(first, low.saturating_sub(1)), (high.max(first), last)] {
            if from <= to && !(low..high).contains(&to) {
                parts.calls[parts.count][1..3].copy_from_slice(&[from.into(), to.into()]);
                parts.count += 1;
            }
        }
    }
    parts
}
