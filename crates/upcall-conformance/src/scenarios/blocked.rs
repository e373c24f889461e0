//! Scenarios in which threads block in the kernel: their processors go to other threads, and activations are used
//! again.

use super::{Scenario, add_one, all_wait, is, join_all, on_each, word};
use crate::world::{Kind, Slices, World};

pub(super) fn scenarios<W: World>() -> Vec<Scenario<W>> {
    vec![
        Scenario {
            // All processors' threads were blocked, and one more ran.
            holds: |facts| facts.counters.blocked >= facts.rounds,
            ..Scenario::new("block", |w| blocked_at_once(w, Kind::Call))
        },
        Scenario {
            holds: |facts| facts.counters.blocked >= facts.rounds,
            ..Scenario::new("fault", |w| blocked_at_once(w, Kind::Fault))
        },
        Scenario {
            // Blocked ones, their successors and standbys, and a few. The number of rounds has no part in it.
            holds: |facts| facts.counters.peak <= 5 * facts.processors + 6,
            happens: |facts| facts.counters.recycled > 0,
            // What is to be used again may be slow to come to a stop.
            is_crowded: true,
            ..Scenario::new("recycle", recycle)
        },
        Scenario {
            slices: |_| Slices::Short,
            happens: |facts| facts.counters.refused > 0,
            ..Scenario::new("exhaustion", exhaustion)
        },
    ]
}

/// As many threads wait in the kernel as there are processors. The thread that opens their gate must run.
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

/// Many calls block, one after the other. The runtime must do with the same few activations.
fn recycle<W: World>(w: W) -> Result<(), String> {
    for _ in 0..4 {
        blocked_at_once(w, Kind::Call)?;
    }
    Ok(())
}

/// The kernel gives no more kernel threads. Many threads block and compute, and must come to their ends.
fn exhaustion<W: World>(w: W) -> Result<(), String> {
    let go = word();
    let threads: Vec<_> = (0..w.processors() + 12)
        .map(|_| {
            w.spawn(move |w| {
                while is(go, 0) {
                    w.wait(go, 0);
                }
                for _ in 0..3 {
                    w.call_for(W::CALL_NS / 10);
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
