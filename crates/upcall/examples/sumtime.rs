//! The sum of 1 to N by a binary tree of threads, one for every half (Danjean, Namyst and Russell 2000): a thread is
//! cheap enough for an addition.
//!
//! `cargo run --release -p upcall --example sumtime -- 100000`

use std::time::Instant;

use upcall::thread;

// ANCHOR: sum
fn sum(first: u64, last: u64) -> u64 {
    if first >= last {
        return first;
    }
    let middle = first.midpoint(last);
    let low = thread::spawn(move || sum(first, middle));
    let high = thread::spawn(move || sum(middle + 1, last));
    low.join().unwrap() + high.join().unwrap()
}
// ANCHOR_END: sum

fn main() {
    let last = std::env::args()
        .nth(1)
        .map_or(2000, |word| word.parse().expect("a number"));
    for _ in 0..5 {
        let begin = Instant::now();
        let sum = thread::spawn(move || sum(1, last)).join().unwrap();
        assert_eq!(sum, last * (last + 1) / 2);
        println!("1 + ... + {last} = {sum}: {:?}", begin.elapsed());
    }
}
