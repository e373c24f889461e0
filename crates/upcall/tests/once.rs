//! `Once`, `OnceLock`, `LazyLock` and `Barrier`, with and without a runtime.

mod modes;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use upcall::sync::{Barrier, LazyLock, Once, OnceLock};

const ROUNDS: u32 = 200;
const THREADS: u32 = 8;

/// Calls `f` on many threads that begin together.
fn together(f: impl Fn(u32) + Sync) {
    let start = std::sync::Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (f, start) = (&f, &start);
            scope.spawn(move || {
                start.wait();
                f(number);
            });
        }
    });
}

fn panics<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

fn one_of_many_does_it_and_all_see_it() {
    for round in 0..ROUNDS {
        let (once, value) = (Once::new(), AtomicU32::new(0));
        together(|number| {
            match number % 4 {
                0 => once.wait(),
                1 => once.wait_force(),
                _ => once.call_once(|| {
                    if round % 2 == 0 {
                        thread::yield_now();
                    }
                    value.fetch_add(1, Ordering::Relaxed);
                }),
            }
            assert_eq!(value.load(Ordering::Relaxed), 1);
            assert!(once.is_completed());
        });
    }
}

fn a_panic_poisons_until_somebody_forces_it() {
    let once = Once::new();
    assert!(panics(|| once.call_once(|| resume_unwind(Box::new(())))));
    assert!(!once.is_completed());
    assert!(panics(|| once.call_once(|| ())));
    assert!(panics(|| once.wait()));
    thread::scope(|scope| {
        // Waits for what comes.
        scope.spawn(|| once.wait_force());
        once.call_once_force(|state| assert!(state.is_poisoned()));
    });
    once.call_once(|| unreachable!("it is done"));
    once.wait();
}

/// Those who wait while it panics do not wait on.
fn who_waits_for_a_panic_goes_on() {
    for _ in 0..ROUNDS {
        let (once, done) = (Once::new(), AtomicU32::new(0));
        together(|number| match number {
            0 => assert!(
                panics(|| once.call_once_force(|_| {
                    thread::yield_now();
                    // Not the first, perhaps; then it is done already.
                    resume_unwind(Box::new(()))
                })) || once.is_completed()
            ),
            _ => {
                once.call_once_force(|_| {
                    done.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(done.load(Ordering::Relaxed), 1);
            }
        });
    }
}

fn a_value_is_written_once() {
    for _ in 0..ROUNDS {
        let (cell, made) = (OnceLock::new(), AtomicU32::new(0));
        together(|number| {
            let value = match number % 3 {
                0 => cell.wait(),
                1 => {
                    let _ = cell.set(vec![number]);
                    cell.get().unwrap()
                }
                _ => cell.get_or_init(|| {
                    made.fetch_add(1, Ordering::Relaxed);
                    vec![number]
                }),
            };
            assert!(std::ptr::eq(value, cell.get().unwrap()));
        });
        assert!(made.into_inner() <= 1);
        let winner = cell.into_inner().unwrap()[0];
        assert_ne!(winner % 3, 0);
    }
}

fn a_value_in_a_cell_is_dropped_once() {
    let value = Arc::new(());
    let mut cell = OnceLock::new();
    assert!(panics(|| Arc::clone(
        cell.get_or_init(|| resume_unwind(Box::new(())))
    )));
    assert_eq!(cell.get(), None);
    assert_eq!(format!("{cell:?}"), "OnceLock(<uninit>)");
    cell.set(value.clone()).unwrap();
    assert_eq!(format!("{cell:?}"), "OnceLock(())");
    assert_eq!(cell, OnceLock::from(value.clone()));
    assert!(cell.set(value.clone()).is_err());
    assert_eq!(Arc::strong_count(&value), 2);
    drop(cell.clone());
    drop(cell.take());
    assert_eq!((cell.get_mut(), Arc::strong_count(&value)), (None, 1));
    cell.set(value.clone()).unwrap();
    drop(cell);
    assert_eq!(Arc::strong_count(&value), 1);
}

fn a_value_is_made_when_it_is_wanted() {
    for _ in 0..ROUNDS {
        let made = AtomicU32::new(0);
        let lazy = LazyLock::new(|| made.fetch_add(1, Ordering::Relaxed) + 5);
        assert_eq!(format!("{lazy:?}"), "LazyLock(<uninit>)");
        assert_eq!(LazyLock::get(&lazy), None);
        together(|_| assert_eq!(*lazy, 5));
        assert_eq!(format!("{lazy:?}"), "LazyLock(5)");
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }
    let mut fails: LazyLock<u32, _> = LazyLock::new(|| resume_unwind(Box::new(())));
    assert!(panics(|| LazyLock::force(&fails)));
    assert!(panics(|| LazyLock::force(&fails)));
    assert!(panics(|| *LazyLock::force_mut(&mut fails)));
    assert_eq!(LazyLock::get_mut(&mut fails), None);
    let mut lazy = LazyLock::new(|| 1);
    *LazyLock::force_mut(&mut lazy) += 1;
    assert_eq!(*lazy, 2);
}

fn threads_meet_round_after_round() {
    let barrier = Barrier::new(THREADS as usize);
    let (here, leaders) = (AtomicU32::new(0), AtomicU32::new(0));
    together(|_| {
        for round in 0..2000 {
            here.fetch_add(1, Ordering::Relaxed);
            if barrier.wait().is_leader() {
                leaders.fetch_add(1, Ordering::Relaxed);
            }
            // All of this round, and of the next one those who are through already.
            let there = here.load(Ordering::Relaxed);
            assert!(((round + 1) * THREADS..(round + 2) * THREADS).contains(&there));
        }
    });
    assert_eq!(leaders.into_inner(), 2000);
}

/// More threads than a round takes: each round lets its own go.
fn more_threads_than_a_round_takes_meet() {
    let (barrier, leaders) = (Barrier::new(2), AtomicU32::new(0));
    together(|_| {
        if barrier.wait().is_leader() {
            leaders.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(leaders.into_inner(), THREADS / 2);
    assert!(Barrier::new(0).wait().is_leader());
}

fn main() {
    modes::main(cases! {
        one_of_many_does_it_and_all_see_it
        a_panic_poisons_until_somebody_forces_it
        who_waits_for_a_panic_goes_on
        a_value_is_written_once
        a_value_in_a_cell_is_dropped_once
        a_value_is_made_when_it_is_wanted
        threads_meet_round_after_round
        more_threads_than_a_round_takes_meet
    });
}
