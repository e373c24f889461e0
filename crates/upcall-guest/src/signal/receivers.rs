//! Finds the thread for a signal to the process that an activation has taken.
//!
//! As in the kernel it is the first thread of the process if that accepts the signal, and some other if not, if there are no
//! ranks. Programs rely on that: the first thread waits, and the signal ends its wait. What becomes of a child is told to the
//! thread that has made it, if that accepts the signal. A timer's signal is for the thread that ran when the timer expired,
//! as profilers expect. The activation that has taken it may be another one, or have no thread; then some thread that
//! computes stands for that one.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use upcall_linux::{Runtime, Thread};

use crate::ground::attributes::GuestAttributes;
use crate::ground::mask;
use crate::ground::state::GUEST;
use crate::signal::pending::Information;
use crate::signal::queued::{SI_QUEUE, SI_USER};
use crate::signal::{self, children};

/// The code of what the kernel itself has sent.
const SI_KERNEL: i32 = 0x80;

/// Returns the thread that gets the signal, and its id, or `None` if all block it.
pub fn find(
    runtime: &'static Runtime,
    signal: i32,
    information: &Information,
) -> Option<(&'static Thread, i32)> {
    let is_for_running = prefers_running(signal, information);
    let running = is_for_running.then(|| one_that_computes(runtime, signal));
    running.flatten().or_else(|| {
        let found = first_of_all(signal)?;
        Some(preferred(signal, information).unwrap_or(found))
    })
}

/// Returns the thread to which the kernel offers the signal before others, and its id, if it gets it: it accepts the signal, or waits for
/// it. A signal that no thread accepts otherwise is left to the call in which it waits.
fn preferred(signal: i32, information: &Information) -> Option<(&'static Thread, i32)> {
    // Where threads have ranks, the most urgent one is.
    if GUEST.has_ranks() {
        return None;
    }
    let child = is_of_child(signal, information).then_some(information[2] as u32 as i32);
    let gets = |thread: &&'static Thread| awaits(thread, signal) || accepts(thread, signal);
    let maker = child.and_then(children::maker_of).filter(gets);
    identified(maker.or_else(|| GUEST.identities.first().filter(gets))?)
}

/// Returns true if the thread waits for the signal, and so will see it although it blocks it.
pub fn awaits(thread: &'static Thread, signal: i32) -> bool {
    thread.guest().waited_for.load(Ordering::SeqCst) & mask::bit(signal) != 0
}

/// Returns true if the thread accepts the signal, by its own mask or that of the call in which it waits.
pub fn accepts(thread: &'static Thread, signal: i32) -> bool {
    let blocked = thread.kernel.mask.load(Ordering::SeqCst) & signal::blocked_by(thread);
    blocked & mask::bit(signal) == 0
}

/// Returns true if a signal that has come to the kernel thread of a thread that accepts it is another one's.
pub fn is_of_another(thread: &'static Thread, signal: i32, information: &Information) -> bool {
    if !is_for_process(signal, information) || prefers_running(signal, information) {
        return false;
    }
    preferred(signal, information).is_some_and(|(other, _)| !ptr::eq(other, thread))
}

/// Returns true if the kernel has the signal for the process, and no thread has caused it in a call of its own. Threads on
/// activations send each other signals without the kernel.
fn is_for_process(signal: i32, information: &Information) -> bool {
    const SI_MESGQ: i32 = -3;
    let is_from_self = information[2] as u32 == GUEST.pid.load(Ordering::Relaxed);
    match information[1] as u32 as i32 {
        // Those of a write are as if the process had sent them itself.
        SI_USER if is_from_self => !matches!(signal, libc::SIGPIPE | libc::SIGXFSZ),
        SI_QUEUE if is_from_self => false,
        SI_USER | SI_QUEUE => true,
        SI_KERNEL => !signal::is_fault(signal),
        SI_MESGQ => true,
        _ => is_of_child(signal, information),
    }
}

/// Returns true if the kernel says what has become of a child.
fn is_of_child(signal: i32, information: &Information) -> bool {
    signal == libc::SIGCHLD && information[1] as u32 as i32 > 0
}

/// Returns true if the signal is for the thread that ran when it was made, as in the kernel: a timer's
/// (timer_create(2)'s since Linux 6.4), or one about the processor time that is used.
fn prefers_running(signal: i32, information: &Information) -> bool {
    const SI_TIMER: i32 = -2;
    match information[1] as u32 as i32 {
        // Where threads have ranks, the most urgent one has what is due at a time.
        SI_TIMER => !GUEST.has_ranks(),
        SI_KERNEL => matches!(signal, libc::SIGPROF | libc::SIGVTALRM | libc::SIGXCPU),
        _ => false,
    }
}

/// Returns a thread that accepts the signal and executes its own code on some activation, and its id. If there is none,
/// returns one that was stopped and waits for a virtual processor. Calls alternate between those, so that profilers see all
/// that compute.
fn one_that_computes(runtime: &'static Runtime, signal: i32) -> Option<(&'static Thread, i32)> {
    one_of(|visit| {
        runtime.each_activation(|activation| {
            if let Some(thread) = activation.thread().filter(|_| !activation.is_in_call())
                && thread.is_running()
            {
                visit(takes(thread, signal));
            }
        });
    })
    .or_else(|| {
        one_of(|visit| {
            GUEST.identities.each(|thread| {
                if thread.is_ready() {
                    visit(takes(thread, signal));
                }
                true
            });
        })
    })
}

/// As [`identified`], if the thread accepts the signal.
fn takes(thread: &'static Thread, signal: i32) -> Option<(&'static Thread, i32)> {
    identified(thread).filter(|_| accepts(thread, signal))
}

/// Returns the thread and its id, if no kernel thread is its own. It may end at any moment: the sender checks the id again.
fn identified(thread: &'static Thread) -> Option<(&'static Thread, i32)> {
    let id = thread.guest().tid.load(Ordering::SeqCst);
    // To those outside the kernel gives it by itself.
    let is_outside = thread.guest().outside_tid.load(Ordering::Relaxed) != 0;
    (id != 0 && !is_outside).then_some((thread, id))
}

type Found = Option<(&'static Thread, i32)>;

/// Returns one of those that `each` visits, another one each time.
fn one_of(each: impl Fn(&mut dyn FnMut(Found))) -> Found {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let mut count = 0;
    each(&mut |found| count += u32::from(found.is_some()));
    let mut left = TURN.fetch_add(1, Ordering::Relaxed).checked_rem(count)?;
    let mut chosen = None;
    each(&mut |found| {
        if found.is_some() {
            if left == 0 && chosen.is_none() {
                chosen = found;
            }
            left = left.saturating_sub(1);
        }
    });
    chosen
}

/// Returns a thread that accepts the signal, and its id: where threads have ranks, the most urgent one, since others may
/// not run while that one does.
pub fn first_of_all(signal: i32) -> Option<(&'static Thread, i32)> {
    let by_rank = GUEST.has_ranks();
    let mut found: Option<(&'static Thread, i32)> = None;
    GUEST.identities.each(|thread| {
        if let Some((thread, id)) = takes(thread, signal) {
            let is_better = found.is_none_or(|(other, _)| thread.rank() < other.rank());
            if is_better {
                found = Some((thread, id));
            }
        }
        by_rank || found.is_none()
    });
    found
}
