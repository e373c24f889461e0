//! Pieces in every kind of trouble at once: `upcall::join` and `Scope::fork` in trees whose shape and leaves a seed decides.
//!
//! It has a runtime of its own, since under `upcall run` each piece is a thread. Leaves compute, wait for pipes, sleep, lock,
//! touch fresh memory, panic, wait for each other, make threads, and fork the process while pieces are outstanding. Each
//! tree is walked twice: once with its pieces, and once as plain calls that wait for nothing. Both must give the same number and
//! counts. What it prints does not depend on scheduling, nor on how long it runs.
//!
//! ```text
//! cargo run --profile testing -p program-tests --bin soak_forks -- [SECONDS] [SEED]
//! ```
//!
//! Rounds begin until SECONDS have passed; without, there are 20. SEED is 1 unless given, here or as `SOAK_SEED`; each round
//! has the next. `UPCALL_VPS` and `UPCALL_SLICE_US` hold; the time slice is 100 µs unless set. A failure prints its round's seed.
//! A round that hangs ends the process by SIGALRM after 300 seconds.

mod children;
mod hangs;
mod leaves;
mod libcs;
#[path = "../../../tests/soak/random.rs"]
mod random;
mod tree;

use std::time::{Duration, Instant};

use upcall::thread;

use random::Random;
use tree::{Shape, World};

/// Longer than the soak waits before it describes a hang.
const HANGS_SECONDS: u32 = 300;
const ROUNDS: u32 = 20;

/// Trees of a round, each in a thread of its own: the kind of thread, the shape, and the number of leaves.
const TREES: [(Thread, Shape, usize); 8] = [
    (Thread::OfCrate, Shape::Mixed, 300),
    (Thread::OfCrate, Shape::Mixed, 100),
    (Thread::OfLibc, Shape::Mixed, 300),
    (Thread::OfLibc, Shape::Mixed, 100),
    // More pieces than a list has room for.
    (Thread::OfCrate, Shape::Deep, 400),
    (Thread::OfLibc, Shape::Deep, 150),
    (Thread::OfCrate, Shape::Quiet, 4000),
    (Thread::OfLibc, Shape::Quiet, 4000),
];

#[derive(Clone, Copy)]
enum Thread {
    OfCrate,
    OfLibc,
}

fn main() {
    let mut words = std::env::args().skip(1).map(|word| {
        let number = word.parse::<u64>();
        number.unwrap_or_else(|_| panic!("{word}: want [SECONDS] [SEED]"))
    });
    let (seconds, seed) = (words.next(), words.next());
    let told = std::env::var("SOAK_SEED").ok();
    let seed = seed.or_else(|| told?.parse().ok()).unwrap_or(1);
    if !cfg!(panic = "unwind") {
        println!("skipped: panics abort in this build; build it with --profile testing");
        return;
    }
    begin();
    let start = Instant::now();
    let mut rounds = 0;
    let goes_on = |rounds| match seconds {
        Some(seconds) => start.elapsed() < Duration::from_secs(seconds),
        None => rounds < ROUNDS,
    };
    while goes_on(rounds) {
        hangs::end_after(HANGS_SECONDS);
        round(seed.wrapping_add(rounds.into()));
        rounds += 1;
    }
    if seconds.is_some() {
        eprintln!("{rounds} rounds in {} s", start.elapsed().as_secs());
    }
    println!("ok soak_forks");
}

fn begin() {
    hangs::begin();
    // SAFETY: a system call on plain values.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // Some children end by SIGABRT.
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
    }
    let mut builder = upcall::Runtime::builder().stack_size(1 << 20);
    if std::env::var_os("UPCALL_SLICE_US").is_none() {
        builder = builder.time_slice(Duration::from_micros(100));
    }
    builder.start().expect("starts");
}

fn round(seed: u64) {
    let mut random = Random::new(seed);
    let locked = leaves::locked();
    let (ours, libcs): (Vec<_>, Vec<_>) = TREES
        .iter()
        .map(|&(thread, shape, size)| (thread, tree::Tree::new(random.next(), shape, size)))
        .partition(|(thread, _)| matches!(thread, Thread::OfCrate));
    let libcs = libcs.iter().map(|(_, tree)| || walk(seed, tree));
    let (libcs, ours) = libcs::beside(libcs, || {
        thread::scope(|scope| {
            let ours: Vec<_> = ours
                .iter()
                .map(|(_, tree)| scope.spawn(|| walk(seed, tree)))
                .collect();
            ours.into_iter()
                .map(|tree| tree.join().unwrap())
                .sum::<u64>()
        })
    });
    let locks = ours + libcs.into_iter().sum::<u64>();
    expect(
        seed,
        "additions under locks",
        leaves::locked() - locked,
        locks,
    );
}

/// Walks a tree both ways. Returns how many leaves have locked something.
fn walk(seed: u64, tree: &tree::Tree) -> u64 {
    let (plain, pieces) = (World::plain(), World::of_pieces());
    let expected = tree.walk(&plain);
    expect(seed, "a tree", tree.walk(&pieces), expected);
    for (kind, (found, expected)) in pieces.counts().into_iter().zip(plain.counts()).enumerate() {
        expect(seed, &format!("leaves of kind {kind}"), found, expected);
    }
    expect(seed, "closures dropped", pieces.dropped(), plain.dropped());
    pieces.locks()
}

/// Ends the process if they are not the same.
fn expect(seed: u64, what: &str, found: u64, expected: u64) {
    if found != expected {
        println!("FAIL soak_forks: seed {seed}: {what}: {found:#x}, not {expected:#x}");
        std::process::exit(1);
    }
}
