//! Scenarios in which threads come back from the kernel, and may displace others.

use std::sync::atomic::Ordering;

use super::{
    Scenario, add_one, all_wait, compute_until, endless_on_one, is, join_all, on_each, word,
};
use crate::world::{Kind, World};

/// How many steps a thread computes while a less urgent one comes back. Coming back takes fewer.
const MORE_URGENT_STEPS: u32 = 2000;

pub(super) fn scenarios<W: World>() -> Vec<Scenario<W>> {
    vec![
        Scenario {
            happens: |facts| facts.counters.unblocked > 0,
            ..Scenario::new("unblock_while_idle", unblock_while_idle)
        },
        Scenario {
            slices: endless_on_one,
            happens: |facts| facts.counters.displaced > 0,
            ..Scenario::new("unblock_while_busy", unblock_while_busy)
        },
        Scenario {
            slices: endless_on_one,
            happens: |facts| facts.counters.displaced > 0,
            ..Scenario::new("resume", resume)
        },
        Scenario {
            by_priority: true,
            ..Scenario::new("priority_unblock", priority_unblock)
        },
    ]
}

/// Calls end while all processors are idle.
fn unblock_while_idle<W: World>(w: W) -> Result<(), String> {
    for _ in 0..w.rounds() {
        let gate = w.gate(Kind::Call)?;
        let back = word();
        let threads = on_each(w, move |w| {
            w.pass(gate);
            add_one(back);
            w.wake(back, 1);
        });
        all_wait(w, gate);
        w.open_later(gate, w.processors());
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

/// Calls end while every processor has a thread that computes until those calls are back. Another process ends
/// the calls: a thread of the program would be in a system call at that moment.
fn unblock_while_busy<W: World>(w: W) -> Result<(), String> {
    let all = w.processors() as u32;
    for _ in 0..w.rounds() {
        let gate = w.gate(Kind::Call)?;
        let (busy, back) = (word(), word());
        let mut threads = on_each(w, move |w| {
            w.pass(gate);
            add_one(back);
        });
        all_wait(w, gate);
        threads.extend((1..all).map(|_| {
            w.spawn(move |w| {
                add_one(busy);
                compute_until(w, || is(back, all));
            })
        }));
        compute_until(w, || is(busy, all - 1));
        w.open_later(gate, w.processors());
        compute_until(w, || is(back, all));
        join_all(w, threads);
    }
    Ok(())
}

/// A thread comes back. If it is more urgent than the only thread that runs, it runs; otherwise it waits.
fn priority_unblock<W: World>(w: W) -> Result<(), String> {
    // The runtime is there from the first thread on, and answers from then on.
    w.join(w.spawn(|_| ()));
    w.set_priority(0)?;
    if w.processors() != 1 {
        return Err("where there is another processor, it says nothing".to_owned());
    }
    for priority in [3, 1].repeat(w.rounds() as usize) {
        let gate = w.gate(Kind::Call)?;
        let ran = word();
        let comes_back = w.spawn(move |w| {
            w.set_priority(priority).expect("there are priorities");
            w.pass(gate);
            add_one(ran);
        });
        all_wait(w, gate);
        w.set_priority(2)?;
        w.open_later(gate, 1);
        if priority > 2 {
            compute_until(w, || is(ran, 1));
        } else {
            for _ in 0..MORE_URGENT_STEPS {
                w.step();
                assert!(!is(ran, 1), "the less urgent thread ran");
            }
        }
        w.join(comes_back);
        w.set_priority(0)?;
    }
    Ok(())
}

/// Threads compute on all processors. Other threads come back from calls there, again and again. The displaced
/// threads must go on between two rounds: they begin the next one.
fn resume<W: World>(w: W) -> Result<(), String> {
    let all = w.processors() as u32;
    let rounds = w.rounds();
    let (near, busy, back, round) = (word(), word(), word(), word());
    let mut threads = on_each(w, move |w| {
        add_one(near);
        for own in 1..=rounds {
            while round.load(Ordering::SeqCst) < own {
                w.call_for(W::CALL_NS / 10);
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
