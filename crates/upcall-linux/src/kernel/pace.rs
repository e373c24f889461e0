//! Sees at the end of each time slice whether a virtual processor gets its processor, and acts if it does not.
//!
//! A slice is a fixed amount of the activation's own processor time. If much more time has passed since the last slice
//! ended, the activation waited: in the kernel, or for its processor. The kernel's own account
//! (`/proc/self/task/T/schedstat`) tells the two apart. It is read only in that case.
//!
//! | the activation waited for | then |
//! |---|---|
//! | its own standby, again and again | yielding does not give way under this scheduler: standbys are sentinels from now on |
//! | other processes, and a sentinel stands by | owners are watched (`watch`) |
//! | other processes | the virtual processor moves, if they stay and another allowed processor has been idle |
//!
//! Steps of a move:
//! 1. The virtual processor is *crowded*: others took a fifth of the processor time that its activation wanted. `load`
//!    samples the processors. A moment 40 to 80 ms ahead is drawn at random.
//! 2. Any slice without waiting before that moment ends the matter.
//! 3. At that moment it looks for a processor that was idle for more of the time than the present one was ours, and that
//!    has fewer of our virtual processors. One with an idle virtual processor will do too: the two change places.
//! 4. After a move there is none for 100 ms. Each move that does not help doubles that time.
//!
//! Two programs that crowd each other are not likely to draw the same moment. As soon as one has left, step 2 keeps the
//! other. If both move at once, they meet on the new processor and draw again, from twice the span.

use core::sync::atomic::{AtomicU64, Ordering};

use upcall_core::Machine;
use upcall_core::State;

use crate::processors::slice::{Accounted, Spent};
use crate::processors::{affinity, load, placement};
use crate::state::{Activation, Runtime, Vp, kernel_slices};
use crate::sys::{self, processor_time};

/// Of the processor time that an activation wanted, others may have had so much, percent.
const CROWDED_PERCENT: u64 = 20;
/// Another processor must have been idle for so much more of the time than the present one was
/// ours, percent of the time.
const GAIN_PERCENT: u64 = 15;
/// Nanoseconds from seeing that it is crowded to moving, at least, and at most so much more.
const CONSIDER_NS: u64 = 40_000_000;
const CONSIDER_MORE_NS: u64 = 40_000_000;
/// Nanoseconds between two moves of a virtual processor, at least and at most.
const PATIENCE_NS: u64 = 100_000_000;
const MOST_PATIENCE_NS: u64 = 10_000_000_000;
/// Slices in a row in which a standby that takes a third of the processor is wrong.
const WRONG_SLICES: u64 = 4;

/// What is remembered of a virtual processor. Written by its owner alone, except for `moved_ns`.
struct Crowd {
    /// When to look for another processor; 0 while it is not crowded.
    look_ns: AtomicU64,
    moved_ns: AtomicU64,
    patience_ns: AtomicU64,
    /// The standby seen last, and its processor time then.
    standby: AtomicU64,
    standby_ns: AtomicU64,
    wrong: AtomicU64,
}

const VPS: usize = 1024;
static CROWDS: [Crowd; VPS] = [const {
    Crowd {
        look_ns: AtomicU64::new(0),
        moved_ns: AtomicU64::new(0),
        patience_ns: AtomicU64::new(0),
        standby: AtomicU64::new(0),
        standby_ns: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
    }
}; VPS];
/// A slice of the calling activation, the owner of its virtual processor, is over. Returns what it had of its processor in
/// it, if that is `wanted` and known.
pub(crate) fn tick(activation: &Activation, wanted: bool) -> Option<Spent> {
    kernel_slices::tick(activation);
    let runtime = activation.runtime();
    let kernel = runtime.kernel();
    let now = kernel.now();
    let vp = activation.vp();
    let slice = &activation.kernel.slice;
    let crowd = CROWDS.get(vp.index() as usize)?;
    let began = slice.ends(now);
    let is_late = now.wrapping_sub(began) >= kernel.settings.slice_ns / 4 * 5;
    let accounted = if is_late || wanted {
        slice.account(activation.kernel.tid.load(Ordering::Relaxed), began, now)
    } else {
        None
    };
    if !is_late {
        kernel.watch.end(now);
        crowd.look_ns.store(0, Ordering::Relaxed);
        crowd.wrong.store(0, Ordering::Relaxed);
        return accounted.and_then(whole_slice);
    }
    let Accounted {
        spent: Spent { ran, waited, .. },
        ..
    } = accounted?;
    let standby = standby_time(vp, crowd);
    if !kernel.uses_sentinels() && standby_is_wrong(crowd, ran, waited, standby) {
        kernel.use_sentinels();
    }
    let others = waited.saturating_sub(standby);
    let spent = accounted.and_then(whole_slice).map(|spent| Spent {
        waited: others,
        ..spent
    });
    if others * 100 < (others + ran) * CROWDED_PERCENT {
        kernel.watch.end(now);
        crowd.look_ns.store(0, Ordering::Relaxed);
        return spent;
    }
    kernel.watch_owners(now);
    let ours = ran * 100 / (ran + others).max(1);
    consider(runtime, vp, crowd, ours, now);
    spent
}

fn whole_slice(accounted: Accounted) -> Option<Spent> {
    accounted.is_one_slice.then_some(accounted.spent)
}

