//! What must always hold: each a function, named in the report of a run that breaks it, with the
//! sentence of the paper from which it comes. [`AFTER_EVERY_EVENT`] are asked whenever the machine has
//! the processor, [`AT_REST`] when nothing can run, so that nobody is half-way.
//!
//! "Soon" is some *rounds*: in each, every vessel that could run all the time has run. How long a
//! vessel waits is the machine's doing, and says nothing about the runtime.
//!
//! That the holder of a
//! lock is continued first is stated for the runtime's own locks only (section 3.3): a program's
//! locks are not known to it. How many processors each of several address spaces
//! has is `upcall-alloc`'s to decide, and its tests' to judge; here, that a space keeps to it. That no wake-up is doubled is asked of what
//! ends a wait, which programs can see, not of kernel threads woken in vain, which they cannot.

use upcall_core::Role;
use upcall_core::vp::State;

use crate::machine::{Doing, Machine, Thread};
use crate::rounds;
use crate::sim::{Sim, Vp};
use crate::space::Space;

/// Says what is wrong, if anything is.
pub type Invariant = fn(&Machine, usize, &Space) -> Result<(), String>;

/// As [`Invariant`], about the vessel that makes a step.
pub type StepInvariant = fn(&Machine) -> Result<(), String>;

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

/// Asked at each step of a thread, about the vessel that makes it.
pub const AT_EACH_STEP: [(&str, StepInvariant); 3] = [
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
];

/// Asked when nothing can run.
pub const AT_REST: [(&str, Invariant); 6] = [
    ("no_thread_is_lost", no_thread_is_lost),
    (
        "no_wake_up_is_lost_or_doubled",
        no_wake_up_is_lost_or_doubled,
    ),
    ("no_event_is_lost", no_event_is_lost),
    ("somebody_waits_for_events", somebody_waits_for_events),
    ("who_is_absent_is_blocked", who_is_absent_is_blocked),
    ("superfluous_activations_end", superfluous_activations_end),
];

/// A processor may idle, while a thread is ready, for so many calls (see [`rounds::of_a_call`]): that of who
/// makes it ready; and that of who was called first, and found something else to run.
const IDLE_CALLS: u64 = 2;

/// A thread may run, while a more urgent one waits, for so many calls: that of who makes it ready; that of
/// who was asked and found that it has changed meanwhile; and that of the standby, if who was asked is
/// blocked.
const INVERTED_CALLS: u64 = 3;

/// A thread may run so many rounds without a virtual processor, or on a processor that is not its space's.
/// Who displaced or told it sends the signal before its next point: in the round that was under way
/// the signal is sent, and in the next the thread passes a point and has it. Who was replaced as blocked
/// and is not is first put where who replaced it settles what it left, after one point (the time is
/// noted).
const ASTRAY_ROUNDS: u64 = 3;

/// Activations beside threads: for each virtual processor an owner, a standby, its heir and two spares;
/// and six spares. For each thread there may be two: the one that it is blocked with, and a spare that is
/// kept because that one is absent, or has just brought its thread back and not yet found the pool.
const ACTIVATIONS: (u64, u64) = (5, 6);

/// Spares that are kept for each virtual processor, and beside those; one more for each activation that
/// is absent, which will need its owner's place when it comes back. The rule of `upcall-core`'s pool.
const SPARES: (u64, u64) = (2, 6);

/// What the invariants remember of an address space.
#[derive(Default)]
pub struct Books {
    /// The owner of each virtual processor and what it did, after the event before.
    words: Vec<(usize, State)>,
    /// After how many time slices one without a processor was found with a thread ready, if it always was
    /// since.
    stranded_since: Vec<Option<u64>>,
    /// For how many rounds a virtual processor was always idle with a thread ready.
    idle_for: Vec<Option<u64>>,
    /// The round of the event before.
    round: u64,
}

impl Machine {
    /// Between any two steps.
    pub(crate) fn watch(&self) -> Result<(), String> {
        self.ask_all(&AFTER_EVERY_EVENT, |_| true)?;
        for space in &self.spaces {
            space.books.borrow_mut().remember(space, self.rounds.now());
        }
        Ok(())
    }

    /// At each step of a thread.
    pub(crate) fn watch_step(&self) -> Result<(), String> {
        let mut broken = AT_EACH_STEP
            .iter()
            .map(|(name, holds)| holds(self).map_err(|what| format!("{name}: {what}")));
        broken.find(Result::is_err).unwrap_or(Ok(()))
    }

