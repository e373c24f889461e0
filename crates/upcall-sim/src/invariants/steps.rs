//! What must hold at each step of a thread.

use upcall_core::Rank;
use upcall_core::State;

use super::{StepInvariant, word};
use crate::machine::sim::{Sim, Vp};
use crate::machine::{Doing, Machine, Thread, rounds};

/// Asked at each step of a thread, about the vessel that makes it.
pub const AT_EACH_STEP: [(&str, StepInvariant); 7] = [
    (
        "no_thread_waits_while_a_less_urgent_one_runs",
        no_thread_waits_while_a_less_urgent_one_runs,
    ),
    (
        "a_stopped_thread_is_resumed_by_the_runtime",
        a_stopped_thread_is_resumed_by_the_runtime,
    ),
    (
        "a_taken_processor_is_given_up",
        a_taken_processor_is_given_up,
    ),
    (
        "a_thread_in_a_critical_section_is_continued_first",
        a_thread_in_a_critical_section_is_continued_first,
    ),
    ("a_held_thread_does_not_run", a_held_thread_does_not_run),
    (
        "who_comes_back_is_on_its_processor",
        who_comes_back_is_on_its_processor,
    ),
    (
        "a_processor_with_a_thread_is_not_idle",
        a_processor_with_a_thread_is_not_idle,
    ),
];

/// A thread may run, while a more urgent one waits, for so many calls: that of who makes it ready; that of
/// who was asked and found that it has changed meanwhile; and that of the standby, if who was asked is
/// blocked.
const INVERTED_CALLS: u64 = 3;

/// A thread that is in no critical section may run, while one in a section waits, for so many calls: that of the owner
/// that gives it away, where its processor was taken; that of who comes back, is put first and has the owner asked; and that
/// of the standby, if who was asked is blocked.
const HELD_UP_CALLS: u64 = 4;

/// A thread may run so many rounds without a virtual processor, or on a processor that is not its space's.
/// The activation that displaced or told it sends the signal before its next point: in the round that was under
/// way the signal is sent, and in the next the thread passes a point and has it. An activation that was replaced as
/// blocked and is not is first put where its successor settles what it left, after one point (the time is
/// noted).
const ASTRAY_ROUNDS: u64 = 3;

/// Once the kernel has stopped a thread, only the runtime resumes it (section 3.1: it is "never directly
/// resumed by the kernel"): a thread executes only on the activation that owns a virtual processor, or
/// learns soon that this one does not. Asked at each step of a thread.
///
/// Excused is an activation replaced on a page fault, until the one that runs instead has told it; and, if a signal
/// would have cut its wait short, until it enters the runtime, or its slice ends: invariant 3 of
/// ARCHITECTURE.md.
///
/// # Errors
///
/// What is wrong.
pub fn a_stopped_thread_is_resumed_by_the_runtime(machine: &Machine) -> Result<(), String> {
    machine.me(|vessel| {
        let Some(activation) = vessel.activation.get() else {
            return Ok(());
        };
        if activation.is_unsettled()
            || (activation.is_absent() && Sim::is_interruptible(activation))
            || activation.vp().word().is_owned_by(activation)
        {
            vessel.astray.set(0);
            return Ok(());
        }
        let now = machine.rounds.now();
        let since = vessel.astray.get().checked_sub(1).unwrap_or(now);
        vessel.astray.set(since + 1);
        if now - since > ASTRAY_ROUNDS {
            return Err(format!("it still runs after {} rounds", now - since));
        }
        Ok(())
    })
}

