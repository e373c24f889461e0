//! `RwLock`, with and without a runtime.

mod modes;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use upcall::sync::{RwLock, RwLockWriteGuard, TryLockError};

const SHORT: Duration = Duration::from_millis(5);

fn a_writer_is_alone_and_readers_are_not() {
    let (lock, readers, writers) = (RwLock::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let together = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..5000 {
                    let mut value = lock.write().unwrap();
                    assert_eq!(writers.fetch_add(1, Ordering::Relaxed), 0);
                    assert_eq!(readers.load(Ordering::Relaxed), 0);
                    *value += 1;
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    assert_eq!(writers.fetch_sub(1, Ordering::Relaxed), 1);
                }
            });
            scope.spawn(|| {
                for round in 0..5000 {
                    let value = lock.read().unwrap();
                    let before = *value;
                    let inside = readers.fetch_add(1, Ordering::Relaxed) + 1;
                    together.fetch_max(inside, Ordering::Relaxed);
                    assert_eq!(writers.load(Ordering::Relaxed), 0);
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    assert_eq!(*value, before);
                    readers.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(together.into_inner() > 1, "readers were never together");
    assert_eq!(lock.into_inner().unwrap(), 4 * 5000);
}

/// Readers of whom one is always inside: without order a writer would never be.
fn a_writer_is_let_in_among_readers() {
    let (lock, over) = (RwLock::new(0), AtomicBool::new(false));
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let value = lock.read().unwrap();
                    inside.fetch_add(1, Ordering::Relaxed);
                    // Not alone, if others would come.
                    for _ in 0..20 {
                        if inside.load(Ordering::Relaxed) > 1 {
                            break;
                        }
                        thread::yield_now();
                    }
                    inside.fetch_sub(1, Ordering::Relaxed);
                    drop(value);
                }
            });
        }
        for _ in 0..500 {
            *lock.write().unwrap() += 1;
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(lock.into_inner().unwrap(), 500);
}

/// And the other way around.
fn readers_are_let_in_among_writers() {
    let (lock, over) = (RwLock::new(0_u64), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    *lock.write().unwrap() += 1;
                    thread::yield_now();
                }
            });
        }
        for _ in 0..200 {
            drop(lock.read().unwrap());
        }
        over.store(true, Ordering::Relaxed);
    });
}

fn a_lock_that_is_held_is_not_had_in_time() {
    let lock = RwLock::new(1);
    let elsewhere = |expected: [bool; 2]| {
        thread::scope(|scope| {
            scope.spawn(|| {
                for timeout in [Duration::ZERO, SHORT] {
                    let before = Instant::now();
                    let reads = lock.read_timeout(timeout).is_ok();
                    let writes = lock.write_timeout(timeout).is_ok();
                    assert_eq!([reads, writes], expected);
                    let waits = expected.iter().filter(|had| !**had).count() as u32;
                    assert!(before.elapsed() >= timeout * waits);
                }
                assert_eq!(lock.try_read().is_ok(), expected[0]);
                assert_eq!(lock.try_write().is_ok(), expected[1]);
            });
        });
    };
    elsewhere([true, true]);
    let reads = lock.read().unwrap();
    elsewhere([true, false]);
    drop(reads);
    let writes = lock.write().unwrap();
    elsewhere([false, false]);
    assert_eq!(
        format!("{lock:?}"),
        "RwLock { data: <locked>, poisoned: false, .. }"
    );
    let reads = RwLockWriteGuard::downgrade(writes);
    elsewhere([true, false]);
    assert_eq!(
        format!("{lock:?}"),
        "RwLock { data: 1, poisoned: false, .. }"
    );
    drop(reads);
    elsewhere([true, true]);
}

/// The writer keeps readers out while it waits; when it gives up they come in, although nobody leaves.
fn readers_come_in_when_a_writer_gives_up() {
    let lock = RwLock::new(());
    let inside = lock.read().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.write_timeout(10 * SHORT).is_err());
            over.store(true, Ordering::Relaxed);
        });
        for _ in 0..3 {
            scope.spawn(|| {
                // Behind the writer, which keeps out readers that try, or after it.
                while lock.try_read().is_ok() && !over.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                drop(lock.read().unwrap());
            });
        }
    });
    drop(inside);
    drop(lock.try_write().unwrap());
}

/// Deadlines that come while the lock is freed.
fn waits_that_end_by_their_time_lose_no_wake_up() {
    let (lock, had) = (RwLock::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for timeout in [1, 20, 50, 100] {
            let (lock, had) = (&lock, &had);
            scope.spawn(move || {
                for _ in 0..300 {
                    if let Ok(mut value) = lock.write_timeout(Duration::from_micros(timeout)) {
                        *value += 1;
                        had.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_micros(20));
                    }
                }
            });
            scope.spawn(move || {
                for _ in 0..300 {
                    if let Ok(_value) = lock.read_timeout(Duration::from_micros(timeout)) {
                        thread::sleep(Duration::from_micros(20));
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    // Wait for ever if their wake-up was lost.
                    drop(lock.read().unwrap());
                    drop(lock.write().unwrap());
                    thread::yield_now();
                }
            });
        }
    });
    assert_eq!(lock.into_inner().unwrap(), had.into_inner());
}

fn a_writer_that_panics_poisons_and_a_reader_does_not() {
    let lock = RwLock::new(1);
    let panics = |write: bool| {
        let answer = thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _guards = match write {
                        true => (Some(lock.write().unwrap()), None),
                        false => (None, Some(lock.read().unwrap())),
                    };
                    std::panic::resume_unwind(Box::new(()))
                })
                .join()
        });
        assert!(answer.is_err());
    };
    panics(false);
    assert!(!lock.is_poisoned());
    panics(true);
    assert!(lock.is_poisoned());
    assert_eq!(*lock.read().unwrap_err().into_inner(), 1);
    assert!(matches!(lock.try_write(), Err(TryLockError::Poisoned(_))));
    *lock.write().unwrap_err().into_inner() = 2;
    lock.clear_poison();
    assert_eq!(lock.into_inner().unwrap(), 2);
}

fn main() {
    modes::main(cases! {
        a_writer_is_alone_and_readers_are_not
        a_writer_is_let_in_among_readers
        readers_are_let_in_among_writers
        a_lock_that_is_held_is_not_had_in_time
        readers_come_in_when_a_writer_gives_up
        waits_that_end_by_their_time_lose_no_wake_up
        a_writer_that_panics_poisons_and_a_reader_does_not
    });
}
