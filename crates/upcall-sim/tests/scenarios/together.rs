//! Several programs on one machine, between which a daemon divides the processors, dies and comes back.

use std::sync::atomic::Ordering;

use upcall_sim::{KernelThread, Me, Program, explore_together};

use crate::{join_all, lock, unlock};

/// Computes most of the time, on all that it has.
fn computes(me: Me) {
    let mutex = me.word(0);
    let counted = me.word(0);
    let threads = (0..me.some(6)).map(|_| {
        me.spawn(move |me| {
            for _ in 0..me.some(4) {
                me.steps(150);
                lock(me, mutex);
                let now = counted.load(Ordering::SeqCst);
                me.steps(2);
                counted.store(now + 1, Ordering::SeqCst);
                unlock(me, mutex);
                if me.machine.chance(3) {
                    me.yield_now();
                }
            }
        })
    });
    join_all(me, threads);
    let all = me.some(6) * me.some(4);
    assert_eq!(u64::from(counted.load(Ordering::SeqCst)), all);
}

/// Blocks and sleeps, and wants no processor then.
fn waits(me: Me) {
    let threads = (0..me.some(5)).map(|_| {
        me.spawn(|me| {
            for _ in 0..me.some(8) {
                match me.machine.pick(4) {
                    0 => me.call(me.machine.pick(20_000)),
                    1 => me.sleep(me.machine.pick(20_000)),
                    2 => me.fault(me.machine.pick(5_000)),
                    _ => me.steps(10),
                }
            }
        })
    });
    join_all(me, threads);
}

/// A program without a runtime.
fn other(me: KernelThread) {
    for _ in 0..me.machine.some(40) {
        me.step();
        if me.machine.chance(10) {
            me.call(me.machine.pick(10_000));
        }
    }
}

#[test]
fn two_programs_and_another() {
    const PROGRAMS: &[Program] = &[
        Program::Ours(computes),
        Program::Ours(waits),
        Program::Others(2, other),
    ];
    explore_together("two_programs_and_another", PROGRAMS);
}

#[test]
fn three_programs_and_another() {
    const PROGRAMS: &[Program] = &[
        Program::Ours(computes),
        Program::Ours(computes),
        Program::Ours(waits),
        Program::Others(3, other),
    ];
    explore_together("three_programs_and_another", PROGRAMS);
}
