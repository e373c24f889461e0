//! What must hold when nothing can run.

use upcall_core::{Activity, Rank};

use super::Invariant;
use crate::machine::advice::Last;
use crate::machine::space::Space;
use crate::machine::{Doing, Machine, Thread};

/// Asked when nothing can run.
pub const AT_REST: [(&str, Invariant); 8] = [
    ("no_thread_is_lost", no_thread_is_lost),
    (
        "no_wake_up_is_lost_or_doubled",
        no_wake_up_is_lost_or_doubled,
    ),
    ("no_event_is_lost", no_event_is_lost),
    ("somebody_waits_for_events", somebody_waits_for_events),
    ("who_is_absent_is_blocked", who_is_absent_is_blocked),
    ("superfluous_activations_end", superfluous_activations_end),
    ("the_adviser_knows_who_waits", the_adviser_knows_who_waits),
    ("who_is_kept_back_is_held", who_is_kept_back_is_held),
];

/// Spares that are kept for each virtual processor, and beside those; one more for each activation that
/// is absent, which will need its owner's place when it comes back. The rule of `upcall-core`'s pool.
const SPARES: (u64, u64) = (2, 6);

/// A thread that can run is not forgotten (section 1.2). Not asked once the kernel has refused a
/// kernel thread for a virtual processor that has had no chance to ask again; neither while a virtual
/// processor that was called for it is on a page fault of its own.
pub fn no_thread_is_lost(machine: &Machine, _: usize, space: &Space) -> Result<(), String> {
    if machine.is_delayed_in(space) {
        return Ok(());
    }
    if space.vps().iter().all(|vp| space.lacks(vp.index())) {
        return Ok(());
    }
    match space.vps().iter().find(|vp| vp.has_ready()) {
        Some(vp) if space.refused.borrow().is_empty() => {
            Err(format!("one is ready on vp {} and nobody runs", vp.index()))
        }
        _ => Ok(()),
    }
}

/// Every wake-up that a waker was told to have delivered has ended one wait (section 3.1: the thread
/// system is told of every event; and 2.2, what comes of events that are not told).
pub fn no_wake_up_is_lost_or_doubled(
    machine: &Machine,
    _: usize,
    space: &Space,
) -> Result<(), String> {
    let (sent, came) = (space.woken.get(), space.awoken.get());
    let on_the_way = came..=came + space.advice.nr_held();
    let excepted = space.spawn_failed.get() || machine.is_delayed_in(space);
    if !on_the_way.contains(&sent) && !excepted {
        return Err(format!("{sent} were sent, {came} came"));
    }
    Ok(())
}

/// Every event that the poller took has ended one thread's wait, and no thread waits for one that is there
/// (section 3.1, as above).
pub fn no_event_is_lost(machine: &Machine, _: usize, space: &Space) -> Result<(), String> {
    let (told, came) = (space.told.get(), space.heard.get());
    let on_the_way = came..=came + space.advice.nr_held();
    let excepted = space.spawn_failed.get() || machine.is_delayed_in(space);
    if !on_the_way.contains(&told) && !excepted {
        return Err(format!("{told} were told, {came} came"));
    }
    for (index, descriptor) in space.descriptors.borrow().iter().enumerate() {
        if descriptor.edge && !descriptor.waiting.is_empty() {
            return Err(format!(
                "descriptor {index} has fired, and somebody waits for it"
            ));
        }
    }
    Ok(())
}

/// While threads wait for deadlines or descriptors, an activation does (section 3.1: an event needs a
/// vessel in which to be told), if only as soon as the page is there that it has touched itself. Not asked
/// once the kernel has refused a kernel thread, nor while an owner is on a page fault beside a sentinel.
pub fn somebody_waits_for_events(
    machine: &Machine,
    index: usize,
    space: &Space,
) -> Result<(), String> {
    if space.spawn_failed.get() || !space.wants_poller() {
        return Ok(());
    }
    let polling = machine.count(index, |doing| doing == Doing::Polling);
    let faults = machine.count(index, |doing| {
        matches!(doing, Doing::Blocked { fault: true, .. })
    });
    let excused = machine.style.sentinel && faults != 0 || machine.seat_faults.get() != 0;
    if polling == 0 && !excused {
        return Err("nobody sits in the poller's seat".to_owned());
    }
    Ok(())
}

