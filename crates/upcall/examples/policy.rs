//! A policy of one's own: stride scheduling (Waldspurger and Weihl 1995). Each thread has tickets, and as much of the
//! processors as it has tickets.
//!
//! `cargo run --release --example policy`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use upcall::policy::{Id, Policy, Rank, Threads, Why};
use upcall::thread::Builder;

// ANCHOR: stride
/// Divides the processors by tickets: a thread's tag.
#[derive(Default)]
struct Stride {
    /// How far each thread has come: a slice moves it on by the less, the more tickets it has.
    passes: BTreeMap<Id, u64>,
}

impl Policy for Stride {
    fn ready(&mut self, threads: &mut Threads, thread: Id, why: Why) -> Rank {
        const STRIDE: u64 = 1 << 20;
        // A thread that comes, or comes back, begins where the others are.
        let least = self.passes.values().min().copied().unwrap_or(0);
        let pass = self.passes.entry(thread).or_insert(least);
        *pass = (*pass).max(least);
        if why == Why::Preempted {
            *pass += STRIDE / threads.tag(thread).unwrap_or(0).max(1);
        }
        Rank(1 + *pass)
    }

    fn blocked(&mut self, _: &mut Threads, thread: Id) {
        self.passes.remove(&thread);
    }

    fn ended(&mut self, _: &mut Threads, thread: Id) {
        self.passes.remove(&thread);
    }
}
// ANCHOR_END: stride

fn main() -> Result<(), upcall::Error> {
    upcall::Runtime::builder()
        .virtual_processors(1, 1)
        .time_slice(Duration::from_millis(1))
        .policy(Stride::default())
        .start()?;
    let (counts, over) = (
        Arc::new([const { AtomicU64::new(0) }; 3]),
        Arc::new(AtomicBool::new(false)),
    );
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (counts, over) = (counts.clone(), over.clone());
            let count = move || {
                while !over.load(Ordering::Relaxed) {
                    counts[number].fetch_add(1, Ordering::Relaxed);
                }
            };
            let tickets = [1, 2, 3][number];
            Builder::new().tag(tickets).spawn(count).expect("a thread")
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("no panic");
    }
    let total: u64 = counts
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .sum();
    for (tickets, count) in (1..).zip(counts.iter()) {
        let share = 100 * count.load(Ordering::Relaxed) / total.max(1);
        println!("{tickets} of 6 tickets: {share} %");
    }
    Ok(())
}
