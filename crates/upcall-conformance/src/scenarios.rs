//! The scenarios, each once.
//!
//! A thread that must run is one for which others wait *computing*: they neither park nor give way,
//! and where [`Slices::Endless`] is asked for, no time slice ends their waiting either. So only the
//! upcall after which the scenario is named lets it go on.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::world::{Counters, Kind, Slices, World};

/// How long calls take that end by themselves: longer than everything else in a round.
const CALL_NS: u64 = 3_000_000;
/// How long a program rests.
const REST_NS: u64 = 20_000_000;
/// Computing threads meet so often before, while and after processors are forbidden.
const MEETINGS: u32 = 6;

/// What is known of a run when it is over.
pub struct Facts {
    /// Virtual processors.
    pub processors: u64,
    /// [`World::rounds`].
    pub rounds: u64,
    /// What was counted.
    pub counters: Counters,
}

/// A scenario for worlds of one kind.
pub struct Scenario<W: World> {
    /// Its name.
    pub name: &'static str,
    /// What it does; says why if it cannot be done in this world.
    pub body: fn(W) -> Result<(), String>,
    /// When its threads are preempted, with so many virtual processors.
    pub slices: fn(usize) -> Slices,
    /// How many virtual processors it takes.
    pub least: usize,
    /// What must hold of every run.
    pub holds: fn(&Facts) -> bool,
    /// What must have happened at least once in all runs in a world, if that can be seen.
    pub happens: Option<fn(&Counters) -> u64>,
}

/// All scenarios.
pub fn scenarios<W: World>() -> Vec<Scenario<W>> {
    let any = Scenario::<W> {
        name: "",
        body: |_| Ok(()),
        slices: |_| Slices::Endless,
        least: 1,
        holds: |_| true,
        happens: None,
    };
    vec![
        Scenario {
            name: "block",
            body: |w| blocked_at_once(w, Kind::Call),
            // All processors' threads were blocked, and one more ran.
            holds: |facts| facts.counters.blocked >= facts.rounds,
            ..any
        },
        Scenario {
            name: "fault",
            body: |w| blocked_at_once(w, Kind::Fault),
            holds: |facts| facts.counters.blocked >= facts.rounds,
            ..any
        },
        Scenario {
            name: "unblock_while_idle",
            body: unblock_while_idle,
            happens: Some(|counters| counters.unblocked),
            ..any
        },
        Scenario {
            name: "unblock_while_busy",
            body: unblock_while_busy,
            slices: endless_on_one,
            happens: Some(|counters| counters.displaced),
            ..any
        },
        Scenario {
            name: "priority_unblock",
            body: priority_unblock,
            ..any
        },
        Scenario {
            name: "preempt_in_critical_section",
            body: preempt_in_critical_section,
            slices: |_| Slices::Short,
            // One thread more than processors computed at the same time.
            holds: |facts| facts.counters.preempted >= facts.rounds,
            ..any
        },
        Scenario {
            name: "preempt_in_runtime",
            body: preempt_in_runtime,
            slices: |_| Slices::Shortest,
            ..any
        },
        Scenario {
            name: "last_processor",
            body: last_processor,
            slices: |_| Slices::Short,
            happens: W::TELLS_OF_LOSS.then_some(|counters| counters.taken),
            ..any
        },
        Scenario {
            name: "add",
            body: add,
            least: 2,
            happens: Some(|counters| counters.added),
            ..any
        },
        Scenario {
            name: "idle",
            body: idle,
            ..any
        },
        Scenario {
            name: "need",
            body: need,
            least: 2,
            happens: Some(|counters| counters.added),
            ..any
        },
        Scenario {
            name: "resume",
            body: resume,
            slices: endless_on_one,
            happens: Some(|counters| counters.displaced),
            ..any
        },
        Scenario {
            name: "recycle",
            body: recycle,
            // Blocked ones, their successors and standbys, and a few: however many rounds.
            holds: |facts| facts.counters.peak <= 5 * facts.processors + 6,
            happens: Some(|counters| counters.recycled),
            ..any
        },
        Scenario {
            name: "warning",
            body: warning,
            slices: |_| Slices::Short,
            least: 2,
            ..any
        },
        Scenario {
            name: "exhaustion",
            body: exhaustion,
            slices: |_| Slices::Short,
            happens: Some(|counters| counters.refused),
            ..any
        },
    ]
}

