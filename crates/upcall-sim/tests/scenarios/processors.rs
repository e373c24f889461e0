//! Processors that are taken and come back, and virtual processors that move from one to another.

use std::sync::atomic::Ordering;

use upcall_sim::{explore, explore_less};

use super::join_all;

/// Threads compute on all processors, and come back from calls; some processors are taken, all of them
/// at times, and come back.
#[test]
fn processors_are_taken() {
    explore("processors_are_taken", |me| {
        let vps = me.runtime.vps().len();
        let threads = (0..1 + me.some(7)).map(|_| {
            me.spawn(|me| {
                for _ in 0..me.some(8) {
                    me.steps(150);
                    if me.machine.chance(8) {
                        me.call(me.machine.pick(10_000));
                    }
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        for _ in 0..me.some(6) {
            me.steps(20);
            let least = me.machine.pick(4).min(1) as usize;
            let until = me.machine.clock.get() + me.machine.pick(60_000);
            me.lose_processors(least.min(vps)..vps, until);
        }
        join_all(me, threads);
    });
}

/// A processor comes back when the call of an activation ends that was absent from it. That one takes the virtual
/// processor before its owner, which waited for the processor, has woken up; the standby left long ago. Then it
/// meets a page fault, while more threads than one compute on the other processor, and no thread is made ready.
#[test]
fn a_page_fault_when_a_processor_is_back() {
    let name = "a_page_fault_when_a_processor_is_back";
    explore_less(name, "1,vps=2", |me| {
        let vps = me.runtime.vps().len();
        for _ in 0..me.some(10) {
            let back = me.word(0);
            let until = me.machine.clock.get() + 20_000 + me.machine.pick(40_000);
            let caller = me.spawn(move |me| {
                me.call(until.saturating_sub(me.machine.clock.get()));
                me.fault(100_000);
                back.store(1, Ordering::SeqCst);
            });
            let others = (0..3).map(|_| {
                me.spawn(move |me| {
                    for _ in 0..2_000 {
                        if back.load(Ordering::SeqCst) != 0 {
                            break;
                        }
                        me.step();
                    }
                })
            });
            let others: Vec<_> = others.collect();
            me.steps(20);
            me.lose_processors(1..vps, until);
            me.join(caller);
            join_all(me, others);
        }
    });
}

/// Virtual processors change places while their activations are in the kernel.
#[test]
fn virtual_processors_move() {
    explore("virtual_processors_move", |me| {
        let vps = me.runtime.vps().len() as u64;
        let threads = (0..1 + me.some(7)).map(|_| {
            me.spawn(|me| {
                for _ in 0..me.some(10) {
                    me.steps(10);
                    me.call(me.machine.pick(20_000));
                    if me.machine.chance(3) {
                        me.fault(me.machine.pick(5_000));
                    }
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        for _ in 0..me.some(30) {
            me.steps(10);
            let (one, other) = (me.machine.pick(vps), me.machine.pick(vps));
            me.swap_processors(one as usize, other as usize);
            me.sleep(me.machine.pick(10_000));
        }
        join_all(me, threads);
    });
}

/// Many threads compute on one virtual processor and one on the other, which never has nothing to do: all the same it
/// takes some of the many.
#[test]
fn the_fuller_gives_threads() {
    explore_less(
        "the_fuller_gives_threads",
        "1,vps=2,without=stepping+exhaustion",
        |me| {
            if me.runtime.vps().len() < 2 {
                return;
            }
            let stolen = || me.runtime.stats().stolen.get();
            let (runs, over) = (me.word(0), me.word(0));
            let loner = me.spawn(move |me| {
                runs.store(1, Ordering::SeqCst);
                while over.load(Ordering::SeqCst) == 0 {
                    me.step();
                }
            });
            while runs.load(Ordering::SeqCst) == 0 {
                me.yield_now();
            }
            let before = stolen();
            let many = (0..6).map(|_| {
                me.spawn(move |me| {
                    let mut left = 1000;
                    while me.runtime.stats().stolen.get() == before && left != 0 {
                        me.steps(50);
                        left -= 1;
                    }
                })
            });
            join_all(me, many);
            assert_ne!(stolen(), before, "none was taken");
            over.store(1, Ordering::SeqCst);
            me.join(loner);
        },
    );
}
