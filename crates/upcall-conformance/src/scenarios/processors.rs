//! Scenarios in which idle processors get work, and in which all processors rest.

use super::{Scenario, add_one, compute_until, is, join_all, on_each, word};
use crate::world::{Kind, World};

/// How long a program rests.
const REST_NS: u64 = 20_000_000;

pub(super) fn scenarios<W: World>() -> Vec<Scenario<W>> {
    vec![
        Scenario {
            least: 2,
            happens: |facts| facts.counters.added > 0,
            ..Scenario::new("add", add)
        },
        Scenario {
            least: 2,
            happens: |facts| facts.counters.added > 0,
            ..Scenario::new("need", need)
        },
        Scenario::new("idle", idle),
    ]
}

/// A call ends on a processor where another thread computes until then. Other processors are idle.
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

/// A gate for each virtual processor.
fn gates<W: World>(w: W) -> Result<Vec<W::Gate>, String> {
    (0..w.processors()).map(|_| w.gate(Kind::Call)).collect()
}

/// No thread computes, so the program must use almost no processor time. A runtime that computes in a rest does so in each of
/// them. A hypervisor that takes the processor or has no page ready may add to the time of one.
fn idle<W: World>(w: W) -> Result<(), String> {
    let mut least = u64::MAX;
    for _ in 0..3 {
        let threads = on_each(w, |w| w.sleep(REST_NS));
        w.sleep(REST_NS / 4);
        let before = w.busy_ns();
        w.sleep(REST_NS / 2);
        least = least.min(w.busy_ns() - before);
        join_all(w, threads);
    }
    assert!(least < REST_NS / 4, "{least} ns of computing in each rest");
    Ok(())
}

/// All processors rest but one. The thread there wakes sleepers, and later starts new threads. It computes until
/// all of them run, and each of them computes until all others do.
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
        w.sleep(W::CALL_NS / 10);
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
