//! Panics in threads: joined as errors with their payload, caught inside, poisoning a mutex, with
//! destructors run, and backtraces that end.

use std::backtrace::Backtrace;
use std::panic;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

include!("case.rs.inc");

static DROPS: AtomicUsize = AtomicUsize::new(0);
struct Counted;
impl Drop for Counted {
    fn drop(&mut self) {
        DROPS.fetch_add(1, Ordering::SeqCst);
    }
}

fn deep(depth: usize) {
    let _guard = Counted;
    if depth == 0 {
        panic!("at the bottom");
    }
    deep(depth - 1);
}

fn main() -> ExitCode {
    panic::set_hook(Box::new(|_| ()));
    let payload = thread::spawn(|| deep(10)).join().unwrap_err();
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .unwrap_or("another payload");
    check("panic_joined", text == "at the bottom", text);
    check(
        "panic_drops",
        DROPS.load(Ordering::SeqCst) == 11,
        DROPS.load(Ordering::SeqCst),
    );

    let caught = thread::spawn(|| {
        (0..20)
            .filter(|_| {
                thread::yield_now();
                panic::catch_unwind(|| deep(3)).is_err()
            })
            .count()
    });
    check(
        "catch_unwind",
        caught.join().unwrap() == 20,
        "some were not caught",
    );

    let mutex = Arc::new(Mutex::new(5));
    let other = mutex.clone();
    let died = thread::spawn(move || {
        let _guard = other.lock().unwrap();
        panic!("with the lock");
    });
    check(
        "panic_with_lock",
        died.join().is_err() && mutex.is_poisoned(),
        "not poisoned",
    );

    let frames = thread::spawn(|| Backtrace::force_capture().to_string().lines().count());
    let frames = frames.join().unwrap();
    check("backtrace", (3..200).contains(&frames), frames);

    let many: Vec<_> = (0..200)
        .map(|i| thread::spawn(move || assert!(i % 2 == 0)))
        .collect();
    let died = many
        .into_iter()
        .map(thread::JoinHandle::join)
        .filter(Result::is_err)
        .count();
    check("panic_many", died == 100, died);
    verdict()
}
