//! Models of what waits: the code itself on loom's atomics, with a futex of loom's (`models/waiting.rs`).
//!
//! ```text
//! LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test -p upcall --lib models::
//! ```
//!
//! A deadlock, which a lost wake-up is, and two threads at one cell fail a model. `tests/models.rs` shows that
//! each catches a fault. Poisoning has no model: its flag orders nothing. Nor has `Barrier` beside the
//! stress of `tests`.

mod joins;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread::{self, JoinHandle};

use crate::signal::Signal;
use crate::sync::{Condvar, Mutex, RwLock, RwLockWriteGuard, Semaphore};
use crate::workers::Heap;

/// The time that a wait has where it may be over at any moment.
const SOME: Duration = Duration::ZERO;

fn check(execution: impl Fn() + Sync + Send + 'static) {
    check_less(0, execution);
}

/// With so many preemptions less: what has many steps.
fn check_less(less: usize, execution: impl Fn() + Sync + Send + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(checker.preemption_bound.unwrap_or(3).saturating_sub(less));
    checker.check(move || {
        crate::waiting::begin();
        execution();
    });
}

/// Starts a thread that does something with what it shares.
fn spawn<T: 'static, R: 'static>(
    shared: &Arc<T>,
    body: impl FnOnce(&T) -> R + 'static,
) -> JoinHandle<R> {
    let shared = shared.clone();
    thread::spawn(move || body(&shared))
}

/// Starts some such threads, which have numbers.
fn several<T: 'static, R: 'static>(
    count: usize,
    shared: &Arc<T>,
    body: impl FnOnce(&T, usize) -> R + Copy + 'static,
) -> Vec<JoinHandle<R>> {
    let numbered = |number| spawn(shared, move |shared| body(shared, number));
    (0..count).map(numbered).collect()
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
        let others = several(2, &mutex, move |mutex, _| mutex.lock().unwrap().add());
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
        let gives_up = spawn(&mutex, move |mutex| {
            if let Ok(value) = mutex.lock_timeout(SOME) {
                value.add();
            }
        });
        let waits = spawn(&mutex, move |mutex| mutex.lock().unwrap().add());
        mutex.lock().unwrap().add();
        gives_up.join().unwrap();
        waits.join().unwrap();
        assert!(mutex.lock().unwrap().get() >= 2);
    });
}

/// What threads share until the last of them ends it, which they find out themselves.
struct Shared<T>(std::cell::UnsafeCell<ManuallyDrop<T>>);

// SAFETY: as for a reference that is shared; the thread that ends the value is its last user, or loom tells.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn new(value: T) -> Arc<Self> {
        Arc::new(Shared(ManuallyDrop::new(value).into()))
    }

    fn get(&self) -> &T {
        // SAFETY: the memory stays; loom tells if it is used after the end.
        unsafe { &*self.0.get() }
    }

    /// The value is not used any more.
    fn end(&self) {
        // SAFETY: by the last user, or loom tells.
        unsafe { ManuallyDrop::drop(&mut *self.0.get()) };
    }
}

/// Each user takes it once, and the last of them ends it while the others may be about to return from its release.
#[test]
fn a_mutex_ends_with_its_last_user() {
    check(|| {
        let mutex = Shared::new(Mutex::new(3));
        let uses = |mutex: &Shared<Mutex<u32>>| {
            let mut users = mutex.get().lock().unwrap();
            *users -= 1;
            let is_last = *users == 0;
            drop(users);
            if is_last {
                mutex.end();
            }
        };
        let others = several(2, &mutex, move |mutex, _| uses(&mutex));
        uses(&mutex);
        for other in others {
            other.join().unwrap();
        }
    });
}

