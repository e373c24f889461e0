//! The kernel's own time slices of activations that serve: how long the kernel lets one run before it looks whether another
//! kernel thread should.
//!
//! A server's threads natively sleep after each request, and whoever else is ready runs then. An activation does not sleep:
//! it goes on with the next thread. To the kernel it looks like a program that computes, which it lets run for a slice of a
//! millisecond and more while the server's clients wait. A standby that has yielded comes back after such a slice, too,
//! however long its owner has been blocked by then.
//!
//! So activations ask for short slices (sched_setattr(2), which needs no privilege) while their virtual processor is *busy
//! serving*: often, when a thread begins to wait for descriptors, others are ready there. Since Linux 6.12 the kernel heeds
//! that. Elsewhere they have the kernel's usual ones: shorter slices mean more switches, also among programs that compute
//! beside this one. Where a virtual processor is busy serving, no event loop blocks an activation, either
//! (`poller::choice`): those that are ready would wait for the standby. See docs/adr/0054.
//!
//! With short slices the kernel also runs a standby that often, and as a rule in vain: such a server waits in the poller. So
//! there a standby sleeps between its looks, for a small part of the time for which it has found nothing. See docs/adr/0056.
//!
//! Nothing is asked of the kernel under a filter (seccomp(2)), which might end the process for a call that is not made
//! natively.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use upcall_core::Activity;

use crate::state::{Activation, activations, base};
use crate::sys::error;

/// The kernel's least, in nanoseconds.
const SHORT_NS: u64 = 100_000;
/// In a slice of ours so many threads began to wait while others were ready, if the virtual processor is busy serving.
const OFTEN: u32 = 16;
/// It still is for so many slices of ours after the last such one.
const LASTS: u32 = 4;
/// A standby that has looked in vain for so many times a time may sleep for that time.
const PATIENCE: u64 = 32;
/// How long it sleeps, in nanoseconds: below the first the kernel's timers are too coarse.
const SHORTEST_NAP_NS: u64 = 50_000;
const LONGEST_NAP_NS: u64 = 4_000_000;
const VPS: usize = 1024;

/// Of a virtual processor.
struct Serving {
    /// Waits that left ready threads behind, in this slice.
    waits: AtomicU32,
    /// Not 0 while it is busy serving: for so many slices still.
    left: AtomicU32,
}

static SERVING: [Serving; VPS] = [const {
    Serving {
        waits: AtomicU32::new(0),
        left: AtomicU32::new(0),
    }
}; VPS];
/// The kernel heeds it, and may be asked.
static MAY_ASK: AtomicBool = AtomicBool::new(false);

/// struct sched_attr, as it was first (sched_setattr(2)).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

/// What the calling kernel thread has.
fn own() -> Option<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: fills in so many bytes.
    let answer = unsafe { sys!(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    error(answer).is_none().then_some(attributes)
}

/// Finds out whether the kernel heeds it, when a runtime starts, perhaps under a filter. Before Linux 6.12 it tells of no slice.
pub(crate) fn look(filtered: bool) {
    let heeds = !filtered && own().is_some_and(|own| own.runtime > SHORT_NS);
    MAY_ASK.store(heeds, Ordering::Relaxed);
}

/// The program is about to install a filter.
pub fn leave_as_they_are() {
    MAY_ASK.store(false, Ordering::Relaxed);
}

/// The calling kernel thread is about to start another one, a process, or another program: those inherit its slices. If it is
/// an activation it has the kernel's usual ones from here on, until its next slice of ours ends.
pub fn pass_none_on() {
    if MAY_ASK.load(Ordering::Relaxed) && activations::contains(base::read()) {
        // SAFETY: the register leads to the activation that runs here.
        set(unsafe { base::current() }, false);
    }
}

/// Gives the calling kernel thread, which is no activation, short slices where the kernel heeds it, so that it gets to run in
/// time beside those that compute, or the kernel's usual ones again.
pub fn of_a_reader(short: bool) {
    if own().is_some_and(|own| own.runtime > 0) {
        change(short);
    }
}

fn of(activation: &Activation) -> Option<&'static Serving> {
    SERVING.get(activation.vp().index() as usize)
}