/// As many activations run as processors are assigned (section 3.1, *processor preempted*): once the program
/// was told that a processor was taken, the thread that runs there stops soon.
///
/// # Errors
///
/// What is wrong.
pub fn a_taken_processor_is_given_up(machine: &Machine) -> Result<(), String> {
    machine.me(|vessel| {
        let runs = vessel
            .activation
            .get()
            .filter(|activation| activation.vp().word().is_owned_by(activation));
        let stopped = runs.and_then(|activation| {
            machine.spaces[vessel.space].stopped(activation.vp().processor())
        });
        let Some(told) = stopped.and_then(|stopped| stopped.told) else {
            vessel.overstays.set(0);
            return Ok(());
        };
        let now = machine.rounds.now();
        let since = vessel
            .overstays
            .get()
            .checked_sub(1)
            .unwrap_or(now)
            .max(told);
        vessel.overstays.set(since + 1);
        if now - since > ASTRAY_ROUNDS {
            return Err(format!("its thread runs there for {} rounds", now - since));
        }
        Ok(())
    })
}

/// "No high-priority thread waits for a processor while a low-priority thread runs" (section 1.2), on any
/// virtual processor, beyond the way of a call. A stopped thread waits, too. Asked at each step of a thread.
///
/// Excused is what the kernel takes time for: an activation that is woken, or that is on a page fault of
/// the runtime's own.
///
/// # Errors
///
/// What is wrong.
pub fn no_thread_waits_while_a_less_urgent_one_runs(machine: &Machine) -> Result<(), String> {
    let (space, activation) = machine.me(|vessel| (vessel.space, vessel.activation.get()));
    let space = &machine.spaces[space];
    let Some(activation) = activation.filter(|one| one.vp().word().is_owned_by(one)) else {
        return Ok(());
    };
    let excepted = space.spawn_failed.get()
        || space.waking.get() != 0
        || machine.style.may_starve_sentinels()
        || space.vps().iter().any(|vp| {
            let owner = word(vp).map(|(owner, _)| owner);
            space.lacks_processor(vp) || owner.is_some_and(|it| machine.is_delayed(it))
        });
    // In a critical section it goes on to the end of that.
    let Some(thread) = activation.thread().filter(|one| !one.is_in_section()) else {
        return Ok(());
    };
    // It may have come back without having been chosen.
    thread.kernel.passed.1.set(0);
    if excepted {
        return Ok(());
    }
    let now = machine.rounds.now();
    let call = rounds::of_a_call(&machine.style);
    for waits in space.ranked.borrow().iter() {
        if waits.rank() >= thread.rank() || !is_waiting(machine, waits) {
            continue;
        }
        let (since, last) = &waits.kernel.passed;
        let is_new = last.get() == 0 || now - (last.get() as u64 - 1) > call;
        last.set(now as usize + 1);
        if is_new {
            since.set(now as usize);
        }
        let rounds = now - since.get() as u64;
        if rounds > INVERTED_CALLS * call {
            let (waits, runs) = (waits.rank().0, thread.rank().0);
            return Err(format!(
                "rank {waits} has waited for {rounds} rounds while rank {runs} runs"
            ));
        }
    }
    Ok(())
}

/// A thread that was stopped in a critical section is continued first (section 3.3): no thread in none runs while it
/// waits, beyond the way of a call. Asked at each step of a thread.
///
/// Excused are threads that run beside one that is in a section itself: that one is not stopped for another, and only its
/// virtual processor was asked. What the kernel takes time for is excused as for ranks.
///
/// # Errors
///
/// What is wrong.
pub fn a_thread_in_a_critical_section_is_continued_first(machine: &Machine) -> Result<(), String> {
    let (space, activation) = machine.me(|vessel| (vessel.space, vessel.activation.get()));
    let space = &machine.spaces[space];
    let waiting = space.in_sections.borrow();
    if waiting.is_empty() {
        return Ok(());
    }
    let runs_inside = |vp: &Vp| {
        let thread = vp.word().owner().thread();
        thread.is_some_and(Thread::is_in_section)
    };
    let excepted = space.spawn_failed.get()
        || space.waking.get() != 0
        || machine.style.may_starve_sentinels()
        || space.vps().iter().any(|vp| {
            let owner = word(vp).map(|(owner, _)| owner);
            runs_inside(vp) || owner.is_some_and(|it| machine.is_delayed(it))
        });
    let owner = activation.filter(|one| one.vp().word().is_owned_by(one));
    if excepted || owner.is_none_or(|owner| space.lacks_processor(owner.vp())) {
        for waits in waiting.iter() {
            waits.kernel.held_up.1.set(0);
        }
        return Ok(());
    }
    let now = machine.rounds.now();
    let call = rounds::of_a_call(&machine.style);
    for waits in waiting.iter() {
        let (since, last) = &waits.kernel.held_up;
        if !waits.is_in_section() || !is_waiting(machine, waits) {
            last.set(0);
            continue;
        }
        let is_new = last.get() == 0 || now - (last.get() as u64 - 1) > call;
        last.set(now as usize + 1);
        if is_new {
            since.set(now as usize);
        }
        let rounds = now - since.get() as u64;
        if rounds > HELD_UP_CALLS * call {
            return Err(format!("one has waited for {rounds} rounds"));
        }
    }
    Ok(())
}