    /// When nothing can run. What has a ready thread and no processor is not at rest.
    pub(crate) fn watch_rest(&self) -> Result<(), String> {
        self.ask_all(&AT_REST, |space| {
            space.has_processor() || !space.vps().iter().any(Vp::has_ready)
        })
    }

    fn ask_all(
        &self,
        invariants: &[(&str, Invariant)],
        is_asked: impl Fn(&Space) -> bool,
    ) -> Result<(), String> {
        for (index, space) in self.spaces.iter().enumerate() {
            if space.runtime.get().is_none() || !is_asked(space) {
                continue;
            }
            for (name, holds) in invariants {
                holds(self, index, space).map_err(|what| format!("{name}: {what}"))?;
            }
        }
        Ok(())
    }

    /// Whether a vessel waits in the kernel, for anything but a page of the runtime's own, which is
    /// always there soon.
    fn idles(&self, vessel: usize) -> bool {
        match self.doing(vessel) {
            Doing::Blocked { .. } => !self.is_in_the_seat(vessel),
            Doing::Sleeping | Doing::Polling => true,
            Doing::Runnable | Doing::Waking { .. } | Doing::Gone => false,
        }
    }

    /// Whether an activation runs its thread on the processor of `vp` that does not know yet that it was
    /// replaced.
    fn is_used_astray(&self, vp: &Vp) -> bool {
        let runnable = self.runnable.borrow();
        runnable.iter().any(|&vessel| {
            let activation = self.vessel(vessel, |vessel| vessel.activation.get());
            let carrier = activation.filter(|one| one.thread().is_some() && !one.is_in_call());
            carrier.is_some_and(|one| std::ptr::eq(one.vp(), vp) && !vp.word().is_owned_by(one))
        })
    }

    /// Whether a vessel that carries nothing is on a page fault of its own.
    fn is_delayed(&self, vessel: usize) -> bool {
        matches!(self.doing(vessel), Doing::Blocked { .. }) && self.is_in_the_seat(vessel)
    }

    /// Of one that is blocked: whether it is the poller, on a page fault of its own.
    fn is_in_the_seat(&self, vessel: usize) -> bool {
        let activation = self.vessel(vessel, |vessel| vessel.activation.get());
        activation.is_some_and(|activation| activation.thread().is_none())
    }
}

impl Books {
    fn remember(&mut self, space: &Space, round: u64) {
        self.round = round;
        self.words.clear();
        let words = space.vps().iter().filter_map(word);
        self.words.extend(words);
    }
}

impl Space {
    pub(crate) fn vps(&self) -> &'static [Vp] {
        self.runtime.get().map_or(&[], |runtime| runtime.vps())
    }
}

/// The vessel that owns a virtual processor, and what it does.
fn word(vp: &Vp) -> Option<(usize, State)> {
    let word = vp.word();
    Some((Machine::vessel_of(word.owner())?, word.state()))
}

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