/// Returns true if the activation's virtual processor is busy serving.
#[inline]
pub(crate) fn is_busy_serving(activation: &Activation) -> bool {
    of(activation).is_some_and(|serving| serving.left.load(Ordering::Relaxed) != 0)
}

/// For how many nanoseconds a standby may sleep that has looked in vain for so many, if it may. `only_events`: no thread waits
/// for the virtual processor.
pub(crate) fn nap_ns(
    standby: &Activation,
    only_events: bool,
    in_vain: impl FnOnce() -> u64,
) -> Option<u64> {
    (only_events || is_busy_serving(standby)).then(|| nap_after(in_vain()))?
}

fn nap_after(in_vain_ns: u64) -> Option<u64> {
    let nap = in_vain_ns / PATIENCE;
    (nap >= SHORTEST_NAP_NS).then_some(nap.min(LONGEST_NAP_NS))
}

/// A thread on the calling activation is about to wait for descriptors.
#[inline]
pub(crate) fn wait(activation: &Activation) {
    if activation.vp().has_ready()
        && let Some(serving) = of(activation)
    {
        // Only the owner counts, and one more or less is no matter.
        let waits = serving.waits.load(Ordering::Relaxed);
        serving.waits.store(waits + 1, Ordering::Relaxed);
    }
}

/// The calling activation has no thread, and is perhaps a standby, which is about to yield.
#[inline]
pub(crate) fn stand_by(activation: &Activation) {
    if activation.activity() == Activity::Standby {
        set(activation, is_busy_serving(activation));
    }
}

/// A slice of ours of the calling activation is over.
pub(crate) fn tick(activation: &Activation) {
    if let Some(serving) = of(activation) {
        let left = match serving.waits.swap(0, Ordering::Relaxed) {
            OFTEN.. => LASTS,
            _ => serving.left.load(Ordering::Relaxed).saturating_sub(1),
        };
        serving.left.store(left, Ordering::Relaxed);
        set(activation, left != 0);
    }
}

#[inline]
fn set(activation: &Activation, short: bool) {
    if activation.kernel.has_short_slices.load(Ordering::Relaxed) != short
        && MAY_ASK.load(Ordering::Relaxed)
    {
        ask(activation, short);
    }
}

#[cold]
#[inline(never)]
fn ask(activation: &Activation, short: bool) {
    activation
        .kernel
        .has_short_slices
        .store(short, Ordering::Relaxed);
    change(short);
}

/// Gives the calling kernel thread short slices, or the kernel's usual ones. A daemon that lends weight may lower the nice
/// value between the two calls, and it is as it was then. It lends again with its next turn.
fn change(short: bool) {
    // Of other policies it means something else, or nothing.
    let Some(own) = own().filter(|own| own.policy == libc::SCHED_OTHER as u32) else {
        return;
    };
    let wanted = Attributes {
        size: SIZE,
        // 0: the kernel's own.
        runtime: if short { SHORT_NS } else { 0 },
        ..own
    };
    // SAFETY: reads the structure.
    unsafe { sys!(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_loses_a_small_part_of_the_time_in_which_nothing_blocked() {
        assert_eq!(nap_after(0), None);
        assert_eq!(nap_after(PATIENCE * SHORTEST_NAP_NS - 1), None);
        let mut in_vain = 0;
        while in_vain < 1_000_000_000 {
            in_vain += 10_000;
            if let Some(nap) = nap_after(in_vain) {
                assert!(nap * PATIENCE <= in_vain && nap <= LONGEST_NAP_NS);
            }
        }
        assert_eq!(nap_after(u64::MAX), Some(LONGEST_NAP_NS));
    }

    #[test]
    fn slices_are_short_and_usual_again_and_nothing_else_changes() {
        std::thread::spawn(|| {
            let before = own().expect("the kernel says what a kernel thread has");
            if before.runtime <= SHORT_NS {
                println!("skipped: this kernel tells of no slice (before Linux 6.12)");
                return;
            }
            change(true);
            let short = own().expect("as above");
            assert_eq!(short.runtime, SHORT_NS);
            assert_eq!((short.nice, short.policy), (before.nice, before.policy));
            change(false);
            assert_eq!(own().expect("as above").runtime, before.runtime);
        })
        .join()
        .expect("the test's thread");
    }
}
