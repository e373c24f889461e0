//! Models of what waits: the code itself on loom's atomics, with a futex of loom's (`futex`).
//!
//! ```text
//! LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test -p upcall --lib models::
//! ```
//!
//! A deadlock, which a lost wake-up is, and two threads at one cell fail a model. `tests/models.rs` shows that
//! each catches a fault. Poisoning has no model: its flag orders nothing. Nor have `Barrier`, `mpsc`, `OnceLock` and
//! `LazyLock` beside the stress of `tests`: all but the first are made of what is here.

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::sync::{Condvar, Mutex, Semaphore};

/// The time that a wait has where it may be over at any moment.
const SOME: Duration = Duration::ZERO;

fn check(execution: impl Fn() + Sync + Send + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = checker.preemption_bound.or(Some(3));
    checker.check(move || {
        crate::futex::begin();
        execution();
    });
}

/// A value whose accesses loom watches.
#[derive(Default)]
struct Watched(UnsafeCell<u32>);

// SAFETY: loom finds out whether it is.
unsafe impl Send for Watched {}
// SAFETY: as above.
unsafe impl Sync for Watched {}

impl Watched {
    fn add(&self) {
        // SAFETY: loom sees to it.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }
}

#[test]
fn a_mutex_has_one_holder_and_wakes_who_waits() {
    check(|| {
        let mutex = Arc::new(Mutex::new(Watched::default()));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let mutex = mutex.clone();
                thread::spawn(move || mutex.lock().unwrap().add())
            })
            .collect();
        mutex.lock().unwrap().add();
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(mutex.lock().unwrap().get(), 3);
    });
}

#[test]
fn a_mutex_whose_waiter_gives_up_wakes_the_others() {
    check(|| {
        let mutex = Arc::new(Mutex::new(Watched::default()));
        let gives_up = {
            let mutex = mutex.clone();
            thread::spawn(move || {
                if let Ok(value) = mutex.lock_timeout(SOME) {
                    value.add();
                }
            })
        };
        let waits = {
            let mutex = mutex.clone();
            thread::spawn(move || mutex.lock().unwrap().add())
        };
        mutex.lock().unwrap().add();
        gives_up.join().unwrap();
        waits.join().unwrap();
        assert!(mutex.lock().unwrap().get() >= 2);
    });
}

/// Notified with the mutex held, or without.
#[test]
fn a_notification_of_a_change_is_not_missed() {
    for held in [false, true] {
        check(move || {
            let both = Arc::new((Mutex::new(0), Condvar::new()));
            let waits: Vec<_> = (0..2)
                .map(|_| {
                    let both = both.clone();
                    thread::spawn(move || {
                        let (value, changed) = &*both;
                        let value = value.lock().unwrap();
                        let mut value = changed.wait_while(value, |value| *value == 0).unwrap();
                        *value -= 1;
                    })
                })
                .collect();
            for _ in 0..2 {
                let mut value = both.0.lock().unwrap();
                *value += 1;
                if !held {
                    drop(value);
                }
                both.1.notify_one();
            }
            for waiter in waits {
                waiter.join().unwrap();
            }
        });
    }
}

#[test]
fn all_are_notified_and_one_gives_up() {
    check(|| {
        let both = Arc::new((Mutex::new(false), Condvar::new()));
        let waits = {
            let both = both.clone();
            thread::spawn(move || {
                let (over, changed) = &*both;
                drop(changed.wait_while(over.lock().unwrap(), |over| !*over));
            })
        };
        let gives_up = {
            let both = both.clone();
            thread::spawn(move || {
                let (over, changed) = &*both;
                let (over, result) = changed
                    .wait_timeout_while(over.lock().unwrap(), SOME, |over| !*over)
                    .unwrap();
                assert!(*over != result.timed_out());
            })
        };
        *both.0.lock().unwrap() = true;
        both.1.notify_all();
        waits.join().unwrap();
        gives_up.join().unwrap();
    });
}

#[test]
fn a_permit_is_taken_once_and_not_waited_for_in_vain() {
    check(|| {
        let permits = Arc::new(Semaphore::new(0));
        let value = Arc::new(Watched::default());
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let (permits, value) = (permits.clone(), value.clone());
                thread::spawn(move || {
                    permits.acquire();
                    value.add();
                    permits.release();
                })
            })
            .collect();
        value.add();
        permits.release();
        for taker in takers {
            taker.join().unwrap();
        }
        assert_eq!((value.get(), permits.permits()), (3, 1));
    });
}
