//! Policies of the program's own: an adviser that is told what happens to the threads, and says who runs.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use upcall_core::Rank;
use upcall_core::runtime::Transition;
use upcall_sim::{Handle, Me, Thread, Told, explore, explore_less};

use crate::{join_all, lock, unlock};

/// Whether a thread to which that has happened could run.
fn is_ready(transition: Transition) -> bool {
    !matches!(transition, Transition::Blocked | Transition::Ended)
}

/// What threads do under a policy: everything, for a while.
fn lives(me: Me, mutex: &'static AtomicU32, most: u64) {
    for _ in 0..me.some(most) {
        match me.machine.pick(10) {
            0 => me.call(me.machine.pick(20_000)),
            1 => me.sleep(me.machine.pick(20_000)),
            2 => me.fault(me.machine.pick(5_000)),
            3 => me.yield_now(),
            4 => {
                lock(me, mutex);
                me.steps(3);
                unlock(me, mutex);
            }
            5 => {
                let child = me.spawn(|me| me.steps(5));
                me.steps(150);
                me.join(child);
            }
            6 => {
                let left = me.fork(|me| me.steps(20));
                let right = me.fork(|me| me.call(me.machine.pick(2_000)));
                me.join(right);
                me.join(left);
            }
            _ => me.steps(60),
        }
    }
}

/// A thread that is the adviser until `over` says that the run is over: `advise` is what it does. Where that
/// returns earlier, the policy has ended; perhaps another one begins.
fn advised(me: Me, over: &'static AtomicU32, advise: impl Fn(Me) + 'static) -> Handle {
    let begun = me.word(0);
    let adviser = me.spawn(move |me| {
        loop {
            assert!(me.become_adviser());
            begun.store(1, Ordering::SeqCst);
            me.wake(begun, 1);
            advise(me);
            me.dismiss_adviser();
            if over.load(Ordering::SeqCst) != 0 || me.machine.chance(2) {
                break;
            }
            dawdle(me);
        }
    });
    while begun.load(Ordering::SeqCst) == 0 {
        me.wait(begun, 0, None);
    }
    adviser
}

/// Only the adviser is left, which is told that this thread waits, and looks.
fn end(me: Me, over: &'static AtomicU32, adviser: Handle) {
    over.store(1, Ordering::SeqCst);
    me.join(adviser);
}

/// Takes a while, as the code of others may.
fn dawdle(me: Me) {
    match me.machine.pick(4) {
        0 => me.call(me.machine.pick(20_000)),
        1 => me.sleep(me.machine.pick(20_000)),
        2 => me.fault(me.machine.pick(5_000)),
        _ => me.steps(200),
    }
}

/// A policy that says at random how urgent who is, of the one that it is told of and of others; perhaps late;
/// and perhaps ends.
#[test]
fn a_policy_ranks_threads() {
    explore("policies::a_policy_ranks_threads", |me| {
        let (over, mutex) = (me.word(0), me.word(0));
        let slow = [0, 0, 3, 20][me.machine.pick(4) as usize];
        let ends = [0, 0, 0, 30][me.machine.pick(4) as usize];
        let adviser = advised(me, over, move |me| {
            while over.load(Ordering::SeqCst) == 0 && !me.machine.chance(ends) {
                let patience = me.machine.clock.get() + me.machine.pick(50_000);
                let deadline = me.machine.chance(2).then_some(patience);
                let Told::Thread(thread, transitions) = me.await_transition(deadline) else {
                    continue;
                };
                if me.machine.chance(slow) {
                    dawdle(me);
                }
                if transitions.iter().any(|&one| is_ready(one)) {
                    me.set_rank(thread, Rank::COMMON.0 - 3 + me.machine.pick(6));
                }
                let known = me.known_threads();
                if me.machine.chance(4) && !known.is_empty() {
                    let one = known[me.machine.pick(known.len() as u64) as usize];
                    me.set_rank(one, Rank::COMMON.0 - 3 + me.machine.pick(6));
                }
            }
        });
        let threads = (0..me.some(6)).map(|_| me.spawn(move |me| lives(me, mutex, 6)));
        join_all(me, threads);
        end(me, over, adviser);
    });
}

