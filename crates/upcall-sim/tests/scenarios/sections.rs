//! Critical sections of the program.

use std::sync::atomic::{AtomicU32, Ordering};

use upcall_sim::{Me, explore, explore_less};

use super::processors::lose_some;
use super::{join_all, send_into_call};

/// Takes a lock whose waiters spin, and does something with it, in a critical section.
fn with_spin_lock(me: Me, held: &'static AtomicU32, act: impl Fn()) {
    loop {
        let done = me.in_section(|| {
            let taken = held.swap(1, Ordering::SeqCst) == 0;
            if taken {
                act();
                held.store(0, Ordering::SeqCst);
            }
            taken
        });
        if done {
            return;
        }
        while held.load(Ordering::SeqCst) != 0 {
            me.step();
        }
    }
}

/// Those who spin for a lock wait for its holder alone, who computes, waits in the kernel, for a page, for time, and for
/// words: whenever the holder could run, it does. Not where those who spin starve the sentinel of the holder's virtual processor.
#[test]
fn nobody_spins_for_a_holder_that_is_stopped() {
    let name = "nobody_spins_for_a_holder_that_is_stopped";
    explore(name, |me| {
        if me.machine.style.may_starve_sentinels() {
            return;
        }
        let (held, count, never) = (me.word(0), me.word(0), me.word(0));
        let threads = (0..1 + me.some(3)).map(|_| {
            me.spawn(move |me| {
                for _ in 0..me.some(5) {
                    with_spin_lock(me, held, || {
                        let before = count.load(Ordering::SeqCst);
                        match me.machine.pick(8) {
                            0 => me.call(me.machine.pick(4_000)),
                            1 => me.fault(me.machine.pick(4_000)),
                            2 => me.sleep(me.machine.pick(4_000)),
                            3 => {
                                let deadline = me.machine.clock.get() + me.machine.pick(4_000);
                                me.wait(never, 0, Some(deadline));
                            }
                            _ => me.steps(20),
                        }
                        // Of one that is in there.
                        count.store(before + 1, Ordering::SeqCst);
                    });
                    match me.machine.pick(4) {
                        0 => me.call(me.machine.pick(4_000)),
                        1 => {
                            let child = me.fork(|me| me.steps(10));
                            me.join(child);
                        }
                        _ => me.steps(20),
                    }
                }
            })
        });
        join_all(me, threads);
        let times = (1 + me.some(3)) * me.some(5);
        assert_eq!(u64::from(count.load(Ordering::SeqCst)), times);
    });
}

/// The same where processors are taken, and come back: the holder goes on where the program has one left. Not where no
/// activation can be made: virtual processors that never began keep threads for which all others spin.
#[test]
fn a_holder_goes_on_with_the_processors_that_are_left() {
    let name = "a_holder_goes_on_with_the_processors_that_are_left";
    explore_less(name, "1,without=exhaustion", |me| {
        let held = me.word(0);
        let threads = (0..1 + me.some(7)).map(|_| {
            me.spawn(move |me| {
                for _ in 0..me.some(8) {
                    with_spin_lock(me, held, || me.steps(60));
                    me.steps(30);
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        lose_some(me);
        join_all(me, threads);
    });
}

/// More steps than three time slices have.
const LONG: u64 = 400_000;

/// One that stays in its section is stopped all the same, and others run: those that were ready, and those that come
/// back from the kernel. No activation can displace it.
#[test]
fn a_section_without_an_end_does_not_keep_the_processor() {
    let name = "a_section_without_an_end_does_not_keep_the_processor";
    explore_less(name, "1,vps=1,without=stepping", |me| {
        let over = me.word(0);
        let liar = me.spawn(move |me| {
            me.in_section(|| {
                for steps in 0.. {
                    if over.load(Ordering::SeqCst) != 0 {
                        break;
                    }
                    assert!(steps < LONG, "nobody else runs");
                    me.step();
                }
            });
            // Of the next one it is believed again.
            me.in_section(|| me.steps(20));
        });
        me.yield_now();
        match me.machine.pick(3) {
            0 => me.call(3_000),
            1 => me.fault(3_000),
            _ => {}
        }
        over.store(1, Ordering::SeqCst);
        me.join(liar);
    });
}

/// When it leaves its section a thread gives way to those that were to run meanwhile, before its slice ends again.
#[test]
fn who_leaves_a_section_gives_way() {
    let less = "1,vps=1,without=slices+interruptions+stepping+exhaustion+spurious";
    explore_less("who_leaves_a_section_gives_way", less, |me| {
        for _ in 0..me.some(10) {
            let (caller, back) = send_into_call(me);
            for sections in 0.. {
                if back.load(Ordering::SeqCst) != 0 {
                    break;
                }
                assert!(sections < 1_000, "who comes back does not run");
                me.in_section(|| me.steps(10));
            }
            me.join(caller);
        }
    });
}

/// The program is warned while a thread is in a section: that leaves it before the processor is given up, and not later.
#[test]
fn who_is_warned_leaves_its_section_first() {
    let less = "1,vps=1,without=slices+interruptions+stepping+exhaustion+spurious";
    explore_less("who_is_warned_leaves_its_section_first", less, |me| {
        let taken = move || me.runtime.stats().taken.get();
        let other = me.spawn(|me| {
            for _ in 0..me.some(6) {
                me.in_section(|| me.steps(10));
                me.steps(20);
            }
        });
        for _ in 0..me.some(10) {
            let (before, until) = me.in_section(|| {
                let before = taken();
                let until = me.machine.clock.get() + 1 + me.machine.pick(20_000);
                me.leave_processors(0..1, until);
                me.steps(20);
                assert_eq!(taken(), before, "it is stopped in its section");
                (before, until)
            });
            let is_back = me.machine.clock.get() >= until;
            assert!(taken() > before || is_back, "it keeps the processor");
            me.yield_now();
        }
        me.join(other);
    });
}
