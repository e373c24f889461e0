//! A lock whose waiters spin, taken in a critical section: its holder is not preempted.
//!
//! `cargo run --release -p upcall --example spin_lock`

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use upcall::CriticalSection;

// ANCHOR: lock
static LOCKED: AtomicBool = AtomicBool::new(false);

fn with_spin_lock<R>(change: impl FnOnce() -> R) -> R {
    let section = loop {
        let section = CriticalSection::enter();
        if !LOCKED.swap(true, Ordering::Acquire) {
            break section;
        }
        // Who waits is in no section.
        drop(section);
        while LOCKED.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    let result = change();
    LOCKED.store(false, Ordering::Release);
    drop(section);
    result
}
// ANCHOR_END: lock

fn main() {
    let count = AtomicU32::new(0);
    upcall::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    // Right with the lock only.
                    with_spin_lock(|| {
                        let before = count.load(Ordering::Relaxed);
                        count.store(before + 1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 40_000);
}
