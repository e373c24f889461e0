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

#[cfg(target_arch = "x86_64")]
mod code {
    use std::arch::asm;
    use std::env;
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use upcall::critical_code;

    use crate::modes::{MODE, SLICE};

    /// A thread is in the code, or nearly: this is written by its first instructions and its last ones.
    static INSIDE: AtomicBool = AtomicBool::new(false);
    static OVER: AtomicBool = AtomicBool::new(false);
    /// So often another thread looks.
    const LOOKS: u32 = 40;

    // The linker makes these names of the section's.
    unsafe extern "C" {
        #[link_name = "__start_critical_code"]
        static BEGIN: u8;
        #[link_name = "__stop_critical_code"]
        static END: u8;
    }

    /// Some tens of microseconds in which nothing is called: less than the shortest slice.
    #[unsafe(link_section = "critical_code")]
    #[inline(never)]
    extern "C" fn change() {
        // SAFETY: writes the flag, and counts.
        unsafe {
            asm!(
                "mov byte ptr [{inside}], 1",
                "2: dec {left:r}",
                "jnz 2b",
                "mov byte ptr [{inside}], 0",
                inside = in(reg) INSIDE.as_ptr(),
                left = inout(reg) 100_000u64 => _,
                options(nostack),
            );
        }
    }

    /// The same without an end.
    #[unsafe(link_section = "critical_code")]
    #[inline(never)]
    extern "C" fn stay() {
        // SAFETY: reads the flag.
        unsafe {
            asm!(
                "2: cmp byte ptr [{over}], 0",
                "je 2b",
                over = in(reg) OVER.as_ptr(),
                options(nostack, readonly),
            );
        }
    }

    /// In no section, about half as long as [`change`].
    fn compute() {
        // SAFETY: counts.
        unsafe {
            asm!("2: dec {left:r}", "jnz 2b", left = inout(reg) 50_000u64 => _, options(nomem, nostack));
        }
    }

    fn works(critical: extern "C" fn(), looks: impl FnOnce()) {
        OVER.store(false, Ordering::Relaxed);
        let body = move || {
            while !OVER.load(Ordering::Relaxed) {
                critical();
                compute();
            }
        };
        let worker = thread::spawn(body);
        looks();
        OVER.store(true, Ordering::Relaxed);
        worker.join().unwrap();
    }

    /// How often another thread runs on the only virtual processor while one is in the code.
    pub fn a_thread_in_critical_code_goes_on_to_its_end() {
        critical_code(&raw const BEGIN..&raw const END).expect("there is room");
        let mut met = 0;
        works(change, || {
            for _ in 0..LOOKS {
                thread::yield_now();
                met += u32::from(INSIDE.load(Ordering::Relaxed));
            }
        });
        // It is there two thirds of the time. Two of the shortest slices may be over before it has gone on at all: the kernel's timer
        // ends one, and the standby another.
        let is = |variable, value| env::var(variable).is_ok_and(|is| is == value);
        if is(MODE, "1") && is(SLICE, "5000") {
            assert!(met * 4 < LOOKS, "{met} of {LOOKS}");
        }
    }

    /// Others run all the same, and end it.
    pub fn critical_code_without_an_end_is_stopped() {
        critical_code(&raw const BEGIN..&raw const END).expect("it is there");
        works(stay, || {
            for _ in 0..3 {
                thread::yield_now();
            }
        });
    }

    pub fn a_range_that_is_none_is_refused() {
        let begin = &raw const BEGIN;
        let refused = critical_code(begin..begin).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::InvalidInput));
    }
}

/// Another processor's code is in no section yet.
#[cfg(not(target_arch = "x86_64"))]
mod code {
    pub fn a_thread_in_critical_code_goes_on_to_its_end() {}
    pub fn critical_code_without_an_end_is_stopped() {}
    pub fn a_range_that_is_none_is_refused() {}
}

use code::{
    a_range_that_is_none_is_refused, a_thread_in_critical_code_goes_on_to_its_end,
    critical_code_without_an_end_is_stopped,
};

fn main() {
    modes::main_with_slices(cases! {
        threads_that_spin_for_a_lock_count_right
        a_section_without_an_end_is_stopped
        a_section_ends_with_a_panic_and_with_its_thread
        a_thread_in_critical_code_goes_on_to_its_end
        critical_code_without_an_end_is_stopped
        a_range_that_is_none_is_refused
    });
}