/// Processor time that the standby took since this was asked last, nanoseconds.
fn standby_time(vp: &'static Vp, crowd: &Crowd) -> u64 {
    let Some(standby) = vp.standby() else {
        return 0;
    };
    let tid = u64::from(standby.kernel.tid.load(Ordering::Relaxed).unsigned_abs());
    let used = processor_time(tid as i32);
    let before = crowd.standby_ns.swap(used, Ordering::Relaxed);
    if crowd.standby.swap(tid, Ordering::Relaxed) == tid {
        used.saturating_sub(before)
    } else {
        0
    }
}

/// Whether the standby took a third of the processor while the activation waited for it, several
/// times in a row: it should have given way at once.
fn standby_is_wrong(crowd: &Crowd, ran: u64, waited: u64, standby: u64) -> bool {
    if standby * 2 < ran || waited * 4 < standby * 3 {
        crowd.wrong.store(0, Ordering::Relaxed);
        return false;
    }
    crowd.wrong.fetch_add(1, Ordering::Relaxed) + 1 >= WRONG_SLICES
}

/// `ours`: how much of the processor time that it wanted the virtual processor had, percent.
fn consider(runtime: &'static Runtime, vp: &'static Vp, crowd: &Crowd, ours: u64, now: u64) {
    let look = crowd.look_ns.load(Ordering::Relaxed);
    let patience = crowd.patience_ns.load(Ordering::Relaxed);
    let since_move = now.wrapping_sub(crowd.moved_ns.load(Ordering::Relaxed));
    if (look != 0 && now < look)
        || since_move < patience
        || affinity::allowed().len() < 2
        || placement::MOVING.swap(true, Ordering::Acquire)
    {
        return;
    }
    load::sample(now);
    if look == 0 {
        let moment = now + CONSIDER_NS + random(now, vp) % patience.max(CONSIDER_MORE_NS);
        crowd.look_ns.store(moment, Ordering::Relaxed);
    } else {
        crowd.look_ns.store(0, Ordering::Relaxed);
        if move_away(runtime, vp, ours) {
            crowd.moved_ns.store(now, Ordering::Relaxed);
            let next = if since_move < 4 * patience {
                (2 * patience).min(MOST_PATIENCE_NS)
            } else {
                PATIENCE_NS
            };
            crowd.patience_ns.store(next, Ordering::Relaxed);
        }
    }
    placement::MOVING.store(false, Ordering::Release);
}

/// Moves to a processor with room. Returns true if there was one.
fn move_away(runtime: &'static Runtime, vp: &'static Vp, ours: u64) -> bool {
    let vps = runtime.vps();
    let own = placement::count(vps, vp.processor());
    let mut best: Option<(u64, u32, Option<&'static Vp>)> = None;
    for processor in affinity::allowed().iter() {
        let idle = load::idle_percent(processor);
        if processor == vp.processor()
            || idle < ours + GAIN_PERCENT
            || !runtime.kernel().turns.may_run(processor)
            || best.is_some_and(|(most, ..)| idle <= most)
        {
            continue;
        }
        let there = placement::count(vps, processor);
        if there < own {
            best = Some((idle, processor, None));
        } else if there == 1 {
            let resident = vps.iter().find(|other| other.processor() == processor);
            if resident.is_some_and(|other| other.word().state() == State::Idle) {
                best = Some((idle, processor, resident));
            }
        }
    }
    let Some((_, processor, resident)) = best else {
        return false;
    };
    placement::change_places(vp, processor, resident);
    true
}

/// The calling activation, the owner of its virtual processor, has roamed: that moves to where the kernel has woken it, if there
/// is room. Where an idle one lives, the two change places. Returns true if it moved.
pub(crate) fn settle(activation: &Activation) -> bool {
    let (runtime, vp) = (activation.runtime(), activation.vp());
    let Some(processor) = sys::this_processor() else {
        return false;
    };
    if processor == vp.processor()
        || !affinity::allowed().has(processor)
        || !runtime.kernel().turns.may_run(processor)
        || placement::MOVING.swap(true, Ordering::Acquire)
    {
        return false;
    }
    let vps = runtime.vps();
    let lives_there = |other: &&'static Vp| other.processor() == processor;
    let is_idle = |other: &&'static Vp| other.word().state() == State::Idle;
    let has_room = placement::count(vps, processor) < placement::count(vps, vp.processor());
    let resident = vps.iter().filter(lives_there).find(is_idle);
    let moves = has_room || resident.is_some();
    if moves {
        placement::change_places(vp, processor, resident.filter(|_| !has_room));
    }
    placement::MOVING.store(false, Ordering::Release);
    moves
}

/// A number that two processes do not share.
fn random(now: u64, vp: &'static Vp) -> u64 {
    let seed = now ^ (core::ptr::from_ref(vp) as u64).rotate_left(32);
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd() -> &'static Crowd {
        &CROWDS[VPS - 1]
    }

    #[test]
    fn a_standby_is_wrong_only_at_the_expense_of_who_computes() {
        const MS: u64 = 1_000_000;
        // It burns as much as the owner runs, and the owner waits for it.
        for slice in 1..=WRONG_SLICES {
            let wrong = standby_is_wrong(crowd(), 5 * MS, 5 * MS, 5 * MS);
            assert_eq!(wrong, slice == WRONG_SLICES);
        }
        // It spins while the owner sleeps in the kernel.
        assert!(!standby_is_wrong(crowd(), 5 * MS, 0, 50 * MS));
        // A hog, and a standby that gives way.
        for _ in 0..=WRONG_SLICES {
            assert!(!standby_is_wrong(crowd(), 5 * MS, 50 * MS, MS / 10));
        }
    }
}
