//! A hundred threads sleep while others compute: all wake, none early.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

include!("case.rs.inc");

fn main() -> ExitCode {
    let early = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let woken = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let sleepers: Vec<_> = (1..=100u64)
            .map(|number| {
                let (early, woken) = (&early, &woken);
                scope.spawn(move || {
                    let length = Duration::from_millis(number);
                    let before = Instant::now();
                    thread::sleep(length);
                    early.fetch_add(usize::from(before.elapsed() < length), Ordering::SeqCst);
                    woken.lock().unwrap().push(number);
                })
            })
            .collect();
        sleepers
            .into_iter()
            .for_each(|sleeper| sleeper.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    let mut woken = woken.into_inner().unwrap();
    woken.sort_unstable();
    check(
        "sleepers",
        woken == (1..=100).collect::<Vec<_>>(),
        woken.len(),
    );
    check(
        "not_early",
        early.load(Ordering::SeqCst) == 0,
        early.load(Ordering::SeqCst),
    );
    verdict()
}