/// Notified with the mutex held, or without.
#[test]
fn a_notification_of_a_change_is_not_missed() {
    for held in [false, true] {
        check(move || {
            let both = Arc::new((Mutex::new(0), Condvar::new()));
            let waits = several(2, &both, move |both, _| {
                let (value, changed) = &*both;
                let value = value.lock().unwrap();
                let mut value = changed.wait_while(value, |value| *value == 0).unwrap();
                *value -= 1;
            });
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

/// Each waits for a change of its own: one may come to wait while another one is notified.
#[test]
fn who_is_moved_meanwhile_is_notified() {
    check(|| {
        let both = Arc::new((Mutex::new(0), Condvar::new()));
        let takes_step = |(steps, changed): &(Mutex<usize>, Condvar), number: usize| {
            let steps = steps.lock().unwrap();
            let mut steps = changed.wait_while(steps, |steps| *steps < number).unwrap();
            *steps += 1;
            drop(steps);
            changed.notify_all();
        };
        let others = several(2, &both, move |both, index| takes_step(&both, index + 1));
        takes_step(&both, 0);
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn all_are_notified_and_one_gives_up() {
    check(|| {
        let both = Arc::new((Mutex::new(false), Condvar::new()));
        let waits = spawn(&both, move |both| {
            let (over, changed) = &*both;
            drop(changed.wait_while(over.lock().unwrap(), |over| !*over));
        });
        let gives_up = spawn(&both, move |both| {
            let (over, changed) = &*both;
            let (over, result) = changed
                .wait_timeout_while(over.lock().unwrap(), SOME, |over| !*over)
                .unwrap();
            assert!(*over != result.timed_out());
        });
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

/// Of two waiters one may give up, whose permit is left then.
#[test]
fn a_permit_is_not_lost_where_one_gives_up() {
    check(|| {
        let permits = Arc::new(Semaphore::new(0));
        let gives_up = spawn(&permits, move |permits| permits.acquire_timeout(SOME));
        let waits = spawn(&permits, move |permits| permits.acquire());
        permits.release();
        permits.release();
        let taken = gives_up.join().unwrap();
        waits.join().unwrap();
        assert_eq!(permits.permits(), u32::from(!taken));
        assert!(!permits.is_awaited());
    });
}

/// The thread that has waited for the permit ends it while the other one may be about to return.
#[test]
fn a_semaphore_ends_with_its_last_user() {
    check(|| {
        let permits = Shared::new(Semaphore::new(0));
        let gives = spawn(&permits, move |permits| permits.get().release());
        permits.get().acquire();
        permits.end();
        gives.join().unwrap();
    });
}

/// Two writers and a reader.
#[test]
fn a_writer_is_alone_and_wakes_who_waits() {
    check_less(1, || {
        let lock = Arc::new(RwLock::new(Watched::default()));
        let writers = several(2, &lock, move |lock, _| lock.write().unwrap().add());
        assert!(lock.read().unwrap().get() <= 2);
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(lock.read().unwrap().get(), 2);
    });
}

/// Two readers that go in and out, and a writer that they let in.
#[test]
fn readers_let_a_writer_in_and_it_wakes_them() {
    check(|| {
        let lock = Arc::new(RwLock::new(Watched::default()));
        let readers = several(2, &lock, move |lock, _| lock.read().unwrap().get());
        lock.write().unwrap().add();
        for reader in readers {
            assert!(reader.join().unwrap() <= 1);
        }
    });
}

/// A writer keeps readers out while it waits, and then gives up.
#[test]
fn a_writer_that_gives_up_lets_readers_in() {
    check(|| {
        let lock = Arc::new(RwLock::new(Watched::default()));
        let inside = lock.read().unwrap();
        let gives_up = spawn(&lock, move |lock| {
            assert!(lock.write_timeout(SOME).is_err())
        });
        let reads = spawn(&lock, move |lock| lock.read().unwrap().get());
        // The reader inside does not leave before both are done.
        gives_up.join().unwrap();
        assert_eq!(reads.join().unwrap(), 0);
        drop(inside);
        drop(lock.try_write().unwrap());
    });
}

/// Of two writers that wait one may give up.
#[test]
fn a_writer_that_gives_up_passes_its_wake_up_on() {
    check_less(1, || {
        let lock = Arc::new(RwLock::new(Watched::default()));
        let inside = lock.write().unwrap();
        let gives_up = spawn(&lock, move |lock| {
            if let Ok(value) = lock.write_timeout(SOME) {
                value.add();
            }
        });
        let writes = spawn(&lock, move |lock| lock.write().unwrap().add());
        drop(inside);
        gives_up.join().unwrap();
        writes.join().unwrap();
        assert!((1..=2).contains(&lock.try_read().unwrap().get()));
    });
}

/// A reader and two writers wait for a writer, and go inside one after the other.
#[test]
fn a_writer_that_has_waited_wakes_the_next() {
    check_less(3, || {
        let lock = Arc::new(RwLock::new(Watched::default()));
        let inside = lock.write().unwrap();
        let others = several(3, &lock, move |lock, number| match number {
            0 => assert!(lock.read().unwrap().get() <= 2),
            _ => lock.write().unwrap().add(),
        });
        // The others come and wait.
        thread::yield_now();
        drop(inside);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(lock.try_read().unwrap().get(), 2);
    });
}

#[test]
fn a_writer_that_becomes_a_reader_lets_readers_in() {
    check(|| {
        let lock = Arc::new(RwLock::new(Watched::default()));
        let writes = lock.write().unwrap();
        let others = several(2, &lock, move |lock, number| match number {
            0 => lock.read().unwrap().get(),
            _ => lock.read_timeout(SOME).map_or(1, |value| value.get()),
        });
        writes.add();
        let reads = RwLockWriteGuard::downgrade(writes);
        // The reader inside does not leave before they are done.
        for other in others {
            assert_eq!(other.join().unwrap(), 1);
        }
        drop(reads);
    });
}

#[test]
fn a_signal_comes_with_what_was_done_before() {
    check(|| {
        let both = Arc::new((Signal::new(), Signal::new(), Watched::default()));
        let other = spawn(&both, move |both| {
            for _ in 0..2 {
                both.2.add();
                both.0.set();
                both.1.wait();
            }
        });
        for round in 1..=2 {
            both.0.wait();
            assert_eq!(both.2.get(), round);
            both.1.set();
        }
        other.join().unwrap();
    });
}

/// A problem becomes two, and both workers end when all are solved.
#[test]
fn workers_end_when_all_is_solved() {
    check_less(1, || {
        let heap = Arc::new(Heap::new(vec![2u32]));
        let solved = Arc::new(Mutex::new(0));
        let work = |heap: &Heap<u32>, solved: &Mutex<u32>| {
            while let Some((problem, solving)) = heap.take() {
                match problem {
                    1 => *solved.lock().unwrap() += 1,
                    _ => (0..2).for_each(|_| heap.put(problem - 1)),
                }
                drop(solving);
            }
        };
        let other = {
            let (heap, solved) = (heap.clone(), solved.clone());
            thread::spawn(move || work(&heap, &solved))
        };
        work(&heap, &solved);
        other.join().unwrap();
        assert_eq!(*solved.lock().unwrap(), 2);
    });
}