/// Whatever else happens, the adviser is told of each warning, whose moments are numbers here.
#[test]
fn an_adviser_is_warned() {
    explore("policies::an_adviser_is_warned", |me| {
        let (over, heard, mutex) = (me.word(0), me.word(0), me.word(0));
        let adviser = advised(me, over, move |me| {
            while over.load(Ordering::SeqCst) == 0 {
                if let Told::Warned(moment) = me.await_transition(None) {
                    heard.store(moment as u32, Ordering::SeqCst);
                    me.wake(heard, 1);
                }
            }
        });
        let threads = (0..me.some(3)).map(|_| me.spawn(move |me| lives(me, mutex, 4)));
        let threads: Vec<_> = threads.collect();
        for moment in 1..=4 {
            assert!(me.warn(moment), "nobody is told");
            while u64::from(heard.load(Ordering::SeqCst)) != moment {
                me.wait(heard, moment as u32 - 1, None);
            }
        }
        join_all(me, threads);
        end(me, over, adviser);
    });
}

/// The groups of a policy that lets the threads of one run at a time.
struct Groups {
    /// Those that are not known to wait, by group.
    ready: Vec<Vec<&'static Thread>>,
    current: usize,
}

const NR_GROUPS: usize = 4;
const RUNS: u64 = Rank::COMMON.0 - 1;

impl Groups {
    fn rank_of(&self, group: usize) -> u64 {
        match group {
            0 => Rank::COMMON.0,
            group if group == self.current => RUNS,
            _ => Rank::HELD.0,
        }
    }

    fn comes(&mut self, me: Me, thread: &'static Thread) {
        let group = thread.kernel.group.get();
        if !self.ready[group]
            .iter()
            .any(|one| std::ptr::eq(*one, thread))
        {
            self.ready[group].push(thread);
        }
        if self.ready[self.current].is_empty() {
            self.pass(me);
        }
        me.set_rank(thread, self.rank_of(group));
    }

    fn goes(&mut self, me: Me, thread: &'static Thread) {
        for group in &mut self.ready {
            group.retain(|one| !std::ptr::eq(*one, thread));
        }
        if self.ready[self.current].is_empty() {
            self.pass(me);
        }
    }

    /// The next group of which anybody is ready has its turn.
    fn pass(&mut self, me: Me) {
        let before = self.current;
        let after = (1..NR_GROUPS).map(|more| (before - 1 + more) % (NR_GROUPS - 1) + 1);
        let mut ready = after.filter(|&group| !self.ready[group].is_empty());
        let Some(next) = ready.next() else { return };
        self.current = next;
        for group in [before, next] {
            for thread in self.ready[group].clone() {
                me.set_rank(thread, self.rank_of(group));
            }
        }
    }
}

/// The threads of one group run at a time, and all others are held: until all of it wait, or until their time is
/// over. Perhaps the policy ends: nobody is held any more then.
#[test]
fn groups_take_turns() {
    explore("policies::groups_take_turns", |me| {
        let (over, mutex) = (me.word(0), me.word(0));
        let turn = [0, 5_000, 50_000][me.machine.pick(3) as usize];
        let slow = [0, 0, 3, 20][me.machine.pick(4) as usize];
        let ends = [0, 0, 0, 30][me.machine.pick(4) as usize];
        let adviser = advised(me, over, move |me| {
            let mut groups = Groups {
                ready: vec![Vec::new(); NR_GROUPS],
                current: 1,
            };
            let mut passes_at = me.machine.clock.get() + turn;
            while over.load(Ordering::SeqCst) == 0 && !me.machine.chance(ends) {
                let deadline = (turn != 0).then_some(passes_at);
                let told = me.await_transition(deadline);
                if me.machine.chance(slow) {
                    dawdle(me);
                }
                if let Told::Thread(thread, transitions) = told {
                    for transition in transitions {
                        match is_ready(transition) {
                            true => groups.comes(me, thread),
                            false => groups.goes(me, thread),
                        }
                    }
                }
                if turn != 0 && me.machine.clock.get() >= passes_at {
                    groups.pass(me);
                    passes_at = me.machine.clock.get() + turn;
                }
            }
        });
        let threads = (0..me.some(8)).map(|index| {
            let group = index as usize % NR_GROUPS;
            me.spawn_in(group, move |me| lives(me, mutex, 4))
        });
        join_all(me, threads);
        end(me, over, adviser);
    });
}

