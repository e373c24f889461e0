//! What must hold between any two steps.

use upcall_core::State;

use super::{Invariant, word};
use crate::machine::books::Books;
use crate::machine::space::Space;
use crate::machine::{Doing, Machine, rounds};

/// Asked between any two steps, about each address space.
pub const AFTER_EVERY_EVENT: [(&str, Invariant); 6] = [
    (
        "one_activation_runs_on_each_processor",
        one_activation_runs_on_each_processor,
    ),
    (
        "a_thread_is_on_one_activation",
        a_thread_is_on_one_activation,
    ),
    (
        "a_lock_holder_is_continued_first",
        a_lock_holder_is_continued_first,
    ),
    (
        "no_processor_idles_while_a_thread_is_ready",
        no_processor_idles_while_a_thread_is_ready,
    ),
    (
        "no_thread_waits_for_a_processor_that_was_taken",
        no_thread_waits_for_a_processor_that_was_taken,
    ),
    ("activations_are_bounded", activations_are_bounded),
];

/// A processor may idle, while a thread is ready, for so many calls (see [`rounds::of_a_call`]): that of who
/// makes it ready; and that of who was called first, and found something else to run.
const IDLE_CALLS: u64 = 2;

/// Activations beside threads: for each virtual processor an owner, a standby, its heir and two spares;
/// and six spares. For each thread there may be two: the one that it is blocked with, and a spare that is
/// kept because that one is absent, or has just brought its thread back and not yet found the pool.
const ACTIVATIONS: (u64, u64) = (5, 6);

/// "There are always exactly as many running activations as processors": each virtual processor has
/// one owner that has not ended, and owns no other (Anderson et al. 1991, section 3.1).
pub fn one_activation_runs_on_each_processor(
    machine: &Machine,
    _: usize,
    space: &Space,
) -> Result<(), String> {
    let books = space.books.borrow();
    for (index, vp) in space.vps().iter().enumerate() {
        let Some((owner, _)) = word(vp) else { continue };
        if books
            .words
            .get(index)
            .is_some_and(|&(before, _)| before == owner)
        {
            continue;
        }
        if machine.doing(owner) == Doing::Gone {
            return Err(format!("vp {index} is owned by an ended activation"));
        }
        let others = space
            .vps()
            .iter()
            .enumerate()
            .filter(|&(other, _)| other != index);
        for (other, vp) in others {
            if word(vp).is_some_and(|(its, _)| its == owner) {
                return Err(format!("vessel {owner} owns vp {index} and vp {other}"));
            }
        }
    }
    Ok(())
}

