//! Waits in a word, as the semaphore of `upcall` has them: the only one that waits is in the word, others are counted and wait
//! for a futex.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use upcall_core::{LONE, Lone};
use upcall_sim::{Me, explore};

use super::join_all;

/// One that is counted; below it are the permits.
const WAITS: u64 = 1 << 32;

#[derive(Clone, Copy)]
struct Permits {
    state: &'static AtomicU64,
    /// What those that are counted wait for: how many permits were given to them.
    given: &'static AtomicU32,
}

impl Permits {
    fn new(me: Me) -> Self {
        Permits {
            state: me.lone_word(),
            given: me.word(0),
        }
    }

    fn change(self, from: u64, to: u64) -> bool {
        let order = Ordering::SeqCst;
        self.state.compare_exchange(from, to, order, order).is_ok()
    }

    fn release(self, me: Me) {
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if state & LONE != 0 {
                if me.hand_over(self.state, state) {
                    return;
                }
            } else if self.change(state, state + 1) {
                if state >= WAITS {
                    self.given.fetch_add(1, Ordering::SeqCst);
                    me.wake(self.given, 1);
                }
                return;
            }
        }
    }

    /// Takes a permit, and `waits` away with it, if there is one.
    fn take(self, waits: u64) -> bool {
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if state & LONE != 0 || state as u32 == 0 {
                return false;
            }
            if self.change(state, state - waits - 1) {
                return true;
            }
        }
    }

    fn acquire(self, me: Me) {
        if self.take(0) {
            return;
        }
        while self.state.load(Ordering::SeqCst) == 0 {
            match me.wait_alone(self.state) {
                Lone::Handed => return,
                Lone::Moved => return self.wait_counted(me),
                Lone::Again => {}
            }
        }
        loop {
            let state = self.state.load(Ordering::SeqCst);
            let counted = match state & LONE {
                0 => self.change(state, state + WAITS),
                _ => me.move_lone(self.state, state, 2 * WAITS, self.given),
            };
            if counted {
                return self.wait_counted(me);
            }
        }
    }

    fn wait_counted(self, me: Me) {
        loop {
            let given = self.given.load(Ordering::SeqCst);
            if self.take(WAITS) {
                return;
            }
            me.wait(self.given, given, None);
        }
    }
}

#[test]
fn a_permit_is_handed_over() {
    explore("alone::a_permit_is_handed_over", |me| {
        let permits = [Permits::new(me), Permits::new(me)];
        let rounds = me.some(30);
        let other = me.spawn(move |me| {
            for _ in 0..rounds {
                permits[1].acquire(me);
                me.steps(2);
                permits[0].release(me);
            }
        });
        for round in 0..rounds {
            permits[1].release(me);
            if round == 0 {
                // The other one begins.
                me.steps(3);
            }
            permits[0].acquire(me);
        }
        join_all(me, [other]);
        for one in permits {
            assert_eq!(one.state.load(Ordering::SeqCst), 0);
        }
    });
}

/// A signal ends a wait in a word, or prevents it, when nobody will hand anything over.
#[test]
fn a_signal_ends_a_wait() {
    explore("alone::a_signal_ends_a_wait", |me| {
        for _ in 0..me.some(10) {
            let waiters: Vec<_> = (0..1 + me.machine.pick(3))
                .map(|_| {
                    let word = me.lone_word();
                    me.spawn(move |me| {
                        me.steps(4);
                        let delivered = &me.thread.kernel.delivered;
                        let none = || delivered.load(Ordering::SeqCst) == 0;
                        while none() {
                            assert_eq!(me.wait_alone_while(word, none), Lone::Again);
                        }
                        assert_eq!(word.load(Ordering::SeqCst), 0);
                    })
                })
                .collect();
            for handle in &waiters {
                me.steps(6);
                me.signal(handle.thread);
            }
            join_all(me, waiters);
        }
    });
}

/// Several take permits, and are interrupted meanwhile.
#[test]
fn each_permit_is_taken_once() {
    explore("alone::each_permit_is_taken_once", |me| {
        let permits = Permits::new(me);
        let left = me.word(0);
        let times = me.some(10);
        let takers: Vec<_> = (0..me.some(3))
            .map(|_| {
                left.fetch_add(1, Ordering::SeqCst);
                me.spawn(move |me| {
                    for _ in 0..times {
                        permits.acquire(me);
                        me.steps(2);
                    }
                    left.fetch_sub(1, Ordering::SeqCst);
                    // Until then it can be sent a signal.
                    while left.load(Ordering::SeqCst) != 0 {
                        me.yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..times * takers.len() as u64 {
            if me.machine.chance(30) {
                let which = me.machine.pick(takers.len() as u64) as usize;
                me.signal(takers[which].thread);
            }
            me.steps(3);
            permits.release(me);
        }
        join_all(me, takers);
        assert_eq!(permits.state.load(Ordering::SeqCst), 0);
    });
}
