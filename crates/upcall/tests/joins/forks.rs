//! Forks of a scope: joined in any order, dropped, and left by a panic.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use upcall::ScopedFork;
use upcall::sync::Semaphore;
use upcall::thread;

use super::fib;

/// More of them than a list has room for, joined in steps, beside pieces of `join` that come and go.
pub fn in_any_order() {
    const FORKS: usize = 300;
    let numbers: Vec<usize> = (0..FORKS).collect();
    for stride in (1..FORKS).step_by(23) {
        thread::scope(|scope| {
            let forks = numbers.iter().map(|number| scope.fork(move || 2 * number));
            let mut forks: Vec<Option<ScopedFork<'_, usize>>> = forks.map(Some).collect();
            for first in 0..stride {
                for at in (first..FORKS).step_by(stride) {
                    assert_eq!(forks[at].take().unwrap().join().unwrap(), 2 * at);
                }
                assert_eq!(fib(3), 2);
            }
        });
    }
}

/// By the thread of the scope, and by a thread that the scope has made.
pub fn run_where_their_thread_waits() {
    let waits = |go: &Semaphore| {
        thread::scope(|scope| {
            let forks = [(); 3].map(|()| scope.fork(|| go.release()));
            for _ in 0..3 {
                go.acquire();
            }
            let [one, two, three] = forks;
            two.join().unwrap();
            one.join().unwrap();
            three.join().unwrap();
        });
    };
    let go = Semaphore::new(0);
    for _ in 0..50 {
        waits(&go);
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            let inner = scope.fork(|| 1);
            waits(&go);
            assert_eq!(inner.join().unwrap(), 1);
        });
    });
}

/// A handle that is dropped joins.
pub fn are_joined_by_dropping() {
    let ran = AtomicU32::new(0);
    thread::scope(|scope| {
        let first = scope.fork(|| ran.fetch_add(1, Ordering::Relaxed));
        drop(scope.fork(|| ran.fetch_add(1, Ordering::Relaxed)));
        assert_ne!(ran.load(Ordering::Relaxed), 0);
        let _left = first;
    });
    assert_eq!(ran.into_inner(), 2);
}

/// To who joins, or out of the scope.
pub fn hand_panics_on() {
    let fails = || -> u32 { resume_unwind(Box::new(7)) };
    thread::scope(|scope| {
        let panic = scope.fork(fails).join().unwrap_err();
        assert_eq!(*panic.downcast::<i32>().unwrap(), 7);
    });
    let unseen = || thread::scope(|scope| drop(scope.fork(fails)));
    let panic = catch_unwind(AssertUnwindSafe(unseen)).unwrap_err();
    assert_eq!(
        *panic.downcast::<&str>().unwrap(),
        "a scoped thread panicked"
    );
}

/// What has begun is waited for, what has not is dropped: each closure once.
pub fn are_dropped_by_a_panic() {
    struct Dropped<'a>(&'a AtomicU32);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for begins in [false, true] {
        let (dropped, go) = (AtomicU32::new(0), Semaphore::new(0));
        let body = || {
            thread::scope(|scope| {
                let _forks = [(); 5].map(|()| {
                    let own = Dropped(&dropped);
                    let go = &go;
                    scope.fork(move || {
                        go.release();
                        drop(own);
                    })
                });
                if begins {
                    go.acquire();
                }
                resume_unwind(Box::new(3));
            })
        };
        let panic = catch_unwind(AssertUnwindSafe(body)).unwrap_err();
        assert_eq!(*panic.downcast::<i32>().unwrap(), 3);
        assert_eq!(dropped.into_inner(), 5);
    }
}