/// A policy that holds everybody, and lets one go when nothing runs: it is told of that each time.
#[test]
fn who_is_held_runs_when_nothing_else_does() {
    explore("policies::who_is_held_runs_when_nothing_else_does", |me| {
        let (over, mutex) = (me.word(0), me.word(0));
        let adviser = advised(me, over, move |me| {
            let mut held: Vec<&'static Thread> = Vec::new();
            while over.load(Ordering::SeqCst) == 0 {
                match me.await_transition(None) {
                    Told::Thread(thread, transitions) => {
                        for transition in transitions {
                            match transition {
                                Transition::Created | Transition::Unblocked => {
                                    held.push(thread);
                                    me.set_rank(thread, Rank::HELD.0);
                                }
                                Transition::Blocked | Transition::Ended => {
                                    held.retain(|one| !std::ptr::eq(*one, thread));
                                }
                                Transition::Yielded | Transition::Preempted => {}
                            }
                        }
                    }
                    Told::Idle if held.is_empty() => {}
                    Told::Idle => {
                        let one = me.machine.pick(held.len() as u64) as usize;
                        me.set_rank(held.swap_remove(one), Rank::COMMON.0);
                    }
                    Told::Warned(_) | Told::Nothing => {}
                }
            }
        });
        let threads = (0..me.some(4)).map(|_| me.spawn(move |me| lives(me, mutex, 4)));
        join_all(me, threads);
        end(me, over, adviser);
    });
}

/// Threads compute, and are held or urgent for a while wherever they are: ready, running, or stopped in
/// favour of one that came back from the kernel.
#[test]
fn who_is_held_stops() {
    explore("policies::who_is_held_stops", |me| {
        let threads = (0..me.some(4)).map(|_| {
            me.spawn(|me| {
                for _ in 0..me.some(3) {
                    me.steps(300);
                    me.call(me.machine.pick(5_000));
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        for _ in 0..me.some(10) {
            me.call(me.machine.pick(10_000));
            // They may have ended, and be others.
            let some = || threads[me.machine.pick(threads.len() as u64) as usize].thread;
            let (one, other) = (some(), some());
            me.set_rank(one, Rank::HELD.0);
            me.set_rank(other, RUNS);
            match me.machine.pick(3) {
                0 => me.call(me.machine.pick(20_000)),
                1 => me.steps(100),
                _ => me.sleep(me.machine.pick(20_000)),
            }
            me.set_rank(one, Rank::COMMON.0);
            me.set_rank(other, Rank::COMMON.0);
        }
        join_all(me, threads);
    });
}

/// Divides work by threads, as deep as that. `made` are those that have not begun.
fn divide(me: Me, depth: u64, made: &Rc<RefCell<Vec<u64>>>) {
    if depth == 0 {
        return me.steps(3);
    }
    let halves = [0, 1].map(|_| {
        let name = me.machine.pick(u64::MAX);
        made.borrow_mut().push(name);
        let made = made.clone();
        me.fork(move |me| {
            let last = made.borrow_mut().pop();
            assert_eq!(last, Some(name), "another one was made later");
            divide(me, depth - 1, &made);
        })
    });
    join_all(me, halves);
}

/// On one virtual processor, of threads among which work is divided the last one made runs first, also under a
/// policy that has nothing against it. Not at the end of a time slice: there they are as all others.
#[test]
fn forked_threads_run_last_made_first() {
    let less = "1,vps=1,without=slices+interruptions";
    explore_less("policies::forked_threads_run_last_made_first", less, |me| {
        let over = me.word(0);
        let adviser = me.machine.chance(2).then(|| {
            advised(me, over, move |me| {
                while over.load(Ordering::SeqCst) == 0 {
                    me.await_transition(None);
                }
            })
        });
        divide(me, me.some(4), &Rc::default());
        if let Some(adviser) = adviser {
            end(me, over, adviser);
        }
    });
}

/// A policy that computes for ever over its first answer: the threads run, on one virtual processor as well.
#[test]
fn a_policy_that_loops_runs_last() {
    explore("policies::a_policy_that_loops_runs_last", |me| {
        let over = me.word(0);
        let adviser = advised(me, over, move |me| {
            me.await_transition(None);
            while over.load(Ordering::SeqCst) == 0 {
                me.step();
            }
        });
        let threads = (0..me.some(3)).map(|_| {
            me.spawn(|me| {
                me.steps(20);
                me.sleep(1_000);
            })
        });
        join_all(me, threads);
        end(me, over, adviser);
    });
}