/// With several, a thread that comes back may be meant for an idle processor that finds something else to
/// run before: then it is the end of a time slice that lets it run.
fn endless_on_one(processors: usize) -> Slices {
    if processors == 1 {
        Slices::Endless
    } else {
        Slices::Short
    }
}

fn word() -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(0)))
}

fn add_one(word: &AtomicU32) {
    word.fetch_add(1, Ordering::SeqCst);
}

fn is(word: &AtomicU32, value: u32) -> bool {
    word.load(Ordering::SeqCst) == value
}

/// Computes until that holds.
fn compute_until<W: World>(w: W, holds: impl Fn() -> bool) {
    while !holds() {
        w.step();
    }
}

/// One thread for each virtual processor.
fn on_each<W: World>(w: W, body: impl FnOnce(W) + Copy + Send + 'static) -> Vec<W::Handle> {
    (0..w.processors()).map(|_| w.spawn(body)).collect()
}

fn join_all<W: World>(w: W, threads: Vec<W::Handle>) {
    for thread in threads {
        w.join(thread);
    }
}

/// As many threads as there are processors wait in the kernel, and the one that lets them go runs.
fn blocked_at_once<W: World>(w: W, kind: Kind) -> Result<(), String> {
    for _ in 0..w.rounds() {
        let gate = w.gate(kind)?;
        let passed = word();
        let threads = on_each(w, move |w| {
            w.pass(gate);
            add_one(passed);
        });
        all_wait(w, gate);
        assert!(is(passed, 0), "passed a closed gate");
        w.open(gate, w.processors());
        join_all(w, threads);
        assert!(is(passed, w.processors() as u32));
    }
    Ok(())
}

/// Gives way until one thread for each processor waits on the gate.
fn all_wait<W: World>(w: W, gate: W::Gate) {
    while w.nr_waiting(gate) < w.processors() {
        w.yield_now();
    }
}

/// Calls end when nothing else is to be done anywhere.
fn unblock_while_idle<W: World>(w: W) -> Result<(), String> {
    for _ in 0..w.rounds() {
        let (near, back) = (word(), word());
        let threads = on_each(w, move |w| {
            add_one(near);
            w.call_for(CALL_NS);
            add_one(back);
            w.wake(back, 1);
        });
        while !is(near, w.processors() as u32) {
            w.yield_now();
        }
        loop {
            let now = back.load(Ordering::SeqCst);
            if now == w.processors() as u32 {
                break;
            }
            w.wait(back, now);
        }
        join_all(w, threads);
    }
    Ok(())
}

/// Calls end, by themselves, when every processor has a thread that computes, and waits for those that
/// come back. Had one of these to end the calls, it could be in a system call of its own at that moment.
fn unblock_while_busy<W: World>(w: W) -> Result<(), String> {
    let all = w.processors() as u32;
    for _ in 0..w.rounds() {
        let (near, busy, back) = (word(), word(), word());
        let mut threads = on_each(w, move |w| {
            add_one(near);
            w.call_for(CALL_NS);
            add_one(back);
        });
        while !is(near, all) {
            w.yield_now();
        }
        threads.extend((1..all).map(|_| {
            w.spawn(move |w| {
                add_one(busy);
                compute_until(w, || is(back, all));
            })
        }));
        compute_until(w, || is(busy, all - 1));
        compute_until(w, || is(back, all));
        join_all(w, threads);
    }
    Ok(())
}

/// Who comes back is more urgent than the only thread that runs, which therefore finds that the other
/// has run.
fn priority_unblock<W: World>(w: W) -> Result<(), String> {
    // The runtime is there from the first thread on, and answers from then on.
    w.join(w.spawn(|_| ()));
    w.set_priority(1)?;
    if w.processors() != 1 {
        return Err("where there is another processor, it says nothing".to_owned());
    }
    for _ in 0..w.rounds() {
        let gate = w.gate(Kind::Call)?;
        let ran = word();
        let urgent = w.spawn(move |w| {
            w.set_priority(2).expect("there are priorities");
            w.pass(gate);
            add_one(ran);
        });
        all_wait(w, gate);
        w.open(gate, 1);
        w.step();
        assert!(is(ran, 1), "the less urgent thread ran first");
        w.join(urgent);
    }
    Ok(())
}

