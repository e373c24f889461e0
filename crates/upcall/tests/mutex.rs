//! `Mutex` and `Condvar`, with and without a runtime.

mod modes;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use upcall::sync::{Condvar, Mutex, TryLockError};

const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(60);

fn one_thread_at_a_time_has_the_mutex() {
    let (mutex, inside) = (Mutex::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 0..20_000 {
                    let mut count = mutex.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    *count += 1;
                    // Now and then the others run while it is held.
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    assert_eq!(inside.fetch_sub(1, Ordering::Relaxed), 1);
                }
            });
        }
    });
    assert_eq!(mutex.into_inner().unwrap(), 8 * 20_000);
}

fn a_mutex_that_is_held_is_not_had_in_time() {
    let mutex = Mutex::new(());
    let held = mutex.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
            for timeout in [Duration::ZERO, SHORT] {
                let before = Instant::now();
                let answer = mutex.lock_timeout(timeout);
                assert!(matches!(answer, Err(TryLockError::WouldBlock)));
                assert!(before.elapsed() >= timeout);
            }
        });
    });
    assert_eq!(
        format!("{mutex:?}"),
        "Mutex { data: <locked>, poisoned: false, .. }"
    );
    drop(held);
    drop(mutex.lock_timeout(Duration::ZERO).unwrap());
    drop(mutex.lock_timeout(Duration::MAX).unwrap());
    assert_eq!(
        format!("{mutex:?}"),
        "Mutex { data: (), poisoned: false, .. }"
    );
}

/// Deadlines that come while the mutex is freed: nobody who gives up takes another one's wake-up along.
fn waits_that_end_by_their_time_lose_no_wake_up() {
    let (mutex, had) = (Mutex::new(()), AtomicU32::new(0));
    thread::scope(|scope| {
        for timeout in [1, 20, 50, 100, 200] {
            let (mutex, had) = (&mutex, &had);
            scope.spawn(move || {
                for _ in 0..300 {
                    if let Ok(_guard) = mutex.lock_timeout(Duration::from_micros(timeout)) {
                        had.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_micros(20));
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..300 {
                    // Waits for ever if its wake-up was lost.
                    drop(mutex.lock().unwrap());
                    thread::yield_now();
                }
            });
        }
    });
    assert!(had.into_inner() > 0);
}

fn a_panic_poisons_what_is_held() {
    let mut mutex = Mutex::new(1);
    let panicked = thread::scope(|scope| {
        scope
            .spawn(|| {
                let _held = mutex.lock().unwrap();
                std::panic::resume_unwind(Box::new(()))
            })
            .join()
    });
    assert!(panicked.is_err() && mutex.is_poisoned());
    assert_eq!(
        format!("{mutex:?}"),
        "Mutex { data: 1, poisoned: true, .. }"
    );
    assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_))));
    assert!(matches!(
        mutex.lock_timeout(SHORT),
        Err(TryLockError::Poisoned(_))
    ));
    *mutex.lock().unwrap_err().into_inner() = 2;
    assert_eq!(*mutex.get_mut().unwrap_err().into_inner(), 2);
    mutex.clear_poison();
    assert_eq!(*mutex.lock().unwrap(), 2);
    // Who takes and frees it while it panics already has not panicked with it.
    struct Locks<'a>(&'a Mutex<i32>);
    impl Drop for Locks<'_> {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = 3;
        }
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _locks = Locks(&mutex);
        std::panic::resume_unwind(Box::new(()))
    }));
    assert!(panicked.is_err());
    assert_eq!(mutex.into_inner().unwrap(), 3);
}

fn a_poisoned_mutex_is_seen_by_who_waits_for_a_condition() {
    // Whether somebody waits, and whether it is over.
    let (mutex, changed) = (Mutex::new((false, false)), Condvar::new());
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut state = mutex.lock().unwrap();
            state.0 = true;
            changed.notify_all();
            let poisoned = changed.wait_while(state, |state| !state.1).unwrap_err();
            assert!(poisoned.into_inner().1);
        });
        let panics = scope.spawn(|| {
            let state = mutex.lock().unwrap();
            let mut state = changed.wait_while(state, |state| !state.0).unwrap();
            state.1 = true;
            changed.notify_all();
            std::panic::resume_unwind(Box::new(()))
        });
        assert!(panics.join().is_err());
        waits.join().unwrap();
    });
}

