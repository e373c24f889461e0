//! What is shown: two moments, and what lies between them. As JSON, or as the rows of `view`.

use serde::Serialize;

use crate::stacks::{State, Thread};

use super::look::{Daemon, Moment, Program};
use crate::live::Counters;

#[derive(Serialize)]
pub struct Report {
    pub v: u32,
    /// How far the two moments are apart.
    pub interval_ms: u64,
    /// "yes", "no", or "silent": one that does not answer, or of another version.
    pub daemon: &'static str,
    /// Why no counters can be found.
    pub trouble: Option<String>,
    pub processors: Vec<Use>,
    pub programs: Vec<Shown>,
}

/// Who used a processor, in parts of 1.
#[derive(Serialize)]
pub struct Use {
    pub number: u32,
    pub idle: f64,
    /// Whatever is not under Upcall.
    pub others: f64,
    pub programs: Vec<Part>,
}

#[derive(Serialize)]
pub struct Part {
    pub pid: i32,
    pub part: f64,
}

#[derive(Serialize)]
pub struct Shown {
    pub pid: i32,
    pub program: String,
    pub user: String,
    /// What the daemon lets it do.
    pub turn: Option<&'static str>,
    pub vps: Option<u32>,
    pub threads: Option<u64>,
    /// Of these, by the counters.
    pub blocked: Option<u64>,
    pub states: Option<States>,
    /// How many processors it used.
    pub processors: f64,
    pub per_second: Option<Rates>,
    pub counters: Option<Counters>,
    pub no_counters: Option<String>,
    pub no_states: Option<String>,
    /// If asked for by -p.
    pub list: Option<Vec<Listed>>,
}

/// How many threads are in each state.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize)]
pub struct States {
    pub running: u64,
    pub ready: u64,
    pub parked: u64,
    pub held: u64,
    pub blocked: u64,
    pub preempted: u64,
    pub bound: u64,
}

/// What happened in each second between the two moments.
#[derive(Clone, Copy, Default, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Upcalls: a thread blocked in the kernel.
    pub blocked: f64,
    /// Upcalls: a thread can run again.
    pub unblocked: f64,
    /// Upcalls: an activation was preempted for one that came back.
    pub preempted: f64,
    /// Upcalls: an idle virtual processor was put to work.
    pub added: f64,
    /// Upcalls: a processor was taken for another program.
    pub taken: f64,
    pub slices_ended: f64,
    pub stolen: f64,
    pub created: f64,
    pub parked_on_poller: f64,
}

/// A thread of a program.
#[derive(Clone, Serialize)]
pub struct Listed {
    pub number: u64,
    pub id: i32,
    pub name: String,
    pub state: &'static str,
    pub vp: Option<u32>,
    pub tid: Option<i32>,
    pub waits_for: Option<String>,
}

impl Rates {
    fn between(before: &Counters, after: &Counters, seconds: f64) -> Self {
        // A program can write its counters: they may go back.
        let rate = |of: fn(&Counters) -> u64| of(after).saturating_sub(of(before)) as f64 / seconds;
        Rates {
            blocked: rate(|one| one.blocked),
            unblocked: rate(|one| one.returned.saturating_add(one.delivered)),
            preempted: rate(|one| one.displaced),
            added: rate(|one| one.rung),
            taken: rate(|one| one.taken),
            slices_ended: rate(|one| one.preempted),
            stolen: rate(|one| one.stolen),
            created: rate(|one| one.created),
            parked_on_poller: rate(|one| one.polled),
        }
    }

    /// All upcalls.
    pub fn upcalls(&self) -> f64 {
        self.blocked + self.unblocked + self.preempted + self.added + self.taken
    }
}

impl States {
    fn of(threads: &[Thread]) -> Self {
        let mut states = States::default();
        for thread in threads {
            *match thread.state {
                State::Running => &mut states.running,
                State::Ready => &mut states.ready,
                State::Parked => &mut states.parked,
                State::Held => &mut states.held,
                State::Blocked => &mut states.blocked,
                State::Preempted => &mut states.preempted,
                State::Bound => &mut states.bound,
            } += 1;
        }
        states
    }
}

