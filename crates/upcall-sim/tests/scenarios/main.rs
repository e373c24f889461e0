//! What the threads of a run do. Every thread must end, and what they count must add up.

use std::sync::atomic::{AtomicU32, Ordering};

mod alone;
mod futexes;
mod join;
mod joins;
mod policies;
mod priorities;
mod processors;
mod sections;
mod sync;
mod together;
mod waiting;

/// In the place of the crate's `thread`, for those files of it that `join` has.
mod thread {
    pub(crate) use std::thread::Result;

    pub(crate) fn ended_early() -> Box<dyn std::any::Any + Send> {
        unreachable!("nothing ends a thread early here")
    }
}

use upcall_sim::{Descriptor, Gate, Handle, Me, explore, explore_less};

/// Longer than any run.
const FOREVER: u64 = 1 << 40;

/// Starts all of them, if that has not been done yet, and waits for their ends.
fn join_all(me: Me, handles: impl IntoIterator<Item = Handle>) {
    for handle in handles.into_iter().collect::<Vec<_>>() {
        me.join(handle);
    }
}

/// The mutex of Drepper's "Futexes Are Tricky": 0 free, 1 locked, 2 with waiters.
fn lock(me: Me, mutex: &'static AtomicU32) {
    let free = mutex.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst);
    if free.is_err() {
        while mutex.swap(2, Ordering::SeqCst) != 0 {
            me.wait(mutex, 2, None);
        }
    }
}

fn unlock(me: Me, mutex: &'static AtomicU32) {
    if mutex.swap(0, Ordering::SeqCst) == 2 {
        me.wake(mutex, 1);
    }
}

#[test]
fn create_and_join() {
    explore("create_and_join", |me| {
        let threads = (0..me.some(30)).map(|_| {
            me.spawn(|me| {
                me.steps(5);
                me.yield_now();
                let child = me.spawn(|me| me.steps(3));
                me.join(child);
            })
        });
        join_all(me, threads);
    });
}

#[test]
fn ping_pong() {
    explore("ping_pong", |me| {
        let ball = me.word(0);
        let player = |side: u32| {
            move |me: Me| {
                for _ in 0..me.some(40) {
                    loop {
                        let now = ball.load(Ordering::SeqCst);
                        if now % 2 == side {
                            break;
                        }
                        me.wait(ball, now, None);
                    }
                    ball.fetch_add(1, Ordering::SeqCst);
                    me.wake(ball, 1);
                }
            }
        };
        let threads = vec![me.spawn(player(0)), me.spawn(player(1))];
        join_all(me, threads);
        assert_eq!(u64::from(ball.load(Ordering::SeqCst)), 2 * me.some(40));
    });
}