/// A thread that a policy holds does not run, beyond the way of a call, though nobody else could. Asked at
/// each step of a thread.
///
/// # Errors
///
/// What is wrong.
pub fn a_held_thread_does_not_run(machine: &Machine) -> Result<(), String> {
    let activation = machine.me(|vessel| vessel.activation.get());
    // Who has none is stopped for that.
    let owner = activation.filter(|one| one.vp().word().is_owned_by(one));
    let Some(thread) = owner.and_then(|owner| owner.thread()) else {
        return Ok(());
    };
    let held = &thread.kernel.held;
    if thread.rank() != Rank::HELD || thread.is_in_section() {
        held.set(0);
        return Ok(());
    }
    let now = machine.rounds.now();
    let since = held.get().checked_sub(1).map_or(now, |since| since as u64);
    held.set(since as usize + 1);
    if now - since > rounds::of_a_call(&machine.style) {
        return Err(format!("one runs for {} rounds", now - since));
    }
    Ok(())
}

/// "There are always exactly as many running activations as processors" (section 3.1): when a virtual processor
/// has moved, an activation that comes back to it, from the kernel or after it was displaced, runs on its new processor, or two would run
/// on the old one. Asked at each step of a thread.
///
/// # Errors
///
/// What is wrong.
pub fn who_comes_back_is_on_its_processor(machine: &Machine) -> Result<(), String> {
    machine.me(|vessel| {
        let activation = vessel.activation.get();
        // One that was granted the processor has not come back before its interruption.
        let owner = activation.filter(|one| {
            let word = one.vp().word();
            word.is_owned_by(one) && word.state() != State::Granted
        });
        let home = owner.map(|owner| owner.vp().processor());
        let is = vessel.processor.get();
        match home {
            Some(home) if vessel.has_to_follow.get() && home != is => {
                Err(format!("its thread runs on processor {is}, not {home}"))
            }
            _ => Ok(()),
        }
    })
}

/// The kernel is told when a program has more processors than work (section 3.2): a virtual processor that runs a thread does not
/// count as idle. Asked at each step of a thread.
///
/// # Errors
///
/// What is wrong.
pub fn a_processor_with_a_thread_is_not_idle(machine: &Machine) -> Result<(), String> {
    let activation = machine.me(|vessel| vessel.activation.get());
    let owner = activation.filter(|one| one.vp().word().is_owned_by(one));
    match owner {
        Some(owner) if owner.vp().rests() => {
            Err(format!("vp {} counts as idle", owner.vp().index()))
        }
        _ => Ok(()),
    }
}

/// Whether a thread could run: it is ready, or stopped in an activation that was displaced.
fn is_waiting(machine: &Machine, thread: &'static Thread) -> bool {
    if thread.is_ready() {
        return true;
    }
    let carrier = thread.carrier().filter(|_| thread.is_running());
    carrier.is_some_and(|carrier| {
        let vessel = Machine::vessel_of(carrier);
        !carrier.vp().word().is_owned_by(carrier)
            && vessel.is_some_and(|vessel| machine.doing(vessel) == Doing::Runnable)
    })
}