/// Many rounds of two threads that wait for one another: a lost wake-up hangs.
fn ping_pong_loses_no_wake_up() {
    const ROUNDS: u32 = 20_000;
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for own in 0..2 {
            let (turn, changed) = (&turn, &changed);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let turn = turn.lock().unwrap();
                    let mut turn = changed.wait_while(turn, |turn| *turn % 2 != own).unwrap();
                    *turn += 1;
                    // With the mutex held and without.
                    if *turn % 3 == 0 {
                        drop(turn);
                    }
                    changed.notify_one();
                }
            });
        }
    });
    assert_eq!(turn.into_inner().unwrap(), 2 * ROUNDS);
}

/// A queue of one place, many who put and many who take, some of whom give up in between.
fn a_queue_of_one_place_loses_nothing() {
    const EACH: u32 = 2000;
    let queue = Mutex::new(VecDeque::new());
    let (taken, put) = (Condvar::new(), Condvar::new());
    let sum = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for value in 0..EACH {
                    let full = |queue: &mut VecDeque<u32>| !queue.is_empty();
                    let mut queue = taken.wait_while(queue.lock().unwrap(), full).unwrap();
                    queue.push_back(value);
                    drop(queue);
                    put.notify_one();
                }
            });
            scope.spawn(|| {
                for _ in 0..EACH {
                    let value = loop {
                        let (mut queue, _) = put
                            .wait_timeout_while(
                                queue.lock().unwrap(),
                                Duration::from_micros(50),
                                |queue| queue.is_empty(),
                            )
                            .unwrap();
                        if let Some(value) = queue.pop_front() {
                            break value;
                        }
                    };
                    taken.notify_one();
                    sum.fetch_add(value, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 4 * (0..EACH).sum::<u32>());
}

fn all_who_wait_are_notified() {
    const THREADS: u32 = 200;
    let (state, changed) = (Mutex::new((0, false)), Condvar::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut state = state.lock().unwrap();
                state.0 += 1;
                changed.notify_all();
                drop(changed.wait_while(state, |state| !state.1).unwrap());
            });
        }
        let state = state.lock().unwrap();
        let mut state = changed
            .wait_while(state, |state| state.0 < THREADS)
            .unwrap();
        state.1 = true;
        drop(state);
        changed.notify_all();
    });
}

fn a_wait_ends_by_its_time() {
    let (mutex, changed) = (Mutex::new(7), Condvar::new());
    for timeout in [Duration::ZERO, SHORT] {
        let before = Instant::now();
        let (guard, result) = changed
            .wait_timeout(mutex.lock().unwrap(), timeout)
            .unwrap();
        assert_eq!(*guard, 7);
        assert!(result.timed_out() && before.elapsed() >= timeout);
        drop(guard);
        let (_guard, result) = changed
            .wait_timeout_while(mutex.lock().unwrap(), timeout, |_| true)
            .unwrap();
        assert!(result.timed_out());
    }
    // What holds at once, and what comes to hold.
    let (guard, result) = changed
        .wait_timeout_while(mutex.lock().unwrap(), Duration::ZERO, |_| false)
        .unwrap();
    assert!(!result.timed_out());
    drop(guard);
    thread::scope(|scope| {
        scope.spawn(|| {
            *mutex.lock().unwrap() = 8;
            changed.notify_one();
        });
        let (_guard, result) = changed
            .wait_timeout_while(mutex.lock().unwrap(), LONG, |value| *value == 7)
            .unwrap();
        assert!(!result.timed_out());
    });
}

fn main() {
    modes::main(cases! {
        one_thread_at_a_time_has_the_mutex
        a_mutex_that_is_held_is_not_had_in_time
        waits_that_end_by_their_time_lose_no_wake_up
        a_panic_poisons_what_is_held
        a_poisoned_mutex_is_seen_by_who_waits_for_a_condition
        ping_pong_loses_no_wake_up
        a_queue_of_one_place_loses_nothing
        all_who_wait_are_notified
        a_wait_ends_by_its_time
    });
}