#[test]
fn contention() {
    explore("contention", |me| {
        let mutex = me.word(0);
        let inside = me.word(0);
        let total = me.word(0);
        let threads = (0..me.some(8)).map(|_| {
            me.spawn(move |me| {
                for _ in 0..me.some(15) {
                    lock(me, mutex);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    me.steps(3);
                    if me.machine.chance(10) {
                        me.call(2_000);
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    total.fetch_add(1, Ordering::SeqCst);
                    unlock(me, mutex);
                    me.steps(2);
                }
            })
        });
        join_all(me, threads);
        assert_eq!(
            u64::from(total.load(Ordering::SeqCst)),
            me.some(8) * me.some(15)
        );
    });
}

/// A thread that only looks at another one sees whether that one has a use for a processor. Where the kernel gives no more
/// kernel threads, no standby runs, and nobody looks while the other one is blocked.
#[test]
fn who_waits_is_seen() {
    explore_less("who_waits_is_seen", "1,vps=1,without=exhaustion", |me| {
        let (stage, seen) = (me.word(0), me.word(0));
        let blocks: [fn(Me); 3] = [
            |me| me.call(20_000),
            |me| me.fault(20_000),
            |me| me.sleep(20_000),
        ];
        for (round, block) in (1..).zip(blocks) {
            let other = me.spawn(move |me| {
                while stage.load(Ordering::SeqCst) < 2 * round {
                    me.steps(5);
                    me.yield_now();
                }
                // Where the looker comes to run late, the first wait is over before it looks.
                for _ in 0..20 {
                    block(me);
                    if seen.load(Ordering::SeqCst) == round {
                        break;
                    }
                }
                stage.store(2 * round + 1, Ordering::SeqCst);
            });
            let (mut computed, mut waited) = (false, false);
            for _ in 0..5 {
                me.yield_now();
                computed |= !other.thread.is_waiting();
            }
            stage.store(2 * round, Ordering::SeqCst);
            while stage.load(Ordering::SeqCst) == 2 * round {
                me.yield_now();
                if other.thread.is_waiting() {
                    waited = true;
                    seen.store(round, Ordering::SeqCst);
                }
            }
            assert!(computed && waited, "{round}: {computed} {waited}");
            me.join(other);
        }
    });
}

#[test]
fn blocking_calls() {
    explore("blocking_calls", |me| {
        let threads = (0..me.some(12)).map(|_| {
            me.spawn(|me| {
                for _ in 0..me.some(12) {
                    me.steps(10);
                    me.call(me.machine.pick(20_000));
                    if me.machine.chance(4) {
                        me.yield_now();
                    }
                }
            })
        });
        join_all(me, threads);
    });
}

/// Many blocked at once, and came back: the activations that carried them end.
#[test]
fn spares_end() {
    explore("spares_end", |me| {
        let vps = me.runtime.vps().len() as u64;
        for _ in 0..me.some(2) {
            let threads =
                (0..me.some(20)).map(|_| me.spawn(|me| me.call(200_000 + me.machine.pick(2_000))));
            let threads: Vec<_> = threads.collect();
            me.steps(4);
            join_all(me, threads);
        }
        me.sleep(2_000_000);
        let left = me.runtime.stats().activations.get();
        // An owner, a standby, its heir and two spares for each, and six spares.
        let kept = vps * 5 + 6;
        assert!(left <= kept, "{left} activations are left, not {kept}");
    });
}

/// Others' deadlines are met while the only running thread is in a call.
#[test]
fn sleepers_beside_a_call() {
    explore("sleepers_beside_a_call", |me| {
        let threads = (0..me.some(3)).map(|_| {
            me.spawn(|me| {
                for _ in 0..me.some(10) {
                    me.sleep(1_000 + me.machine.pick(30_000));
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        for _ in 0..me.some(15) {
            me.call(50_000);
            me.sleep(2_000);
        }
        join_all(me, threads);
    });
}

#[test]
fn page_faults() {
    explore("page_faults", |me| {
        let threads = (0..me.some(8)).map(|_| {
            me.spawn(|me| {
                for _ in 0..me.some(10) {
                    me.steps(10);
                    me.fault(me.machine.pick(10_000));
                    me.steps(3);
                    if me.machine.chance(3) {
                        me.call(me.machine.pick(5_000));
                    }
                }
            })
        });
        join_all(me, threads);
    });
}

#[test]
fn descriptors() {
    explore("descriptors", |me| {
        for _ in 0..4 {
            me.space
                .descriptors
                .borrow_mut()
                .push(Descriptor::default());
        }
        let threads = (0..me.some(4)).map(|index| {
            me.spawn(move |me| {
                for _ in 0..me.some(15) {
                    me.write(index as usize, me.machine.pick(15_000));
                    if me.machine.chance(3) {
                        me.call(me.machine.pick(20_000));
                    }
                    me.read(index as usize);
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        let busy = me.spawn(|me| me.steps(300));
        join_all(me, threads);
        me.join(busy);
    });
}

/// A signal ends whatever wait its thread is in or about to begin.
#[test]
fn signals() {
    explore("signals", |me| {
        let never = me.word(0);
        for _ in 0..me.some(10) {
            let threads: Vec<_> = (0..me.some(4))
                .map(|_| {
                    me.spawn(move |me| {
                        me.steps(4);
                        let delivered = &me.thread.kernel.delivered;
                        let none = || delivered.load(Ordering::SeqCst) == 0;
                        while none() {
                            match me.machine.pick(3) {
                                0 => {
                                    me.wait_while(never, Some(FOREVER), none);
                                }
                                1 => me.call(3_000),
                                _ => {
                                    me.wait_while(never, None, none);
                                }
                            }
                        }
                    })
                })
                .collect();
            for handle in &threads {
                me.steps(6);
                me.signal(handle.thread);
            }
            join_all(me, threads);
        }
        assert!(
            me.machine.clock.get() < FOREVER,
            "a signal was slept through"
        );
    });
}

#[test]
fn everything() {
    explore("everything", |me| {
        for _ in 0..6 {
            me.space
                .descriptors
                .borrow_mut()
                .push(Descriptor::default());
        }
        let mutex = me.word(0);
        let counted = me.word(0);
        let threads = (0..me.some(12)).map(|index| {
            me.spawn(move |me| {
                for _ in 0..me.some(25) {
                    match me.machine.pick(9) {
                        0 => me.steps(30),
                        1 => me.call(me.machine.pick(30_000)),
                        2 => me.sleep(me.machine.pick(20_000)),
                        3 => me.yield_now(),
                        4 if index < 6 => {
                            me.write(index as usize, me.machine.pick(8_000));
                            me.read(index as usize);
                        }
                        5 => {
                            let child = me.spawn(|me| me.call(1_000));
                            me.join(child);
                        }
                        6 => me.fault(me.machine.pick(3_000)),
                        _ => {
                            lock(me, mutex);
                            let now = counted.load(Ordering::SeqCst);
                            me.steps(4);
                            counted.store(now + 1, Ordering::SeqCst);
                            unlock(me, mutex);
                        }
                    }
                }
            })
        });
        join_all(me, threads);
    });
}

/// Threads that always find what they wait for give way after a turn, and are interrupted anywhere.
#[test]
fn turns_end() {
    explore("turns_end", |me| {
        let threads = (0..me.some(12)).map(|_| {
            me.spawn(|me| {
                for _ in 0..me.some(25) {
                    if me.machine.pick(8) == 0 {
                        me.sleep(me.machine.pick(20_000));
                    }
                    me.end_turn();
                    me.compute_for(me.machine.pick(400_000));
                    me.end_turn();
                }
            })
        });
        join_all(me, threads);
    });
}

/// A page fault is announced to nobody: all the same somebody must see what comes for the others.
#[test]
fn sleepers_beside_a_page_fault() {
    explore("sleepers_beside_a_page_fault", |me| {
        let threads = (0..3).map(|_| {
            me.spawn(|me| {
                for _ in 0..10 {
                    me.sleep(1_000 + me.machine.pick(30_000));
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        for _ in 0..15 {
            me.fault(50_000);
            me.sleep(2_000);
        }
        join_all(me, threads);
    });
}

/// A thread that has begun a call of the kernel, and a word that it sets when it is back.
fn send_into_call(me: Me) -> (Handle, &'static AtomicU32) {
    let (begun, back) = (me.word(0), me.word(0));
    let caller = me.spawn(move |me| {
        begun.store(1, Ordering::SeqCst);
        me.call(me.machine.pick(20_000));
        back.store(1, Ordering::SeqCst);
    });
    // Who came back before may have done so late, and had the owner choose again.
    while begun.load(Ordering::SeqCst) == 0 {
        me.yield_now();
    }
    (caller, back)
}

/// Who comes back from the kernel runs until it waits again: the one that was displaced for it does not
/// have it preempted in turn, nor does its own request to be chosen, if it was before it asked. No time
/// slice ends here, so that would be for ever. Not stepped: between looking whether to ask and asking there
/// are a few instructions, and who is preempted there may lose a slice. So may who is chosen in the moment in which another one asks
/// (seed 139799).
#[test]
fn who_comes_back_runs() {
    let less = "1,vps=1,without=slices+interruptions+stepping";
    explore_less("who_comes_back_runs", less, |me| {
        for _ in 0..me.some(10) {
            let (caller, back) = send_into_call(me);
            // The call takes a thousand steps at most, of 20 ns at least.
            for steps in 0.. {
                if back.load(Ordering::SeqCst) != 0 {
                    break;
                }
                assert!(steps < 5_000, "who comes back does not run");
                me.step();
            }
            me.join(caller);
        }
    });
}

/// As above, where what comes back is a thread that was parked: the poller delivers it, and the thread that runs on
/// its virtual processor chooses again, though it was inside the runtime then.
#[test]
fn who_was_waited_for_runs() {
    let less = "1,vps=1,without=slices+interruptions+stepping+exhaustion+spurious";
    explore_less("who_was_waited_for_runs", less, |me| {
        for _ in 0..me.some(10) {
            let back = me.word(0);
            let gate = Gate::closed(false);
            // Their activations are spares when they come back, and one of them sits in the poller: what an
            // owner finds in passing waits for its turn, and an empty seat for a time slice.
            let callers: Vec<_> = (0..2).map(|_| me.spawn(move |me| me.pass(gate))).collect();
            let sleeper = me.spawn(move |me| {
                me.pass(gate);
                me.sleep(100_000 + me.machine.pick(20_000));
                back.store(1, Ordering::SeqCst);
            });
            while gate.nr_waiting() < 3 {
                me.yield_now();
            }
            me.open(gate, 3);
            join_all(me, callers);
            while !me.is_event_awaited() && back.load(Ordering::SeqCst) == 0 {
                me.yield_now();
            }
            // The wait takes some thousand steps, of 40 ns at least.
            for steps in 0.. {
                if back.load(Ordering::SeqCst) != 0 {
                    break;
                }
                assert!(steps < 10_000, "who was waited for does not run");
                me.step();
                me.enter_and_leave();
            }
            me.join(sleeper);
        }
    });
}

/// A thread makes another one and meets a page fault, where nothing else was to be done for a while: the
/// standby, which may be about to sleep for that, has to see both.
#[test]
fn made_before_a_page_fault() {
    explore_less("made_before_a_page_fault", "1,vps=1", |me| {
        for _ in 0..me.some(60) {
            me.steps(30);
            let child = me.spawn(|me| me.steps(3));
            if me.machine.chance(2) {
                me.fault(20_000);
            }
            me.join(child);
        }
    });
}

/// Threads that make others and meet page faults at once, on all virtual processors: an activation that takes a
/// virtual processor over while its standby is being called needs one of its own.
#[test]
fn makers_meet_page_faults() {
    explore("makers_meet_page_faults", |me| {
        let threads = (0..1 + me.some(4)).map(|_| {
            me.spawn(|me| {
                for _ in 0..me.some(10) {
                    let child = me.spawn(|me| {
                        me.fault(me.machine.pick(5_000));
                        me.steps(3);
                    });
                    if me.machine.chance(2) {
                        me.fault(20_000);
                    } else {
                        me.steps(40);
                    }
                    me.join(child);
                }
            })
        });
        join_all(me, threads);
    });
}

/// Threads come back from long calls while others park all the time, so that they are let in between two of
/// those; then they meet a page fault, and somebody has to see what comes for the others.
#[test]
fn a_page_fault_after_a_call() {
    explore_less("a_page_fault_after_a_call", "1,vps=3", |me| {
        let threads = (0..8).map(|index| {
            me.spawn(move |me| {
                for _ in 0..me.some(20) {
                    match index % 3 {
                        0 => {
                            me.call(me.machine.pick(100_000));
                            me.fault(100_000);
                        }
                        1 => me.steps(150),
                        _ => {
                            me.steps(30);
                            me.sleep(me.machine.pick(10_000));
                        }
                    }
                }
            })
        });
        join_all(me, threads);
    });
}

/// The kernel gives no kernel threads for a while, and then it does: an activation that is put on a virtual
/// processor while another thread waits asks again.
#[test]
fn the_kernel_gives_threads_again() {
    explore("the_kernel_gives_threads_again", |me| {
        for _ in 0..me.some(5) {
            me.exhaust();
            let threads = (0..2).map(|_| {
                me.spawn(|me| {
                    for _ in 0..4 {
                        me.steps(10);
                        me.yield_now();
                        me.fault(10_000);
                    }
                })
            });
            let threads: Vec<_> = threads.collect();
            me.steps(10);
            me.yield_now();
            me.relieve();
            join_all(me, threads);
        }
    });
}