impl Report {
    /// `lists`: with the threads of each program.
    pub fn new(before: &Moment, after: &Moment, lists: bool) -> Self {
        let interval = after.at.saturating_duration_since(before.at);
        let seconds = interval.as_secs_f64().max(0.001);
        let was = |program: &Program| {
            let same = |old: &&Program| old.pid == program.pid && old.began == program.began;
            before.programs.iter().find(same)
        };
        // SAFETY: asks only.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        let mut spent: Vec<(i32, u32, u64)> = Vec::new();
        let mut programs = Vec::new();
        for program in &after.programs {
            let old = was(program);
            let mut sum = 0;
            for (tid, &(now, processor)) in &program.kernel_threads {
                // One that is new has been there for no longer than the program was not looked at.
                let then = match old {
                    Some(old) => old.kernel_threads.get(tid).map_or(0, |&(ticks, _)| ticks),
                    None => now,
                };
                let delta = now.saturating_sub(then);
                sum += delta;
                spent.push((program.pid, processor, delta));
            }
            programs.push(Shown::new(
                program,
                old,
                seconds,
                lists,
                sum as f64 / ticks / seconds,
            ));
        }
        let processors = after.processors.iter().map(|processor| {
            let old = before
                .processors
                .iter()
                .find(|old| old.number == processor.number);
            let (idle, all) = old.map_or((0, 0), |old| {
                let since = |now: u64, then: u64| now.saturating_sub(then);
                (
                    since(processor.idle, old.idle),
                    since(processor.all, old.all),
                )
            });
            let by = |pid: i32| {
                let own = spent
                    .iter()
                    .filter(|one| one.0 == pid && one.1 == processor.number);
                own.map(|one| one.2).sum::<u64>()
            };
            let uses: Vec<(i32, u64)> = after
                .programs
                .iter()
                .map(|program| (program.pid, by(program.pid)))
                .filter(|&(_, ticks)| ticks > 0)
                .collect();
            let used: u64 = uses.iter().map(|one| one.1).sum();
            // The kernel does not count both at the same moment.
            let whole = all.max(used + idle).max(1) as f64;
            Use {
                number: processor.number,
                idle: if all == 0 && used == 0 {
                    1.0
                } else {
                    idle as f64 / whole
                },
                others: all.saturating_sub(used + idle) as f64 / whole,
                programs: uses
                    .into_iter()
                    .map(|(pid, ticks)| Part {
                        pid,
                        part: ticks as f64 / whole,
                    })
                    .collect(),
            }
        });
        Report {
            v: 1,
            interval_ms: interval.as_millis() as u64,
            daemon: match after.daemon {
                Daemon::There => "yes",
                Daemon::None => "no",
                Daemon::Silent => "silent",
            },
            trouble: after.trouble.clone(),
            processors: processors.collect(),
            programs,
        }
    }
}

impl Shown {
    fn new(
        program: &Program,
        old: Option<&Program>,
        seconds: f64,
        lists: bool,
        processors: f64,
    ) -> Self {
        let counters = program.counters.as_ref().ok().copied();
        let before = old.and_then(|old| old.counters.as_ref().ok());
        let threads = program.threads.as_ref().ok();
        Shown {
            pid: program.pid,
            program: program.name.clone(),
            user: program.user.clone(),
            turn: program.turn,
            vps: counters.map(|counters| counters.vps),
            // The counter has threads, too, that have ended and whose memory is kept.
            threads: threads
                .map(|threads| threads.len() as u64)
                .or(counters.map(|counters| counters.threads)),
            blocked: counters.map(|counters| counters.blocked.saturating_sub(counters.returned)),
            states: threads.map(|threads| States::of(threads)),
            processors,
            per_second: counters
                .zip(before)
                .map(|(now, before)| Rates::between(before, &now, seconds)),
            counters,
            no_counters: program.counters.as_ref().err().cloned(),
            no_states: program.threads.as_ref().err().cloned(),
            list: threads
                .filter(|_| lists)
                .map(|threads| threads.iter().map(Listed::new).collect()),
        }
    }
}

impl Listed {
    fn new(thread: &Thread) -> Self {
        Listed {
            number: thread.number,
            id: thread.id,
            name: thread.name.clone(),
            state: thread.state.name(),
            vp: thread.vp,
            tid: thread.tid,
            waits_for: thread.waits_for.clone(),
        }
    }
}
