//! Threads fork pieces and join them (`join`), while they wait, block and lose their processors.
//!
//! Each piece runs once, and its thread goes on afterwards. `join::taker` sees to it that one taker looks at a time, and that no
//! virtual processor is idle while a piece waits.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use upcall_sim::{Me, explore};

use crate::join::{Fork, join, taker};
use crate::join_all;
use crate::processors::lose_some;
use crate::waiting::{calls, this};

/// Up to so many threads that fork, while the first one takes processors away.
fn forking(me: Me, most: u64, body: impl Fn() + Copy + 'static) {
    let threads = (0..1 + me.machine.pick(me.some(most))).map(|_| {
        me.spawn(move |_| {
            body();
            taker::end();
        })
    });
    let threads: Vec<_> = threads.collect();
    if me.machine.chance(2) {
        lose_some(me);
    }
    join_all(me, threads);
}

/// Computes, gives way, or waits in one of all ways.
fn act() {
    calls(|me| match me.machine.pick(8) {
        0 => me.steps(30),
        1 => me.call(me.machine.pick(10_000)),
        2 => me.fault(me.machine.pick(10_000)),
        3 => me.sleep(me.machine.pick(10_000)),
        4 => me.yield_now(),
        _ => {}
    });
}

/// A word that threads wait for.
type Word = &'static AtomicU32;

fn set(word: Word) {
    calls(|me| {
        word.store(1, Ordering::SeqCst);
        me.wake(word, usize::MAX);
    });
}

/// Waits until the word is set: parked, or by looking again and again, between which the thread gives way, sleeps, or blocks. Not
/// blocks where no standby may run for long: nobody could say when a taker has its turns.
fn wait_for(word: Word) {
    let is_set = || word.load(Ordering::SeqCst) != 0;
    let style = &this().machine.style;
    let is_seen =
        !style.may_starve_sentinels() && style.most_vessels == usize::MAX && style.refusals == 0;
    let way = this().machine.pick(if is_seen { 5 } else { 3 });
    while !is_set() {
        calls(|me| match way {
            0 => me.yield_now(),
            1 => me.sleep(20_000),
            2 => {
                me.wait(word, 0, None);
            }
            3 => me.call(20_000),
            _ => me.fault(20_000),
        });
    }
}

/// As [`wait_for`], parked.
fn park_for(word: Word) {
    while word.load(Ordering::SeqCst) == 0 {
        calls(|me| me.wait(word, 0, None));
    }
}

/// A binary tree of halves. Returns how many leaves it has.
fn tree(depth: u64, ran: Word) -> u32 {
    act();
    if depth == 0 {
        ran.fetch_add(1, Ordering::SeqCst);
        return 1;
    }
    let thread = this().thread;
    let half = move || tree(depth - 1, ran);
    let (one, other) = join(half, half);
    assert!(std::ptr::eq(thread, this().thread), "another thread joins");
    one + other
}

fn trees(me: Me, refusals: u64) {
    taker::begin(me, refusals);
    forking(me, 4, || {
        for _ in 0..this().some(2) {
            let depth = this().machine.pick(5);
            let ran = this().word(0);
            let leaves = tree(depth, ran);
            assert_eq!(
                (leaves, ran.load(Ordering::SeqCst)),
                (1 << depth, 1 << depth),
                "leaves"
            );
        }
    });
}

#[test]
fn each_half_runs_once() {
    explore("joins::each_half_runs_once", |me| trees(me, 0));
}

/// Where no taker can be made, threads call what they have forked, and try again. So there are takers as soon as some can be
/// made.
#[test]
fn takers_cannot_be_made() {
    explore("joins::takers_cannot_be_made", |me| {
        trees(me, 2);
        taker::relieve();
        forking(me, 2, || halves_that_wait(1));
    });
}

/// The first half waits for the second one, which may be two halves again.
fn halves_that_wait(depth: u64) {
    let done = this().word(0);
    let one = || {
        act();
        wait_for(done);
    };
    join(one, || {
        if depth > 0 {
            halves_that_wait(depth - 1);
        } else {
            act();
        }
        set(done);
    });
}

