//! How a processor rounds is a thread's own, and a new thread's as its maker's (pthread_create(3posix)), with and
//! without a runtime. So it is with all control words of floating-point arithmetic.

mod modes;

use std::ffi::c_int;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

#[link(name = "m")]
unsafe extern "C" {
    fn fesetround(round: c_int) -> c_int;
    fn fegetround() -> c_int;
    fn rint(x: f64) -> f64;
}

/// To the nearest, down, up, and towards zero.
#[cfg(target_arch = "x86_64")]
const ROUNDS: [c_int; 4] = [0, 0x400, 0x800, 0xc00];
#[cfg(not(target_arch = "x86_64"))]
const ROUNDS: [c_int; 4] = [0, 0x80_0000, 0x40_0000, 0xc0_0000];

/// What 1.5 and -1.5 are so.
const ROUNDED: [(f64, f64); 4] = [(2.0, -2.0), (1.0, -2.0), (2.0, -1.0), (1.0, -1.0)];

fn set(which: usize) {
    // SAFETY: nothing is computed here but by `rint`.
    assert_eq!(unsafe { fesetround(ROUNDS[which]) }, 0);
}

/// The word of the x87, which `fegetround` reads, and that of all other instructions.
fn check(which: usize) {
    // SAFETY: no pointers.
    let found = unsafe { (fegetround(), (rint(black_box(1.5)), rint(black_box(-1.5)))) };
    assert_eq!(found, (ROUNDS[which], ROUNDED[which]));
}

fn each_thread_rounds_its_way() {
    const THREADS: usize = 8;
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let start = &start;
            scope.spawn(move || {
                set(number % 4);
                start.wait();
                for turn in 0..20_000 {
                    check(number % 4);
                    if turn % 4 == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
    });
}

fn a_new_thread_rounds_as_its_maker() {
    thread::scope(|scope| {
        for which in 0..4 {
            scope.spawn(move || {
                for _ in 0..200 {
                    set(which);
                    let child = thread::spawn(move || {
                        check(which);
                        // Is its own from here on.
                        set((which + 1) % 4);
                    });
                    // Not that with which its maker goes on.
                    set((which + 2) % 4);
                    child.join().unwrap();
                    check((which + 2) % 4);
                }
            });
        }
    });
}

fn main() {
    modes::main_with_slices(cases! {
        each_thread_rounds_its_way
        a_new_thread_rounds_as_its_maker
    });
}
