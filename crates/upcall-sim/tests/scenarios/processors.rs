//! Processors that are taken and come back, and virtual processors that move from one to another.

use std::sync::atomic::Ordering;

use upcall_core::State;
use upcall_sim::{Descriptor, Me, Sim, explore, explore_less};

use super::join_all;

/// Threads compute on all processors, and come back from calls; some processors are taken, all of them
/// at times, and come back.
#[test]
fn processors_are_taken() {
    explore("processors_are_taken", |me| {
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
        lose_some(me);
        join_all(me, threads);
    });
}

/// Loses some processors for a while, all of them at times, and again.
pub(super) fn lose_some(me: Me) {
    let vps = me.runtime.vps().len();
    for _ in 0..me.some(6) {
        me.steps(20);
        let least = me.machine.pick(4).min(1) as usize;
        let until = me.machine.clock.get() + me.machine.pick(60_000);
        me.lose_processors(least.min(vps)..vps, until);
    }
}

/// Loses all processors but the first, or all but the last, for the rest of the run.
fn keep_one(me: Me) {
    let vps = me.runtime.vps().len();
    let which = match me.machine.chance(2) {
        true => 1..vps,
        false => 0..vps - 1,
    };
    me.lose_processors(which, FOR_EVER);
}

/// Later than any run ends, and a machine on which nothing can run gets there at once.
const FOR_EVER: u64 = 1 << 50;

/// All processors but one are taken, and stay away. Threads that compute, wait for time, words, descriptors and calls, and
/// page faults, all go on with the one, whatever they were doing, wherever they were ready.
#[test]
fn a_program_goes_on_with_one_processor() {
    explore("a_program_goes_on_with_one_processor", |me| {
        let word = me.word(0);
        let threads = (0..1 + me.some(7)).map(|index| {
            let descriptors = &me.space.descriptors;
            descriptors.borrow_mut().push(Descriptor::default());
            me.spawn(move |me| {
                for _ in 0..me.some(12) {
                    match me.machine.pick(6) {
                        0 => me.sleep(me.machine.pick(20_000)),
                        1 => me.call(me.machine.pick(20_000)),
                        2 => {
                            me.write(index as usize, me.machine.pick(15_000));
                            me.read(index as usize);
                        }
                        3 => {
                            let deadline = me.machine.clock.get() + me.machine.pick(6_000);
                            me.wait(word, 0, Some(deadline));
                        }
                        4 => me.fault(me.machine.pick(5_000)),
                        _ => me.steps(60),
                    }
                    me.wake(word, 1);
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        me.steps(40);
        keep_one(me);
        join_all(me, threads);
        // Where the kernel gives no kernel threads, one is not there.
        let excepted = me.runtime.vps().len() == 1 || me.space.spawn_failed.get();
        assert!(excepted || me.lacks_processors(), "a thread waited for it");
    });
}

/// The ready list of a virtual processor whose processor is taken goes on in its order, behind a thread that computes on the
/// only other one.
#[test]
fn the_list_of_a_taken_processor_keeps_its_order() {
    let name = "the_list_of_a_taken_processor_keeps_its_order";
    let less = "1,vps=2,without=stepping+exhaustion+slices+interruptions";
    explore_less(name, less, |me| {
        if me.runtime.vps().len() < 2 {
            return;
        }
        let (runs, order) = (me.word(0), me.word(0));
        let other = me.spawn(move |me| {
            let here = me.thread.carrier().expect("it runs").vp();
            runs.store(here.index() + 1, Ordering::SeqCst);
            while !here.has_ready() {
                me.step();
            }
        });
        while runs.load(Ordering::SeqCst) == 0 {
            me.yield_now();
        }
        let here = me.thread.carrier().expect("it runs").vp().index();
        if runs.load(Ordering::SeqCst) == here + 1 {
            // The other one is idle, and takes threads itself.
            me.join(other);
            return;
        }
        let numbers = 1..=4;
        let threads = numbers.map(|number| {
            me.spawn(move |_| {
                let before = order.load(Ordering::SeqCst);
                order.store(10 * before + number, Ordering::SeqCst);
            })
        });
        let threads: Vec<_> = threads.collect();
        let here = me.thread.carrier().expect("it runs").vp().index() as usize;
        me.lose_processors(here..here + 1, FOR_EVER);
        me.step();
        join_all(me, threads);
        me.join(other);
        assert_eq!(order.load(Ordering::SeqCst), 1234);
        let excepted = me.space.spawn_failed.get();
        assert!(excepted || me.lacks_processors(), "a thread waited for it");
    });
}

/// All processors are taken, and one comes back. What was ready on the others goes on there, beside a thread that only gives way.
#[test]
fn the_first_processor_that_is_back_serves_all() {
    let name = "the_first_processor_that_is_back_serves_all";
    let less = "1,vps=2,without=stepping+exhaustion+slices+interruptions";
    explore_less(name, less, |me| {
        let (count, over) = (me.word(0), me.word(0));
        let other = me.spawn(move |me| {
            while over.load(Ordering::SeqCst) == 0 {
                count.fetch_add(1, Ordering::SeqCst);
                me.step();
                me.yield_now();
            }
        });
        while count.load(Ordering::SeqCst) == 0 {
            me.yield_now();
        }
        let soon = me.machine.clock.get() + 20_000;
        let vps = me.runtime.vps().len();
        let back = me.machine.pick(vps as u64) as usize;
        me.lose_each((0..vps).map(|at| (at, if at == back { soon } else { FOR_EVER })));
        let before = count.load(Ordering::SeqCst);
        for _ in 0..3_000 {
            if count.load(Ordering::SeqCst) > before + 1 {
                break;
            }
            me.step();
            me.yield_now();
        }
        let after = count.load(Ordering::SeqCst);
        let excepted = me.runtime.vps().len() == 1 || me.space.spawn_failed.get();
        assert!(excepted || after > before + 1, "it waits");
        over.store(1, Ordering::SeqCst);
        me.join(other);
    });
}

/// An idle virtual processor is rung for a thread, and loses its processor on the way: another idle one is rung in its place, while
/// the one that made the thread only computes.
#[test]
fn who_is_rung_and_loses_its_processor_passes_the_call_on() {
    let name = "who_is_rung_and_loses_its_processor_passes_the_call_on";
    let less = "1,vps=3,without=stepping+exhaustion+slices+interruptions";
    explore_less(name, less, |me| {
        let vps = me.runtime.vps();
        if vps.len() < 3 {
            return;
        }
        let idle = |me: Me| {
            me.runtime
                .vps()
                .iter()
                .filter(|vp| vp.word().state() == State::Idle)
        };
        for _ in 0..500 {
            if idle(me).count() == 2 {
                break;
            }
            me.step();
        }
        let ran = me.word(0);
        let thread = me.spawn(move |_| ran.store(1, Ordering::SeqCst));
        let is_rung = |vp: &upcall_core::Vp<Sim>| vp.word().state() == State::Rung;
        if let Some(rung) = vps.iter().position(is_rung) {
            me.lose_processors(rung..rung + 1, FOR_EVER);
        }
        for _ in 0..3_000 {
            if ran.load(Ordering::SeqCst) != 0 {
                break;
            }
            me.step();
        }
        let excepted = me.space.spawn_failed.get();
        assert!(excepted || ran.load(Ordering::SeqCst) != 0, "it waits");
        me.join(thread);
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
