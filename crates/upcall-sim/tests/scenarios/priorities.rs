//! Threads of different urgency.

use std::sync::atomic::Ordering;

use upcall_core::Rank;
use upcall_sim::{Handle, Me, explore};

use crate::{join_all, lock, unlock};

fn some_rank(me: Me) -> u64 {
    Rank::COMMON.0 - 3 + me.machine.pick(6)
}

/// Threads compute, give way, sleep and block, and change their own urgency and that of others.
#[test]
fn priorities() {
    explore("priorities", |me| {
        let mutex = me.word(0);
        let counted = me.word(0);
        let mut threads: Vec<Handle> = Vec::new();
        for _ in 0..me.some(6) {
            let brother = threads.last().map(|handle| handle.thread);
            threads.push(me.spawn(move |me| {
                me.set_rank(me.thread, some_rank(me));
                for _ in 0..me.some(8) {
                    match me.machine.pick(9) {
                        0 => me.call(me.machine.pick(20_000)),
                        1 => me.sleep(me.machine.pick(20_000)),
                        2 => me.fault(me.machine.pick(5_000)),
                        3 => me.yield_now(),
                        4 => {
                            lock(me, mutex);
                            let now = counted.load(Ordering::SeqCst);
                            me.steps(3);
                            counted.store(now + 1, Ordering::SeqCst);
                            unlock(me, mutex);
                        }
                        5 => me.set_rank(me.thread, some_rank(me)),
                        6 => {
                            // It may have ended, and be another one.
                            if let Some(brother) = brother {
                                me.set_rank(brother, some_rank(me));
                            }
                        }
                        _ => me.steps(60),
                    }
                }
            }));
        }
        join_all(me, threads);
    });
}

/// One that is more urgent than all comes back from the kernel while the others compute, on its own
/// virtual processor and elsewhere, and then waits for its turn with its equals.
#[test]
fn the_urgent_come_back() {
    explore("the_urgent_come_back", |me| {
        let mut threads = Vec::new();
        for _ in 0..me.some(3) {
            threads.push(me.spawn(|me| {
                me.set_rank(me.thread, 1);
                for _ in 0..me.some(10) {
                    me.call(me.machine.pick(5_000));
                    me.steps(20);
                }
            }));
        }
        for urgency in 1..=me.some(6) {
            threads.push(me.spawn(move |me| {
                me.set_rank(me.thread, 10 * urgency);
                for _ in 0..me.some(10) {
                    me.steps(100);
                    if me.machine.chance(4) {
                        me.yield_now();
                    }
                }
            }));
        }
        join_all(me, threads);
    });
}

/// One that is more urgent than all is woken by another, who computes afterwards, as the others do all the
/// time.
#[test]
fn the_urgent_are_woken() {
    explore("the_urgent_are_woken", |me| {
        let rounds = me.some(3) as u32;
        let word = me.word(0);
        let mut threads = vec![me.spawn(move |me| {
            me.set_rank(me.thread, 1);
            for round in 0..rounds {
                while word.load(Ordering::SeqCst) == round {
                    me.wait(word, round, None);
                }
                me.steps(10);
            }
        })];
        for urgency in 1..=me.some(4) {
            threads.push(me.spawn(move |me| {
                me.set_rank(me.thread, 10 * urgency);
                for _ in 0..rounds {
                    me.steps(50);
                    if urgency == 1 {
                        word.fetch_add(1, Ordering::SeqCst);
                        me.wake(word, 1);
                    }
                    me.steps(400);
                }
            }));
        }
        join_all(me, threads);
    });
}

/// One that sleeps most of the time says how urgent the others are, who compute.
#[test]
fn who_is_demoted_gives_way() {
    explore("who_is_demoted_gives_way", |me| {
        let mut threads = Vec::new();
        for _ in 0..me.some(5) {
            threads.push(me.spawn(|me| {
                me.set_rank(me.thread, 10);
                for _ in 0..me.some(3) {
                    me.steps(300);
                    me.yield_now();
                }
            }));
        }
        let computing: Vec<_> = threads.iter().map(|handle| handle.thread).collect();
        let chief = me.spawn(move |me| {
            me.set_rank(me.thread, 1);
            for _ in 0..me.some(10) {
                // It may have ended, and be another one.
                let one = computing[me.machine.pick(computing.len() as u64) as usize];
                me.set_rank(one, 10 + me.machine.pick(2));
                me.sleep(me.machine.pick(100_000));
            }
        });
        join_all(me, threads);
        me.join(chief);
    });
}

/// As [`the_urgent_are_woken`], several at once: each has the processor of one that is less urgent than
/// itself, while there is one.
#[test]
fn the_urgent_are_woken_together() {
    explore("the_urgent_are_woken_together", |me| {
        let word = me.word(0);
        let mut threads = Vec::new();
        for urgency in 1..=me.some(4) {
            threads.push(me.spawn(move |me| {
                me.set_rank(me.thread, urgency.div_ceil(2));
                while word.load(Ordering::SeqCst) == 0 {
                    me.wait(word, 0, None);
                }
                me.steps(200);
            }));
        }
        for urgency in 1..=me.some(6) {
            threads.push(me.spawn(move |me| {
                me.set_rank(me.thread, 10 * urgency);
                me.steps(100);
                if urgency == 1 {
                    word.store(1, Ordering::SeqCst);
                    me.wake(word, usize::MAX);
                }
                me.steps(800);
            }));
        }
        join_all(me, threads);
    });
}

/// Of those that wait for a word the most urgent is woken first, and of its equals the one that came first; one
/// may become more urgent while it waits.
#[test]
fn the_most_urgent_is_woken_first() {
    explore("the_most_urgent_is_woken_first", |me| {
        let (word, woken) = (me.word(0), me.word(0));
        let mut threads: Vec<Handle> = Vec::new();
        let mut ranks = Vec::new();
        for place in 0..1 + me.some(5) {
            let rank = 1 + me.machine.pick(3);
            let handle = me.spawn(move |me| {
                me.set_rank(me.thread, rank);
                me.wait(word, 0, None);
                woken.store(1 + place as u32, Ordering::SeqCst);
            });
            while !handle.thread.waits_for_word() {
                me.sleep(1_000);
            }
            let later = me.machine.chance(4).then(|| 1 + me.machine.pick(3));
            if let Some(rank) = later {
                me.set_rank(handle.thread, rank);
            }
            ranks.push((later.unwrap_or(rank), place));
            threads.push(handle);
        }
        ranks.sort_unstable();
        for (_, place) in ranks {
            assert_eq!(me.wake(word, 1), 1);
            loop {
                match woken.swap(0, Ordering::SeqCst) {
                    0 => me.sleep(1_000),
                    who => break assert_eq!(u64::from(who), 1 + place),
                }
            }
        }
        join_all(me, threads);
    });
}