/// Once the kernel has stopped a thread, only the runtime resumes it (section 3.1: it is "never directly
/// resumed by the kernel"): a thread executes only on the activation that owns a virtual processor, or
/// learns soon that this one does not. Asked at each step of a thread.
///
/// Excused is who was replaced on a page fault, until whoever runs instead has told it; and, if a signal
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
    let Some(thread) = activation.thread() else {
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
/// [`a_stopped_thread_is_resumed_by_the_runtime`] says). Not asked once the kernel has refused a kernel thread, nor where a sentinel has to wait for other
/// virtual processors' activations.
pub fn no_processor_idles_while_a_thread_is_ready(
    machine: &Machine,
    _: usize,
    space: &Space,
) -> Result<(), String> {
    let mut books = space.books.borrow_mut();
    let vps = space.vps();
    books.idle_for.resize(vps.len(), None);
    let excepted = space.spawn_failed.get() || machine.style.may_starve_sentinels();
    if excepted || !vps.iter().any(|vp| vp.has_ready()) {
        books.idle_for.fill(None);
        return Ok(());
    }
    let now = machine.rounds.now();
    // How long the kernel takes to wake somebody is not the runtime's doing.
    let passed = if space.waking.get() == 0 {
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
        if lacks || owner != before || !idles {
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

/// A thread whose processor was taken is a ready thread like others (section 3.1, *preempted*): the processors
/// that are left come for it at the ends of their time slices, even if their own threads do nothing but
/// compute. Each end fetches one, and has one more preempted at most.
///
/// # Errors
///
/// What is wrong.
pub fn no_thread_waits_for_a_processor_that_was_taken(
    _: &Machine,
    _: usize,
    space: &Space,
) -> Result<(), String> {
    let Some(runtime) = space.runtime.get() else {
        return Ok(());
    };
    let mut books = space.books.borrow_mut();
    let vps = runtime.vps();
    books.stranded_since.resize(vps.len(), None);
    let (now, most) = (space.slices.get(), 2 * runtime.stats().threads.peak() + 2);
    for (vp, since) in vps.iter().zip(&mut books.stranded_since) {
        let strands = space.lacks_processor(vp) && vp.has_ready();
        if !strands || vp.word().state() != State::Idle {
            *since = None;
            continue;
        }
        let slices = now - *since.get_or_insert(now);
        if slices > most {
            let index = vp.index();
            return Err(format!(
                "one waits on vp {index} since {slices} time slices"
            ));
        }
    }
    Ok(())
}

/// Activations are recycled (section 4.3), and there are never more than the threads that there were
/// at once can need.
pub fn activations_are_bounded(_: &Machine, _: usize, space: &Space) -> Result<(), String> {
    let Some(runtime) = space.runtime.get() else {
        return Ok(());
    };
    let (each, more) = ACTIVATIONS;
    let most = each * space.vps().len() as u64 + more + 2 * runtime.stats().threads.peak();
    let alive = space.alive.get() as u64;
    if alive > most {
        return Err(format!("there are {alive}, and may be {most}"));
    }
    Ok(())
}

/// A thread that can run is not forgotten (section 1.2). Not asked once the kernel has refused a
/// kernel thread; neither while a virtual processor that was called for it is on a page fault of its
/// own.
pub fn no_thread_is_lost(machine: &Machine, _: usize, space: &Space) -> Result<(), String> {
    let mut owners = space.vps().iter().filter_map(word).map(|(owner, _)| owner);
    let is_blocked = |owner| matches!(machine.doing(owner), Doing::Blocked { .. });
    if owners.any(|owner| is_blocked(owner) && machine.is_in_the_seat(owner)) {
        return Ok(());
    }
    if space.vps().iter().all(|vp| space.lacks(vp.index())) {
        return Ok(());
    }
    match space.vps().iter().find(|vp| vp.has_ready()) {
        Some(vp) if !space.spawn_failed.get() => {
            Err(format!("one is ready on vp {} and nobody runs", vp.index()))
        }
        _ => Ok(()),
    }
}

/// Every wake-up that a waker was told to have delivered has ended one wait (section 3.1: the thread
/// system is told of every event; and 2.2, what comes of events that are not told).
pub fn no_wake_up_is_lost_or_doubled(_: &Machine, _: usize, space: &Space) -> Result<(), String> {
    let (sent, came) = (space.woken.get(), space.awoken.get());
    if sent != came && !space.spawn_failed.get() {
        return Err(format!("{sent} were sent, {came} came"));
    }
    Ok(())
}

/// Every event that the poller took has ended one thread's wait, and no thread waits for one that is there
/// (section 3.1, as above).
pub fn no_event_is_lost(_: &Machine, _: usize, space: &Space) -> Result<(), String> {
    let (told, came) = (space.told.get(), space.heard.get());
    if told != came && !space.spawn_failed.get() {
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

/// Who counts as absent is blocked in the kernel: what came back was let in (section 3.1, *unblocked*).
pub fn who_is_absent_is_blocked(
    machine: &Machine,
    index: usize,
    space: &Space,
) -> Result<(), String> {
    let Some(runtime) = space.runtime.get() else {
        return Ok(());
    };
    let absent = runtime.stats().absent.get();
    let blocked = machine.count(index, |doing| matches!(doing, Doing::Blocked { .. }));
    if absent > blocked as u64 {
        return Err(format!("{absent} are absent, {blocked} are blocked"));
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
    let Some(runtime) = space.runtime.get() else {
        return Ok(());
    };
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
        match activation.role() {
            Role::Standby => standing_by += 1,
            Role::Reserved => reserved += 1,
            Role::Spare => spare += 1,
            Role::Carrier | Role::Resting => idle += 1,
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
