//! Critical sections, with and without a runtime.

mod modes;

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use upcall::{CriticalSection, critical};

/// A lock whose waiters spin, in no section.
struct SpinLock<T>(AtomicBool, UnsafeCell<T>);

// SAFETY: the value is reached with the lock held.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let section = loop {
            let section = CriticalSection::enter();
            if !self.0.swap(true, Ordering::Acquire) {
                break section;
            }
            drop(section);
            while self.0.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        // SAFETY: the lock is held.
        let result = change(unsafe { &mut *self.1.get() });
        self.0.store(false, Ordering::Release);
        drop(section);
        result
    }
}

fn threads_that_spin_for_a_lock_count_right() {
    let lock = SpinLock(AtomicBool::new(false), UnsafeCell::new(0u64));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for round in 0..10_000 {
                    lock.with(|count| *count += 1);
                    if round % 1024 == 0 {
                        // It waits in a section.
                        lock.with(|_| thread::sleep(Duration::from_micros(50)));
                    }
                }
            });
        }
    });
    assert_eq!(lock.with(|count| *count), 6 * 10_000);
}

/// Others run all the same, and end it.
fn a_section_without_an_end_is_stopped() {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                critical(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            });
        }
        thread::sleep(Duration::from_millis(1));
        over.store(true, Ordering::Relaxed);
    });
}

/// A thread after it, in the same place, is in no section, and neither is who has caught the panic.
fn a_section_ends_with_a_panic_and_with_its_thread() {
    for _ in 0..20 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            critical(|| critical(|| std::panic::resume_unwind(Box::new("a panic"))));
        }));
        assert!(panicked.is_err());
        upcall::thread::spawn(|| std::mem::forget(CriticalSection::enter()))
            .join()
            .unwrap();
    }
    a_section_without_an_end_is_stopped();
}

fn main() {
    modes::main(cases! {
        threads_that_spin_for_a_lock_count_right
        a_section_without_an_end_is_stopped
        a_section_ends_with_a_panic_and_with_its_thread
    });
}
