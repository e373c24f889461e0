//! park and unpark, scoped threads, condition variables with timeouts, OnceLock and LazyLock.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

include!("case.rs.inc");

static LAZY: LazyLock<usize> = LazyLock::new(|| {
    thread::sleep(Duration::from_millis(5));
    INITIALISED.fetch_add(1, Ordering::SeqCst) + 41
});
static INITIALISED: AtomicUsize = AtomicUsize::new(1);
static ONCE: OnceLock<usize> = OnceLock::new();

fn main() -> ExitCode {
    let open = AtomicBool::new(false);
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        let parked: Vec<_> = (0..30)
            .map(|_| {
                scope.spawn(|| {
                    while !open.load(Ordering::SeqCst) {
                        thread::park();
                    }
                    passed.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(10));
        open.store(true, Ordering::SeqCst);
        parked.iter().for_each(|thread| thread.thread().unpark());
    });
    check(
        "park_unpark",
        passed.load(Ordering::SeqCst) == 30,
        passed.load(Ordering::SeqCst),
    );

    thread::current().unpark();
    thread::park();
    check("unpark_before_park", true, "");

    let mut data: Vec<u64> = (0..10_000).collect();
    thread::scope(|scope| {
        for part in data.chunks_mut(700) {
            scope.spawn(move || part.iter_mut().for_each(|item| *item *= 2));
        }
    });
    check(
        "scoped",
        data.iter().sum::<u64>() == 99_990_000,
        data.iter().sum::<u64>(),
    );

    let (mutex, condition) = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..100 {
                    *mutex.lock().unwrap() += 1;
                    condition.notify_all();
                }
            });
        }
        let count = condition
            .wait_while(mutex.lock().unwrap(), |count| *count < 1000)
            .unwrap();
        check("condvar", *count == 1000, *count);
    });
    let before = Instant::now();
    let limit = Duration::from_millis(20);
    let guard = mutex.lock().unwrap();
    let (_guard, result) = condition
        .wait_timeout_while(guard, limit, |_| true)
        .unwrap();
    check(
        "condvar_timeout",
        result.timed_out() && before.elapsed() >= limit,
        result.timed_out(),
    );

    let values: Vec<(usize, usize)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..20)
            .map(|i| scope.spawn(move || (*LAZY, *ONCE.get_or_init(|| i))))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let same = values.iter().all(|value| *value == values[0]) && values[0].0 == 42;
    check("lazy_once", same, format!("{values:?}"));
    verdict()
}
