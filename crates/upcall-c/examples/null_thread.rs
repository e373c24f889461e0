//! What a thread of the crate costs that does nothing, beside `tests/programs/null_thread.c`: the least of many
//! measurements, in nanoseconds.

use std::time::Instant;

const EACH: u32 = 20_000;

fn measure(rounds: u32) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..rounds {
        let begin = Instant::now();
        for number in 0..EACH {
            let thread = upcall::thread::spawn(move || number);
            assert_eq!(thread.join().expect("no panic"), number);
        }
        least = least.min(begin.elapsed().as_nanos() as f64 / f64::from(EACH));
    }
    least
}

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(20);
    upcall::Runtime::builder()
        .virtual_processors(1, 1)
        .start()
        .expect("starts");
    println!(
        "null thread: {:.1} ns, by the first thread",
        measure(rounds)
    );
    let least = upcall::thread::spawn(move || measure(rounds)).join();
    println!("null thread: {:.1} ns", least.expect("no panic"));
}
