//! The processors that threads ask for: sched_setaffinity(2). See docs/adr/0031.
//!
//! A thread that asks for all processors on which virtual processors may be, and for no other that the machine grants, or
//! for exactly those that the program is told of, stays on the virtual processors. A thread that asks for others is bound
//! ([`bound`]): the kernel keeps its mask, and decides which masks are wrong.
//!
//! A program with fewer virtual processors than processors is told of as many processors as it has virtual ones: the first
//! of those that it may use. It makes as many threads as it is told of, and more of them than virtual processors would wait
//! for each other. The kernel keeps all that it may use, and so do the processes that it starts: one under this runtime is
//! told the same, and a native one has all.

use core::sync::atomic::Ordering;

use upcall_linux::affinity::{self, Set};
use upcall_linux::{Runtime, Thread};

use crate::ground::access::{self, Fault};
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::record;
use crate::ground::state::GUEST;
use crate::thread::{bound, scheduling};

const EFAULT: i64 = -(libc::EFAULT as i64);
const ESRCH: i64 = -(libc::ESRCH as i64);

/// How many processors the program is told of at most.
fn most() -> usize {
    match (GUEST.runtime(), GUEST.vps.load(Ordering::Relaxed)) {
        (Some(runtime), _) => runtime.vps().len(),
        (None, 0) => usize::MAX,
        (None, vps) => vps as usize,
    }
}

/// Returns true if a process without threads is told of fewer processors than there are, since its user has asked for so many
/// virtual processors.
pub fn is_cut() -> bool {
    most() != usize::MAX
}

/// Returns the processors that the thread has asked for, without those that the program may not use, or all of which it
/// is told.
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
pub fn get_affinity(thread: &'static Thread, frame: &Frame) -> i64 {
    let allowed = affinity::allowed();
    let mut mask = allowed.first(most());
    if let Some(asked) = thread.kernel.asked.get() {
        for within in [mask, allowed] {
            if !asked.and(&within).is_empty() {
                mask = asked.and(&within);
                break;
            }
        }
    }
    // The kernel judges the program's room, and says how much of it a mask takes.
    let words = [0, frame.rsi, frame.rdx, 0, 0, 0];
    // SAFETY: it writes where the program asks for it.
    let answer = unsafe { raw_syscall(libc::SYS_sched_getaffinity, words) } as i64;
    for (index, word) in mask.0.iter().take(answer.max(0) as usize / 8).enumerate() {
        if access::store_u64(frame.rdx as usize + 8 * index, *word).is_err() {
            return EFAULT;
        }
    }
    answer
}

/// sched_setaffinity(2) of the thread with this id. `bind` makes a call for it on a kernel thread of its own, as
/// [`bound::change`] does.
// Not inlined, as above.
#[inline(never)]
pub fn set_affinity(
    (thread, id): (&'static Thread, i32),
    frame: &Frame,
    bind: impl FnOnce([u64; 7]) -> i64,
) -> i64 {
    let Ok(mut asked) = mask_of(frame) else {
        return EFAULT;
    };
    let of_bound = || record::kernel_id(thread).map(|own| scheduling::of_bound(frame, own));
    let allowed = affinity::allowed();
    let answer = match of_bound() {
        Some(answer) => answer,
        None if affinity::is_as_allowed(&asked) => 0,
        // All that it is told of are all of the virtual processors, wherever they are.
        None if asked == allowed.first(most()) => {
            asked = allowed;
            0
        }
        None => match bind(scheduling::about(frame, 0).words()) {
            // Perhaps another thread has bound it meanwhile.
            ESRCH if GUEST.identities.find(id).is_some() => of_bound().unwrap_or(ESRCH),
            answer => answer,
        },
    };
    if answer == 0 {
        thread.kernel.asked.set(&asked);
    }
    answer
}

/// Returns the mask that a call of sched_setaffinity(2) passes.
fn mask_of(frame: &Frame) -> Result<Set, Fault> {
    let mut mask = Set([0; affinity::WORDS]);
    let length = frame.rsi as usize;
    for (index, word) in mask.0.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        let given = length.saturating_sub(8 * index).min(8);
        let at = (frame.rdx as usize).wrapping_add(8 * index);
        access::load(at, &mut bytes[..given])?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(mask)
}

/// Called when a thread has made another one, with this id. A thread that is bound, and makes it on an activation (in a
/// handler), passes its processors on.
pub fn pass_on(runtime: &'static Runtime, creator: &'static Thread, id: i32) {
    if creator.guest().bound.load(Ordering::Relaxed) == 0 {
        return;
    }
    if let (Some(thread), Some(mask)) = (GUEST.identities.find(id), creator.kernel.asked.get())
        && !affinity::is_as_allowed(&mask)
    {
        let (size, at) = (size_of_val(&mask.0) as u64, mask.0.as_ptr() as u64);
        let call = [libc::SYS_sched_setaffinity as u64, 0, size, at, 0, 0, 0];
        bound::change(runtime, (thread, id), &[call]);
    }
}

/// sched_getaffinity(2) in a process without a runtime: the kernel's answer, cut down to as many processors as there will be
/// virtual processors. `None` if the call is about another process, or nothing has to be cut.
pub fn before_threads(frame: &Frame) -> Option<i64> {
    let most = most();
    let who = frame.rdi as i32;
    // Of a process without a runtime this is the id of its thread, too, by which libc asks. SAFETY: asks only.
    let own = || unsafe { raw_syscall(libc::SYS_getpid, [0; 6]) } as i32;
    if most == usize::MAX || who != 0 && who != own() {
        return None;
    }
    // SAFETY: the program's own call, as it made it.
    let answer = unsafe { frame.raw() } as i64;
    let mut left = most;
    for at in (frame.rdx as usize..)
        .step_by(8)
        .take(answer.max(0) as usize / 8)
    {
        let cut = access::load_u64(at)
            .and_then(|word| access::store_u64(at, affinity::first_bits(word, &mut left)));
        if cut.is_err() {
            return Some(EFAULT);
        }
    }
    Some(answer)
}