/// A thread is in one place; its state was saved once, and is resumed once (section 3.1).
pub fn a_thread_is_on_one_activation(machine: &Machine, _: usize, _: &Space) -> Result<(), String> {
    let carried = |vessel: usize| {
        let activation = machine.vessel(vessel, |vessel| vessel.activation.get());
        let alive = activation.filter(|_| machine.doing(vessel) != Doing::Gone);
        alive.and_then(|activation| activation.thread())
    };
    let Some(vessel) = machine.ran.get() else {
        return Ok(());
    };
    let Some(thread) = carried(vessel) else {
        return Ok(());
    };
    let before = thread.kernel.seen_on.get();
    thread.kernel.seen_on.set(vessel + 1);
    match before.checked_sub(1) {
        Some(other) if other != vessel => match carried(other) {
            Some(its) if std::ptr::eq(its, thread) => {
                Err(format!("one is on vessel {vessel} and on vessel {other}"))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// An activation that was stopped inside the runtime, where it may hold a lock, is continued first:
/// nobody else takes its virtual processor (section 3.3, recovery).
pub fn a_lock_holder_is_continued_first(
    machine: &Machine,
    _: usize,
    space: &Space,
) -> Result<(), String> {
    let books = space.books.borrow();
    for (index, (vp, &(owner, state))) in space.vps().iter().zip(&books.words).enumerate() {
        if state == State::Runtime
            && machine.ran.get() != Some(owner)
            && word(vp).is_some_and(|(now, _)| now != owner)
        {
            return Err(format!(
                "vessel {owner} was replaced on vp {index} inside the runtime"
            ));
        }
    }
    Ok(())
}

/// "No processor idles in the presence of ready threads" (section 1.2), beyond the hysteresis of
/// section 4.2 and the way of a call. An owner that is blocked in the kernel leaves its processor idle,
/// too, unless one that was replaced and not told yet computes there (how long it may,
/// [`super::a_stopped_thread_is_resumed_by_the_runtime`] says). Not asked of a virtual processor for which the
/// kernel has refused a kernel thread, until it has had the next chance to ask again; nor where a sentinel has to
/// wait for other virtual processors' activations, be it before it has followed its own.
pub fn no_processor_idles_while_a_thread_is_ready(
    machine: &Machine,
    _: usize,
    space: &Space,
) -> Result<(), String> {
    let mut books = space.books.borrow_mut();
    let vps = space.vps();
    books.idle_for.resize(vps.len(), None);
    let excepted = machine.style.may_starve_sentinels();
    if excepted || !vps.iter().any(|vp| vp.has_ready()) {
        books.idle_for.fill(None);
        return Ok(());
    }
    let now = machine.rounds.now();
    // How long the kernel takes to wake an activation, or to fetch a page for one that was called, is not the
    // runtime's doing.
    let passed = if space.waking.get() == 0 && !machine.is_delayed_in(space) {
        now - books.round
    } else {
        0
    };
    let most = IDLE_CALLS * rounds::of_a_call(&machine.style);
    let Books {
        words, idle_for, ..
    } = &mut *books;
    for (index, (vp, idle)) in vps.iter().zip(idle_for).enumerate() {
        let owner = word(vp).map(|(owner, _)| owner);
        let before = words.get(index).map(|&(owner, _)| owner);
        let lacks = space.lacks_processor(vp);
        let idles = owner.is_some_and(|owner| machine.idles(owner)) && !machine.is_used_astray(vp);
        let refused = space.refused.borrow().contains_key(&(index as u32));
        let waits = machine.has_left_its_sentinel(vp);
        if lacks || refused || waits || owner != before || !idles {
            *idle = None;
            continue;
        }
        let rounds = idle.map_or(0, |before| before + passed);
        *idle = Some(rounds);
        if rounds > most {
            return Err(format!("vp {index} since {rounds} rounds"));
        }
    }
    Ok(())
}

/// A thread whose processor was taken is a ready thread like others (section 3.1, *preempted*): while the space has another processor,
/// it goes to that one in the same upcall, beyond the way of a call, and of one for each thread of the list. Not while
/// the owner runs, which gives its list away when it stops.
///
/// # Errors
///
/// What is wrong.
pub fn no_thread_waits_for_a_processor_that_was_taken(
    machine: &Machine,
    _: usize,
    space: &Space,
) -> Result<(), String> {
    let runtime = space.started();
    let mut books = space.books.borrow_mut();
    let vps = runtime.vps();
    books.stranded_for.resize(vps.len(), None);
    let excepted = machine.style.may_starve_sentinels() || space.waking.get() != 0;
    if excepted || vps.iter().all(|vp| space.lacks_processor(vp)) {
        books.stranded_for.fill(None);
        return Ok(());
    }
    let passed = match machine.is_delayed_in(space) {
        true => 0,
        false => machine.rounds.now() - books.round,
    };
    let calls = IDLE_CALLS + runtime.stats().threads.peak();
    let most = calls * rounds::of_a_call(&machine.style);
    for (vp, rounds) in vps.iter().zip(&mut books.stranded_for) {
        let strands = space.lacks_processor(vp) && vp.has_ready();
        if !strands || vp.word().state() != State::Idle {
            *rounds = None;
            continue;
        }
        let waits = rounds.map_or(0, |before| before + passed);
        *rounds = Some(waits);
        if waits > most {
            let index = vp.index();
            return Err(format!("one waits on vp {index} since {waits} rounds"));
        }
    }
    Ok(())
}

/// Activations are recycled (section 4.3), and there are never more than the threads that there were
/// at once can need.
pub fn activations_are_bounded(_: &Machine, _: usize, space: &Space) -> Result<(), String> {
    let runtime = space.started();
    let (each, more) = ACTIVATIONS;
    let most = each * space.vps().len() as u64 + more + 2 * runtime.stats().threads.peak();
    let alive = space.alive.get() as u64;
    if alive > most {
        return Err(format!("there are {alive}, and may be {most}"));
    }
    Ok(())
}