/// A thread has the program's lock until all that spin for it have tried: it is preempted meanwhile,
/// and must be continued although the others always have something to do.
fn preempt_in_critical_section<W: World>(w: W) -> Result<(), String> {
    let all = w.processors() as u32;
    for _ in 0..w.rounds() {
        let (lock, tried, inside) = (word(), word(), word());
        lock.store(1, Ordering::SeqCst);
        let threads = on_each(w, move |w| {
            add_one(tried);
            compute_until(w, || lock.swap(1, Ordering::SeqCst) == 0);
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have a lock");
            w.step();
            inside.fetch_sub(1, Ordering::SeqCst);
            lock.store(0, Ordering::SeqCst);
        });
        compute_until(w, || is(tried, all));
        lock.store(0, Ordering::SeqCst);
        join_all(w, threads);
    }
    Ok(())
}

/// Threads that do little else than go into the runtime: preempted there, they are continued first.
fn preempt_in_runtime<W: World>(w: W) -> Result<(), String> {
    let turns = 4 * w.rounds();
    let (lock, total) = (word(), word());
    let players = (0..w.processors()).flat_map(|_| {
        let ball = word();
        [0, 1].map(|side| {
            w.spawn(move |w| {
                for _ in 0..turns {
                    await_ball(w, ball, side);
                    with_lock(w, lock, || {
                        let before = total.load(Ordering::SeqCst);
                        w.step();
                        total.store(before + 1, Ordering::SeqCst);
                    });
                    add_one(ball);
                    w.wake(ball, 1);
                    w.yield_now();
                }
            })
        })
    });
    let players: Vec<_> = players.collect();
    let all = players.len() as u32;
    join_all(w, players);
    assert_eq!(total.load(Ordering::SeqCst), all * turns);
    Ok(())
}

fn await_ball<W: World>(w: W, ball: &'static AtomicU32, side: u32) {
    loop {
        let now = ball.load(Ordering::SeqCst);
        if now % 2 == side {
            return;
        }
        w.wait(ball, now);
    }
}

/// The mutex of Drepper's "Futexes Are Tricky": 0 free, 1 locked, 2 with waiters.
fn with_lock<W: World>(w: W, lock: &'static AtomicU32, inside: impl FnOnce()) {
    let free = lock.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst);
    if free.is_err() {
        while lock.swap(2, Ordering::SeqCst) != 0 {
            w.wait(lock, 2);
        }
    }
    inside();
    if lock.swap(0, Ordering::SeqCst) == 2 {
        w.wake(lock, 1);
    }
}

/// Every processor computes when all are taken; meanwhile calls end. They come back, and everything
/// goes on.
fn last_processor<W: World>(w: W) -> Result<(), String> {
    let (gone, calls) = (word(), word());
    let mut threads: Vec<_> = (1..w.processors())
        .map(|_| w.spawn(move |w| compute_until(w, || is(gone, 1))))
        .collect();
    threads.push(w.spawn(move |w| {
        while is(gone, 0) {
            w.call_for(CALL_NS / 2);
            add_one(calls);
        }
    }));
    w.invite_rival();
    compute_until(w, || !w.has_company());
    // And once more, with the processors back.
    let before = calls.load(Ordering::SeqCst);
    compute_until(w, || calls.load(Ordering::SeqCst) > before);
    add_one(gone);
    join_all(w, threads);
    Ok(())
}

/// A call ends on a processor where another thread waits for that, computing, while others are idle.
fn add<W: World>(w: W) -> Result<(), String> {
    for _ in 0..w.rounds() {
        let back = word();
        let gates = gates(w)?;
        let pass = |gate| {
            w.spawn(move |w| {
                w.pass(gate);
                add_one(back);
            })
        };
        let threads: Vec<_> = gates.iter().copied().map(pass).collect();
        for &gate in &gates {
            while w.nr_waiting(gate) == 0 {
                w.yield_now();
            }
        }
        // One of them was blocked on the processor that this thread has now.
        for (index, &gate) in gates.iter().enumerate() {
            w.open(gate, 1);
            compute_until(w, || is(back, index as u32 + 1));
        }
        join_all(w, threads);
    }
    Ok(())
}

/// Nobody computes: nothing is used.
fn idle<W: World>(w: W) -> Result<(), String> {
    for _ in 0..3 {
        let threads = on_each(w, |w| w.sleep(REST_NS));
        w.sleep(REST_NS / 4);
        let before = w.busy_ns();
        w.sleep(REST_NS / 2);
        let used = w.busy_ns() - before;
        assert!(used < REST_NS / 4, "{used} ns of computing in a rest");
        join_all(w, threads);
    }
    Ok(())
}

