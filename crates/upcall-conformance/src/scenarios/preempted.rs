//! Scenarios in which threads are preempted inside a critical section or inside the runtime, and in which the program
//! loses processors.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Scenario, add_one, compute_until, is, join_all, on_each, word};
use crate::world::{Slices, World};

/// How often the threads meet before, while and after processors are forbidden.
const MEETINGS: u32 = 6;

pub(super) fn scenarios<W: World>() -> Vec<Scenario<W>> {
    vec![
        Scenario {
            slices: |_| Slices::Short,
            // One thread more than processors computed at the same time.
            holds: |facts| facts.counters.preempted >= facts.rounds,
            ..Scenario::new("preempt_in_critical_section", preempt_in_critical_section)
        },
        Scenario {
            slices: |_| Slices::Shortest,
            ..Scenario::new("preempt_in_runtime", preempt_in_runtime)
        },
        Scenario {
            slices: |_| Slices::Short,
            happens: |facts| facts.counters.taken > 0 || !facts.is_told,
            ..Scenario::new("last_processor", last_processor)
        },
        Scenario {
            slices: |_| Slices::Short,
            least: 2,
            ..Scenario::new("warning", warning)
        },
    ]
}

/// A thread holds the program's lock until all other threads have tried to take it. It is preempted meanwhile,
/// and the runtime must continue it although the others always have something to do.
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

/// Threads do little else than enter the runtime. One that is preempted there is continued first, even if
/// another thread comes back from a call meanwhile.
fn preempt_in_runtime<W: World>(w: W) -> Result<(), String> {
    let turns = 4 * w.rounds();
    let (lock, total, over) = (word(), word(), word());
    let caller = w.spawn(move |w| {
        while is(over, 0) {
            w.call_for(W::CALL_NS / 100);
        }
    });
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
    add_one(over);
    w.join(caller);
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

/// Every processor computes when another program takes them all, and calls end meanwhile. When the processors
/// come back, every thread goes on.
fn last_processor<W: World>(w: W) -> Result<(), String> {
    let (gone, calls) = (word(), word());
    let mut threads: Vec<_> = (1..w.processors())
        .map(|_| w.spawn(move |w| compute_until(w, || is(gone, 1))))
        .collect();
    threads.push(w.spawn(move |w| {
        while is(gone, 0) {
            w.call_for(W::CALL_NS / 2);
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