#[test]
fn a_half_waits_for_the_other() {
    explore("joins::a_half_waits_for_the_other", |me| {
        taker::begin(me, 0);
        forking(me, 3, || {
            for _ in 0..this().some(4) {
                halves_that_wait(this().machine.pick(3));
            }
        });
    });
}

/// A thread forks again and again, mostly nothing: takers come for what was joined already, and forget its list while it forks
/// the next piece. For that the thread waits. Sometimes a filter comes meanwhile, which forbids barriers.
#[test]
fn a_list_is_not_forgotten() {
    explore("joins::a_list_is_not_forgotten", |me| {
        taker::begin(me, 0);
        let has_filter = me.machine.chance(3);
        forking(me, 2, move || {
            for _ in 0..this().some(20) {
                if has_filter && this().machine.chance(10) {
                    taker::filter_comes();
                }
                for _ in 0..this().machine.pick(4) {
                    join(|| {}, || {});
                }
                let done = this().word(0);
                join(|| wait_for(done), || set(done));
            }
        });
    });
}

/// Forked together, joined in any order. Sometimes there are more than a list has room for. The thread also waits for some that
/// are still forked.
#[test]
fn forks_are_joined_in_any_order() {
    explore("joins::forks_are_joined_in_any_order", |me| {
        taker::begin(me, 0);
        forking(me, 3, || {
            for _ in 0..this().some(4) {
                let most = if this().machine.chance(30) { 200 } else { 6 };
                any_order(this().machine.pick(most));
            }
        });
    });
}

fn any_order(count: u64) {
    let mut forks = Vec::new();
    for _ in 0..count {
        let (ran, done) = (this().word(0), this().word(0));
        let fork = Fork::new(move || {
            act();
            ran.fetch_add(1, Ordering::SeqCst);
            set(done);
        });
        match fork {
            Ok(fork) => forks.push((fork, ran, done)),
            Err(body) => body(),
        }
        if count < 10 {
            act();
        }
    }
    while !forks.is_empty() {
        let which = this().machine.pick(forks.len() as u64) as usize;
        if this().machine.chance(2) {
            park_for(forks[which].2);
            continue;
        }
        let (fork, ran, _) = forks.swap_remove(which);
        if let Ok(body) = fork.end() {
            body();
        }
        assert_eq!(ran.load(Ordering::SeqCst), 1, "times it ran");
    }
}

/// The panic of a half, on purpose.
struct Planned;

/// What a closure has, and drops once.
struct Token<'a>(&'a AtomicU32);

impl Drop for Token<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// As [`tree`], with leaves that panic, and nodes that catch it.
fn panicking_tree(depth: u64) {
    act();
    if depth == 0 {
        if this().machine.chance(4) {
            resume_unwind(Box::new(Planned));
        }
        return;
    }
    let dropped = AtomicU32::new(0);
    let token = Token(&dropped);
    let joined = catch_unwind(AssertUnwindSafe(|| {
        join(
            || panicking_tree(depth - 1),
            move || {
                let _token = token;
                panicking_tree(depth - 1);
            },
        )
    }));
    assert_eq!(dropped.load(Ordering::SeqCst), 1, "times it was dropped");
    if let Err(panic) = joined {
        let panic: Box<dyn Any + Send> = panic;
        if !panic.is::<Planned>() || this().machine.chance(2) {
            resume_unwind(panic);
        }
    }
}

/// A half that panics, where it is called or taken: the other one is dropped or waited for.
#[test]
fn halves_panic() {
    explore("joins::halves_panic", |me| {
        taker::begin(me, 0);
        forking(me, 3, || {
            for _ in 0..this().some(3) {
                let depth = this().machine.pick(5);
                if let Err(panic) = catch_unwind(|| panicking_tree(depth))
                    && !panic.is::<Planned>()
                {
                    resume_unwind(panic);
                }
            }
        });
    });
}