/// All processors rest but one, on which a thread makes others ready, old ones and new ones, and waits
/// for all of them, computing, as they do for each other.
fn need<W: World>(w: W) -> Result<(), String> {
    let others = w.processors() as u32 - 1;
    for _ in 0..w.rounds() {
        let (waiting, go, met, here) = (word(), word(), word(), word());
        let sleepers: Vec<_> = (0..others)
            .map(|_| {
                w.spawn(move |w| {
                    add_one(waiting);
                    while is(go, 0) {
                        w.wait(go, 0);
                    }
                    add_one(met);
                    compute_until(w, || is(met, others));
                })
            })
            .collect();
        while !is(waiting, others) {
            w.yield_now();
        }
        w.sleep(CALL_NS / 10);
        add_one(go);
        w.wake(go, others);
        compute_until(w, || is(met, others));
        join_all(w, sleepers);
        let newcomers: Vec<_> = (0..others)
            .map(|_| {
                w.spawn(move |w| {
                    add_one(here);
                    compute_until(w, || is(here, others));
                })
            })
            .collect();
        compute_until(w, || is(here, others));
        join_all(w, newcomers);
    }
    Ok(())
}

/// Threads compute on all processors; others come back from calls there, again and again. Between any two
/// rounds those that were displaced go on: they begin the next one.
fn resume<W: World>(w: W) -> Result<(), String> {
    let all = w.processors() as u32;
    let rounds = w.rounds();
    let (near, busy, back, round) = (word(), word(), word(), word());
    let mut threads = on_each(w, move |w| {
        add_one(near);
        for own in 1..=rounds {
            while round.load(Ordering::SeqCst) < own {
                w.call_for(CALL_NS / 10);
            }
            add_one(back);
        }
    });
    while !is(near, all) {
        w.yield_now();
    }
    threads.extend((1..all).map(|_| {
        w.spawn(move |w| {
            add_one(busy);
            compute_until(w, || is(back, rounds * all));
        })
    }));
    compute_until(w, || is(busy, all - 1));
    for own in 1..=rounds {
        add_one(round);
        compute_until(w, || is(back, own * all));
    }
    join_all(w, threads);
    Ok(())
}

/// A gate for each virtual processor.
fn gates<W: World>(w: W) -> Result<Vec<W::Gate>, String> {
    (0..w.processors()).map(|_| w.gate(Kind::Call)).collect()
}

/// Many calls block, one after the other: always by the same few activations.
fn recycle<W: World>(w: W) -> Result<(), String> {
    for _ in 0..4 {
        blocked_at_once(w, Kind::Call)?;
    }
    Ok(())
}

/// Threads compute on all processors and wait for each other; all processors but one are forbidden,
/// and allowed again.
fn warning<W: World>(w: W) -> Result<(), String> {
    let all = w.processors() as u32;
    let arrived = word();
    let meet = move |w: W| {
        let now = arrived.fetch_add(1, Ordering::SeqCst);
        let last = (now / all + 1) * all;
        compute_until(w, || arrived.load(Ordering::SeqCst) >= last);
    };
    let others: Vec<_> = (1..all)
        .map(|_| w.spawn(move |w| (0..3 * MEETINGS).for_each(|_| meet(w))))
        .collect();
    (0..MEETINGS).for_each(|_| meet(w));
    w.forbid_all_but_one();
    (0..MEETINGS).for_each(|_| meet(w));
    w.allow_all();
    (0..MEETINGS).for_each(|_| meet(w));
    join_all(w, others);
    Ok(())
}

/// There are no more kernel threads than there are; many threads block, and compute.
fn exhaustion<W: World>(w: W) -> Result<(), String> {
    let go = word();
    let threads: Vec<_> = (0..w.processors() + 12)
        .map(|_| {
            w.spawn(move |w| {
                while is(go, 0) {
                    w.wait(go, 0);
                }
                for _ in 0..3 {
                    w.call_for(CALL_NS / 10);
                    w.step();
                }
            })
        })
        .collect();
    let exhausted = w.exhaust();
    add_one(go);
    w.wake(go, u32::MAX);
    join_all(w, threads);
    exhausted
}