/// An activation that counts as absent is blocked in the kernel: what came back was let in (section 3.1, *unblocked*).
pub fn who_is_absent_is_blocked(
    machine: &Machine,
    index: usize,
    space: &Space,
) -> Result<(), String> {
    let runtime = space.started();
    let absent = runtime.stats().absent.get();
    let blocked = machine.count(index, |doing| matches!(doing, Doing::Blocked { .. }));
    if absent > blocked as u64 {
        return Err(format!("{absent} are absent, {blocked} are blocked"));
    }
    let counted = runtime.stats().blocked.get() - runtime.stats().returned.get();
    if absent != counted {
        return Err(format!(
            "{absent} are absent, {counted} are seen from outside"
        ));
    }
    Ok(())
}

/// Activations without work are kept for the next use up to a bound, and end beyond it (section 4.3):
/// nobody is half-way at rest, so each that carries nothing has one of four reasons to be there. It owns
/// a virtual processor, is the standby of one, is reserved for a sentinel as its heir, or is a spare.
pub fn superfluous_activations_end(
    machine: &Machine,
    index: usize,
    space: &Space,
) -> Result<(), String> {
    let runtime = space.started();
    let vps = space.vps().len() as u64;
    let (each, more) = SPARES;
    let spares = each * vps + more + runtime.stats().absent.get();
    let heirs = if machine.style.sentinel { vps } else { 0 };
    let (mut standing_by, mut reserved, mut spare, mut idle) = (0, 0, 0, 0);
    for vessel in (0..machine.nr_vessels()).filter(|&vessel| machine.doing(vessel) != Doing::Gone) {
        let (its, activation) = machine.vessel(vessel, |one| (one.space, one.activation.get()));
        let Some(activation) = activation.filter(|one| its == index && one.thread().is_none())
        else {
            continue;
        };
        match activation.activity() {
            Activity::Standby => standing_by += 1,
            Activity::Reserved => reserved += 1,
            Activity::Spare => spare += 1,
            Activity::Running | Activity::Resting => idle += 1,
            Activity::InCall | Activity::Displaced | Activity::Unsettled => {}
        }
    }
    let counts = [
        ("stand by", standing_by, vps),
        ("are reserved", reserved, heirs),
        ("are spares", spare, spares),
        ("are idle owners", idle, vps),
    ];
    match counts.into_iter().find(|&(_, are, may_be)| are > may_be) {
        Some((what, are, may_be)) => Err(format!("{are} {what}, {may_be} may")),
        None => Ok(()),
    }
}

/// A policy is told of every thread that waits, and of every one that does not any more (section 3.1: the
/// thread system is told of every event). Not asked of who blocks in the kernel where nobody is ready:
/// nobody takes its processor, and it counts as running.
///
/// # Errors
///
/// What is wrong.
pub fn the_adviser_knows_who_waits(_: &Machine, _: usize, space: &Space) -> Result<(), String> {
    let advice = &space.advice;
    let Some(adviser) = advice.adviser.get() else {
        return Ok(());
    };
    // Where the kernel gave no kernel thread, the adviser may be ready.
    if !advice.waits.get() || adviser.is_ready() {
        return Ok(());
    }
    let living = advice.living.borrow();
    for &(thread, is_told) in living.iter() {
        if std::ptr::eq(thread, adviser) {
            continue;
        }
        let waits = match thread.carrier() {
            Some(carrier) => carrier.is_absent(),
            None => thread.saved().is_some(),
        };
        let last = advice.last_of(thread);
        match last {
            Some(Last::Ready) if !waits => {}
            Some(Last::Waits) if waits => {}
            None if !is_told => {}
            _ => return Err(format!("waits: {waits}; told: {last:?}")),
        }
    }
    let last = advice.last.borrow();
    let is_living = |thread| living.iter().any(|&(one, _)| std::ptr::eq(one, thread));
    match last
        .iter()
        .find(|(thread, last)| *last != Last::Ended && !is_living(*thread))
    {
        Some((_, last)) => Err(format!(
            "one has ended, and is {last:?} as far as it was told"
        )),
        None => Ok(()),
    }
}

/// Who is ready and does not run is held by the policy, and nobody else is: a thread that has another rank
/// again is where the processors look for threads.
///
/// # Errors
///
/// What is wrong.
pub fn who_is_kept_back_is_held(_: &Machine, _: usize, space: &Space) -> Result<(), String> {
    let living = space.advice.living.borrow();
    let is_kept = |thread: &Thread| thread.is_held() && thread.rank() != Rank::HELD;
    match living.iter().find(|(thread, _)| is_kept(thread)) {
        Some((thread, _)) => Err(format!("one has rank {}", thread.rank().0)),
        None => Ok(()),
    }
}
